//! A headless Chromium with one page, which says what went wrong.
//!
//! It is driven by the DevTools protocol over pipes: messages of JSON that end with a zero byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far more than any answer takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chromium-headless-shell",
];
/// Keys by their names: the codes that pages may still ask for.
const KEYS: [(&str, u32); 10] = [
    ("Tab", 9),
    ("Enter", 13),
    ("Escape", 27),
    ("PageUp", 33),
    ("PageDown", 34),
    ("End", 35),
    ("ArrowLeft", 37),
    ("ArrowUp", 38),
    ("ArrowRight", 39),
    ("ArrowDown", 40),
];

/// A page in a browser, which ends with it.
pub(crate) struct Chromium {
    browser: Child,
    requests: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    /// The number of the last request.
    last: Cell<u64>,
    /// The page's part of the protocol.
    session: String,
    page: String,
    /// What the page should not have done.
    complaints: RefCell<Vec<String>>,
    _profile: TempDir,
}

impl Chromium {
    /// Opens a file of HTML, in a window of so many pixels; `None`, with a message that the test is
    /// skipped, where there is no Chromium.
    pub(crate) fn open(page: &Path, size: [u32; 2]) -> Option<Self> {
        let Some(program) = program() else {
            cognate_testing::skip("no Chromium is found; Debian's package is called chromium");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The browser reads requests from file 3, and writes answers to file 4.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"])
            .arg(program);
        // Without a namespace of its own, as for root in a container, the browser refuses its
        // sandbox. It opens our own page alone.
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command.args([
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut browser = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = RefCell::new(browser.stdin.take().unwrap());
        let answers = BufReader::new(browser.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let Ok(()) = sender.send(serde_json::from_slice(&message).unwrap()) else { return };
            }
        });
        let page = format!("file://{}", page.canonicalize().unwrap().display());
        let (last, complaints) = (Cell::new(0), RefCell::default());
        let mut chromium = Self {
            browser,
            requests,
            messages,
            last,
            session: String::new(),
            page: page.clone(),
            complaints,
            _profile: profile,
        };
        let target = chromium.call("Target.createTarget", json!({ "url": "about:blank" }));
        let session = chromium.call(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        chromium.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime", "Log", "Network"] {
            chromium.call(&format!("{domain}.enable"), json!({}));
        }
        chromium.resize(size);
        let opened = chromium.call("Page.navigate", json!({ "url": page }));
        assert!(opened.get("errorText").is_none(), "{opened}");
        chromium
            .wait_for(&format!("location.href === {page:?} && document.readyState === 'complete'"));
        Some(chromium)
    }

    /// Calls a method of the protocol.
    fn call(&self, method: &str, parameters: Value) -> Value {
        self.last.set(self.last.get() + 1);
        let mut request = json!({ "id": self.last.get(), "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.requests.borrow_mut().write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut message = self
                .messages
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|why| panic!("{method}: {why}"));
            if message["id"] == json!(self.last.get()) {
                assert!(message.get("error").is_none(), "{request}: {}", message["error"]);
                return message["result"].take();
            }
            self.complaints.borrow_mut().extend(complaint(&message, &self.page));
        }
    }

    /// Makes the window so many pixels wide and high.
    pub(crate) fn resize(&self, [width, height]: [u32; 2]) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// The value of an expression of the page's own language.
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        let mut found = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(
            found.get("exceptionDetails").is_none(),
            "{expression}: {}",
            found["exceptionDetails"]
        );
        found["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&self, expression: &str) {
        wait_until(expression, || self.evaluate(expression) == json!(true));
    }

    /// Moves the mouse.
    pub(crate) fn point(&self, at: [f64; 2]) {
        self.mouse("mouseMoved", at);
    }

    fn mouse(&self, kind: &str, [x, y]: [f64; 2]) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 }),
        );
    }

    /// Clicks the middle of the first element that a selector finds.
    pub(crate) fn click(&self, selector: &str) {
        let middle = self.middle(selector);
        ["mouseMoved", "mousePressed", "mouseReleased"]
            .into_iter()
            .for_each(|kind| self.mouse(kind, middle));
    }

    /// Where the first element that a selector finds has its middle, scrolled into sight.
    pub(crate) fn middle(&self, selector: &str) -> [f64; 2] {
        let place = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        [0, 1].map(|index| place[index].as_f64().unwrap())
    }

    /// Presses a key by its name, as `ArrowDown` or `Tab`.
    pub(crate) fn press(&self, key: &str) {
        let (_, code) = KEYS.into_iter().find(|(name, _)| *name == key).unwrap();
        let (kind, text) = if key == "Enter" { ("keyDown", "\r") } else { ("rawKeyDown", "") };
        for (kind, text) in [(kind, text), ("keyUp", "")] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Lets the page think that the system prefers `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
    }

    /// The window as PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let found = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        STANDARD.decode(found["data"].as_str().unwrap()).unwrap()
    }

    /// What the page should not have done so far: errors and warnings on its console, exceptions,
    /// and requests for anything but itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        // Events come in their order: when the last one is there, all are.
        const LAST: &str = "the last event";
        let is_last = |complaint: &String| complaint.contains(LAST);
        self.evaluate(&format!("console.debug({LAST:?})"));
        wait_until(LAST, || {
            self.evaluate("0");
            self.complaints.borrow().iter().any(is_last)
        });
        self.complaints.borrow_mut().retain(|complaint| !is_last(complaint));
        self.complaints.borrow().clone()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The browser ends by itself, with all of its processes, when nobody can send requests.
        let request = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.requests.get_mut().write_all(format!("{request}\0").as_bytes());
        let _ = self.browser.wait();
    }
}

/// The Chromium that is installed.
fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let programs = PROGRAMS
        .iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)));
    let mac = PathBuf::from("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome");
    programs.chain([mac]).find(|program| program.is_file())
}

/// What an event complains about, if it does; a page may ask for `own`.
fn complaint(event: &Value, own: &str) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
        "Log.entryAdded" => Some(parameters["entry"]["text"].to_string()),
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str()?;
            (url != own && !url.starts_with("data:") && url != "about:blank")
                .then(|| url.to_owned())
        }
        _ => None,
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never so: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn complaints_are_heard() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(
        &page,
        "<script>console.error('told'); fetch('http://127.0.0.1:9/asked'); setTimeout(() => { throw 'thrown'; })</script>",
    )
    .unwrap();
    let Some(chromium) = Chromium::open(&page, [300, 200]) else { return };
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 50))");
    let complaints = chromium.complaints();
    for expected in ["told", "http://127.0.0.1:9/asked", "thrown"] {
        assert!(
            complaints.iter().any(|complaint| complaint.contains(expected)),
            "{expected}: {complaints:?}"
        );
    }
}
