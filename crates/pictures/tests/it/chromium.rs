//! A headless Chromium with one page, which says what went wrong.

use headless_chrome::browser::tab::{Tab, point::Point};
use headless_chrome::browser::{Browser, LaunchOptions, default_executable};
use headless_chrome::protocol::cdp::types::{Event, Method};
use headless_chrome::protocol::cdp::{Emulation, Network, Page, Runtime};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Far more than any answer takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(120);

/// A page in a browser, which ends with it.
pub(crate) struct Chromium {
    tab: Arc<Tab>,
    /// What the page should not have done.
    complaints: Arc<Mutex<Vec<String>>>,
    _browser: Browser,
}

impl Chromium {
    /// Opens a file of HTML, in a window of so many pixels; `None`, with a message that the test is skipped, where there is no Chromium.
    pub(crate) fn open(page: &Path, size: [u32; 2]) -> Option<Self> {
        let Ok(program) = default_executable() else {
            cognate_testing::skip("no Chromium is found; Debian's package is called chromium");
            return None;
        };
        let mut options = LaunchOptions::default_builder();
        // Without a namespace of its own, as for root in a container, the browser refuses its sandbox. It opens our own page alone.
        options.path(Some(program)).sandbox(false).idle_browser_timeout(PATIENCE);
        options.args(vec!["--hide-scrollbars".as_ref(), "--force-device-scale-factor=1".as_ref()]);
        let browser = Browser::new(options.build().unwrap()).unwrap();
        let tab = browser.new_tab().unwrap();
        tab.set_default_timeout(PATIENCE);
        let page = format!("file://{}", page.canonicalize().unwrap().display());
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let (heard, own) = (Arc::clone(&complaints), page.clone());
        tab.add_event_listener(Arc::new(move |event: &Event| heard.lock().unwrap().extend(complaint(event, &own)))).unwrap();
        let chromium = Self { tab, complaints, _browser: browser };
        chromium.tab.enable_runtime().unwrap().enable_log().unwrap();
        chromium.call::<Network::Enable>(json!({}));
        chromium.resize(size);
        chromium.tab.navigate_to(&page).unwrap().wait_until_navigated().unwrap();
        Some(chromium)
    }

    /// Calls a method of the DevTools protocol.
    fn call<M: Method + Serialize + DeserializeOwned + Debug>(&self, parameters: Value) -> M::ReturnObject {
        let method: M = serde_json::from_value(parameters).unwrap();
        self.tab.call_method(method).unwrap()
    }

    /// Makes the window so many pixels wide and high.
    pub(crate) fn resize(&self, [width, height]: [u32; 2]) {
        self.call::<Emulation::SetDeviceMetricsOverride>(
            json!({ "width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": false }),
        );
    }

    /// The value of an expression of the page's own language.
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        let found = self.call::<Runtime::Evaluate>(json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }));
        assert!(found.exception_details.is_none(), "{expression}: {:?}", found.exception_details);
        found.result.value.unwrap_or_default()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&self, expression: &str) {
        wait_until(expression, || self.evaluate(expression) == json!(true));
    }

    /// Moves the mouse.
    pub(crate) fn point(&self, [x, y]: [f64; 2]) {
        self.tab.move_mouse_to_point(Point { x, y }).unwrap();
    }

    /// Clicks the middle of the first element that a selector finds.
    pub(crate) fn click(&self, selector: &str) {
        let [x, y] = self.middle(selector);
        self.tab.click_point(Point { x, y }).unwrap();
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
        self.tab.press_key(key).unwrap();
    }

    /// Lets the page think that the system prefers `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        self.call::<Emulation::SetEmulatedMedia>(json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }));
    }

    /// The window as PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        self.tab.capture_screenshot(Page::CaptureScreenshotFormatOption::Png, None, None, true).unwrap()
    }

    /// What the page should not have done so far: errors and warnings on its console, exceptions, and requests for anything but itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        // Events come on a thread of their own, in their order: when the last one is there, all are.
        const LAST: &str = "the last event";
        self.evaluate(&format!("console.debug({LAST:?})"));
        let is_last = |complaint: &String| complaint.contains(LAST);
        wait_until(LAST, || self.complaints.lock().unwrap().iter().any(is_last));
        let mut complaints = self.complaints.lock().unwrap();
        complaints.retain(|complaint| !is_last(complaint));
        complaints.clone()
    }
}

/// What an event complains about, if it does; a page may ask for `own`.
fn complaint(event: &Event, own: &str) -> Option<String> {
    match event {
        Event::RuntimeExceptionThrown(thrown) => Some(format!("{:?}", thrown.params.exception_details)),
        Event::RuntimeConsoleAPICalled(called) => Some(format!("{:?}", called.params.args)),
        Event::LogEntryAdded(added) => Some(added.params.entry.text.clone()),
        Event::NetworkRequestWillBeSent(sent) => {
            let url = &sent.params.request.url;
            (url != own && !url.starts_with("data:") && url != "about:blank").then(|| url.clone())
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
        assert!(complaints.iter().any(|complaint| complaint.contains(expected)), "{expected}: {complaints:?}");
    }
}
