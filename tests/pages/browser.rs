//! Chromium without a window, spoken to over a pipe by its DevTools protocol (<https://chromedevtools.github.io/devtools-protocol/>).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::program;

/// One tab of a browser of its own, ended with the value.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    /// What the page's console, or the browser about the page, complained of.
    pub(crate) complaints: Vec<String>,
    is_loaded: bool,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None`, with a word about it, where there is no Chromium.
    pub(crate) fn start() -> Option<Self> {
        let chromium = program::any_tool(&["chromium-headless-shell", "chromium", "google-chrome"])?;
        let profile = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3 and answers on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (session, complaints, is_loaded) = (None, Vec::new(), false);
        let mut browser = Self { child, input, output, session, sent: 0, complaints, is_loaded, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Log", "Runtime", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// The window, in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32, is_phone: bool) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// As a browser without JavaScript. What [`Self::evaluate`] runs is not the page's.
    pub(crate) fn forbid_scripts(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    }

    /// Sends a header with every request.
    pub(crate) fn send_header(&mut self, name: &str, value: &str) {
        self.call("Network.setExtraHTTPHeaders", &json!({ "headers": { name: value } }));
    }

    /// Opens a page and waits until it is whole.
    pub(crate) fn open(&mut self, url: &str) {
        self.is_loaded = false;
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        self.wait_for_load();
    }

    /// Does something that leads to another page, and waits until that is whole.
    pub(crate) fn follow(&mut self, expression: &str) {
        self.is_loaded = false;
        self.evaluate(expression);
        self.wait_for_load();
    }

    fn wait_for_load(&mut self) {
        while !self.is_loaded {
            let message = self.read();
            self.note(&message);
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }));
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text that a person reads.
    pub(crate) fn text(&mut self) -> String {
        self.evaluate("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// A picture of the whole page.
    pub(crate) fn picture(&mut self, path: &Path) {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        loop {
            let message = self.read();
            if message["id"] == self.sent {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.output.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    fn note(&mut self, event: &Value) {
        match event["method"].as_str() {
            Some("Page.loadEventFired") => self.is_loaded = true,
            Some("Log.entryAdded") => self.complaints.push(event["params"]["entry"].to_string()),
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled") => {
                self.complaints.push(event["params"].to_string())
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
