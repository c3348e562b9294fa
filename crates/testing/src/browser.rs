//! A headless Chromium, told what to do over the pipes of its DevTools protocol.
//!
//! Messages are JSON, each ended by a zero byte: the browser reads them from its file descriptor 3 and writes them to 4
//! (`--remote-debugging-pipe`), which a shell makes of its standard input and output. So a test needs no driver, no port and no network.
//!
//! Libraries that drive browsers were weighed: headless_chrome would bring 53 crates, chromiumoxide 77, fantoccini 60 and a program
//! beside the browser. What the tests want of the protocol is a dozen methods.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What Debian and others call the program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Far more than any answer takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(120);

/// A page in a browser.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    page: String,
    /// What the browser told without being asked.
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Opens a file of HTML, in a window of so many pixels; `None`, with a message that the test is skipped, where there is no Chromium.
    ///
    /// # Panics
    /// When the browser does not start, or the page does not load.
    pub fn open(page: &Path, size: [u32; 2]) -> Option<Self> {
        let Some(program) = find() else {
            crate::skip("no Chromium is found; Debian's package is called chromium");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#]).arg(program);
        command.args(["--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-extensions", "--disable-dev-shm-usage"]);
        // Without a namespace of its own, as for root in a container, the browser refuses its sandbox. It opens our own page alone.
        command.arg("--no-sandbox").arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh starts");
        let (commands, answers) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let page = format!("file://{}", page.canonicalize().expect("the page is there").display());
        let mut browser = Self { child, commands, messages, sent: 0, session: None, page, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let [width, height] = size;
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        );
        browser.call("Page.navigate", json!({ "url": browser.page }));
        browser.wait_for("document.readyState === 'complete' && location.protocol === 'file:'");
        Some(browser)
    }

    /// Calls a method of the protocol; its result.
    ///
    /// # Panics
    /// When the browser refuses it, or does not answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.commands.as_mut().expect("it is open").write_all(&text).expect("the browser listens");
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// The value of an expression of the page's own language.
    ///
    /// # Panics
    /// When it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let found = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }));
        assert!(found["exceptionDetails"].is_null(), "{expression}: {}", found["exceptionDetails"]);
        found["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// When it never is.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(expression) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never true: {expression}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves the mouse.
    pub fn point(&mut self, [x, y]: [f64; 2]) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// Clicks the middle of the first element that a selector finds.
    ///
    /// # Panics
    /// When there is none.
    pub fn click(&mut self, selector: &str) {
        let [x, y] = self.middle(selector);
        self.point([x, y]);
        for kind in ["mousePressed", "mouseReleased"] {
            self.call("Input.dispatchMouseEvent", json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 }));
        }
    }

    /// Where the first element that a selector finds has its middle, scrolled into sight.
    ///
    /// # Panics
    /// When there is none.
    pub fn middle(&mut self, selector: &str) -> [f64; 2] {
        let place = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        [0, 1].map(|index| place[index].as_f64().expect("a number"))
    }

    /// Presses a key by its name, as `ArrowDown` or `Tab`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "PageDown" => 34,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("{other}: no such key is known here"),
        };
        // Only a key that writes something presses a button.
        let down = if key == "Enter" { json!({ "type": "keyDown", "text": "\r" }) } else { json!({ "type": "rawKeyDown" }) };
        for mut event in [down, json!({ "type": "keyUp" })] {
            event["key"] = key.into();
            event["code"] = key.into();
            event["windowsVirtualKeyCode"] = code.into();
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Lets the page think that the system prefers `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        self.call("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }));
    }

    /// The window as PNG.
    ///
    /// # Panics
    /// When it is not what base64 may be.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        decoded(shot["data"].as_str().expect("base64"))
    }

    /// What the page should not have done so far: errors and warnings on its console, exceptions, and requests for anything but itself.
    pub fn complaints(&mut self) -> Vec<String> {
        // What was told before this answer has been heard.
        self.evaluate("0");
        let own = |url: &str| url == self.page || url.starts_with("data:") || url == "about:blank";
        let complaint = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
                "Log.entryAdded" => Some(parameters["entry"].to_string()),
                "Network.requestWillBeSent" => parameters["request"]["url"].as_str().filter(|url| !own(url)).map(str::to_owned),
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // An end of its commands ends the browser, with the processes that it has started.
        self.commands = None;
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut places = env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    places.find(|place| place.is_file())
}

/// Base64 without line breaks.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("no base64: {other}"),
    };
    let digits: Vec<u32> = text.trim_end_matches('=').bytes().map(digit).collect();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 3);
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend((0..group.len() - 1).map(|byte| (bits >> (16 - 8 * byte)) as u8));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        // RFC 4648, section 10.
        let vectors = [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")];
        for (text, expected) in vectors {
            assert_eq!(decoded(text), expected.as_bytes(), "{text}");
        }
    }
}
