//! A headless Chromium, driven by its own protocol over two pipes.

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// Nothing that a page is asked for takes longer, on a busy machine too.
const DEADLINE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    n_calls: u64,
    session: Option<String>,
    /// What the page said or asked for, of which it should do neither: console, exceptions, requests.
    pub(crate) heard: Vec<String>,
    profile: tempdir::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts it; why not, if this computer has none.
    pub(crate) fn start() -> Result<Self, String> {
        let path =
            ["/usr/bin/chromium", "/usr/bin/google-chrome"].into_iter().find(|path| Path::new(path).exists());
        let path = path.ok_or("chromium is not installed (Debian package chromium)")?;
        let profile = tempdir::TempDir::new();
        // The browser reads descriptor 3 and writes 4. As root it has no sandbox, and it only sees our page.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", path])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-extensions",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .args(["--force-color-profile=srgb", "--touch-events=enabled", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{path}: {error}"))?;
        let to = child.stdin.take().expect("piped");
        let mut reader = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, from) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).expect("the browser writes JSON");
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self { child, to, from, n_calls: 0, session: None, heard: Vec::new(), profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let page =
            targets["targetInfos"].as_array().unwrap().iter().find(|t| t["type"] == "page").expect("a page");
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_string());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Ok(browser)
    }

    /// A call of the protocol, and its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.n_calls += 1;
        let mut call = json!({ "id": self.n_calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        let mut text = call.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).expect("the browser reads");
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == self.n_calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.listen(&message);
        }
    }

    fn listen(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" => self.heard.push(format!("console: {}", params["args"])),
            "Runtime.exceptionThrown" => {
                self.heard.push(format!("exception: {}", params["exceptionDetails"]))
            }
            "Log.entryAdded" => self.heard.push(format!("log: {}", params["entry"]["text"])),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                // The page itself, and its icon, which is empty and in it.
                if !url.starts_with("file:") && !url.starts_with("data:") {
                    self.heard.push(format!("request: {url}"));
                }
            }
            _ => (),
        }
    }

    /// Opens the page, at a place in it.
    pub(crate) fn open(&mut self, page: &str, place: &str) {
        let path = self.profile.path().join("notes.html");
        std::fs::write(&path, page).unwrap();
        // Another query, another page: with another hash alone the old one would stay.
        let url = format!("file://{}?{}#{place}", path.display(), self.n_calls);
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.readyState === 'complete' && document.querySelector('#nav a') !== null");
    }

    /// What an expression is.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The text of the element that a selector names.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({selector:?})?.innerText"));
        text.as_str().unwrap_or_else(|| panic!("no {selector}")).to_string()
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&mut self, condition: &str) {
        let end = Instant::now() + DEADLINE;
        while self.eval(condition) != true {
            assert!(Instant::now() < end, "never: {condition}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The middle of an element, scrolled into sight.
    fn middle(&mut self, selector: &str) -> (f64, f64) {
        let at = self.eval(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }});
               const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        (at[0].as_f64().unwrap_or_else(|| panic!("no {selector}")), at[1].as_f64().unwrap())
    }

    /// Moves the pointer onto an element.
    pub(crate) fn hover(&mut self, selector: &str) {
        let (x, y) = self.middle(selector);
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// Touches an element with a finger.
    pub(crate) fn tap(&mut self, selector: &str) {
        let (x, y) = self.middle(selector);
        let points = json!([{ "x": x, "y": y }]);
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchStart", "touchPoints": points }));
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchEnd", "touchPoints": [] }));
    }

    /// Presses a key that has no character, or one that has.
    pub(crate) fn key(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key, "code": key });
        if key == "Enter" {
            down["text"] = "\r".into();
        } else if key.chars().count() == 1 {
            down["text"] = key.into();
        }
        down["windowsVirtualKeyCode"] = match key {
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "Home" => 36,
            "End" => 35,
            _ => 0,
        }
        .into();
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "code": key }));
    }

    /// Inserts text where the focus is, as a paste does.
    pub(crate) fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the window's size and whether it is a phone's.
    pub(crate) fn size(&mut self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", params);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": phone }));
    }

    /// Says which colours the user prefers.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Writes what is seen to a file, where `MLX5_SCREENSHOTS` names a folder.
    pub(crate) fn screenshot(&mut self, name: &str) {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let Some(dir) = std::env::var_os("MLX5_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let png = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&dir).join(name), png).unwrap();
    }
}

/// A folder that goes with its owner.
mod tempdir {
    use std::path::{Path, PathBuf};

    pub(super) struct TempDir(PathBuf);

    impl TempDir {
        pub(super) fn new() -> Self {
            let path = std::env::temp_dir().join(format!("mlx5-notes-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(super) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            // The browser's last process may still write into it; it is a folder of /tmp.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
