//! A sealed release on a server, and gateways in front of it.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::{self, Ran, RunningServer, symseal};

/// Bytes of a page of debug files.
pub(crate) const PAGE: usize = 64 << 10;

/// A program of many functions, so that its debug file has several pages.
fn source() -> String {
    let mut text = String::new();
    for n in 0..3000 {
        writeln!(text, "int a_function_with_a_long_name_{n}(int x) {{ return x + {n}; }}").unwrap();
    }
    text.push_str("int main(int argc, char **argv) { (void)argv; return a_function_with_a_long_name_17(argc); }\n");
    text
}

/// Keys, a log, a trust directory, a release sealed with them, and a server that has it as `team/app:1.0`.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) server: RunningServer,
    pub(crate) build_id: String,
    pub(crate) stripped: PathBuf,
    pub(crate) debug: PathBuf,
}

impl Scene {
    /// `None`, with a word about it, where a tool is missing.
    pub(crate) fn new() -> Option<Self> {
        program::tool("curl")?;
        let objcopy = program::tool("objcopy")?;
        let root = tempfile::tempdir().unwrap();
        let inputs = root.path().join("inputs");
        std::fs::create_dir_all(inputs.join("stripped")).unwrap();
        let whole = program::compile_c(&inputs, "app", &source(), &["-g", "-O0", "-Wl,--build-id"])?;
        let (stripped, debug) = (inputs.join("stripped/app"), inputs.join("app.debug"));
        for (option, to) in [("--only-keep-debug", &debug), ("--strip-all", &stripped)] {
            assert!(Command::new(&objcopy).arg(option).arg(&whole).arg(to).status().unwrap().success());
        }
        assert!(std::fs::metadata(&debug).unwrap().len() > 3 * PAGE as u64, "the debug file has several pages");
        let server = RunningServer::start(&root.path().join("data"));
        let mut scene = Self { server, root, build_id: String::new(), stripped, debug };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        let key = scene.at("keys/artifact.pub.pem");
        symseal([
            "trust",
            "init",
            "--trust",
            &scene.at("trust"),
            "--key",
            &key,
            "--name",
            "app*",
            "--log",
            &scene.at("log"),
        ])
        .ok();
        let inputs = [scene.stripped.display().to_string(), scene.debug.display().to_string()];
        scene.build("layout", &inputs, &["--sources", &scene.at("inputs")]);
        let index: Value = symseal(["bundle", "inspect", &scene.at("layout"), "--json"]).ok().json();
        scene.build_id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
        scene.seal("layout", "keys").ok();
        let reference = scene.reference("team/app:1.0");
        symseal(["bundle", "push", &scene.at("layout"), &reference, "--with-sources"]).ok();
        Some(scene)
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    pub(crate) fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.server.address)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    pub(crate) fn build(&self, layout: &str, inputs: &[String], more: &[&str]) {
        let (name, layout) = (["--name", "app", "--version", "1.0", "--output"], self.at(layout));
        let inputs = inputs.iter().map(String::as_str);
        symseal(
            ["bundle", "build"]
                .into_iter()
                .chain(inputs)
                .chain(name)
                .chain([layout.as_str()])
                .chain(more.iter().copied()),
        )
        .ok();
    }

    pub(crate) fn seal(&self, layout: &str, keys: &str) -> Ran {
        let key = self.at(&format!("{keys}/artifact.key.pem"));
        let log_key = self.at("keys/log.key.pem");
        symseal(["bundle", "seal", &self.at(layout), "--key", &key, "--log", &self.at("log"), "--log-key", &log_key])
    }

    /// Changes one byte of a file in the server's store, as a thief on its machine could.
    pub(crate) fn swap(&self, file: &Path, at: usize) {
        let mut bytes = std::fs::read(file).unwrap();
        let digest = symseal_bundle::Digest::of(&bytes).hex();
        let stored = find(&self.root.path().join("data/blobs"), &digest).expect("the server has it");
        bytes[at] ^= 1;
        std::fs::write(stored, bytes).unwrap();
    }

    /// The image index of what a reference names, as its registry has it.
    pub(crate) fn manifest(&self, path: &str) -> Vec<u8> {
        let url = format!("{}/v2/{path}", self.url());
        let accepted = "Accept: application/vnd.oci.image.index.v1+json";
        Command::new("curl").args(["-sf", "--header", accepted, &url]).output().unwrap().stdout
    }

    /// Revokes the key that sealed the release.
    pub(crate) fn revoke(&self) {
        let trust = self.at("trust");
        let shown = symseal(["trust", "show", "--trust", &trust, "--json"]).ok().json();
        let key = shown["keys"][0]["key_id"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned();
        let root = self.at("keys/root.key.pem");
        let of_whom = ["--trust", &trust, "--root-key", &root, "--key-id", &key, "--reason", "stolen"];
        symseal(["trust", "revoke"].into_iter().chain(of_whom)).ok();
    }

    pub(crate) fn debuginfo_path(&self) -> String {
        format!("/buildid/{}/debuginfo", self.build_id)
    }

    /// gdb on the stripped program, asking `url`; what it prints.
    pub(crate) fn gdb(&self, url: &str, cache: &str) -> Option<String> {
        let gdb = program::tool("gdb")?;
        let output = Command::new(gdb)
            .env("DEBUGINFOD_URLS", url)
            .env("DEBUGINFOD_CACHE_PATH", self.at(cache))
            .env("HOME", self.root.path())
            .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled on"])
            .args(["-ex", "info line a_function_with_a_long_name_17"])
            .arg(&self.stripped)
            .output()
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Scene {
    /// lldb on the stripped program, set up as `symseal setup lldb` says for `url`; what it prints.
    pub(crate) fn lldb(&self, url: &str, cache: &str) -> Option<String> {
        let lldb = program::any_tool(program::LLDB)?;
        let init = self.at(&format!("{cache}.lldbinit"));
        std::fs::write(&init, symseal(["setup", "lldb", "--server", url]).ok().stdout).unwrap();
        let output = Command::new(lldb)
            .env_remove("DEBUGINFOD_URLS")
            .env("HOME", self.root.path())
            .args(["--no-lldbinit", "--batch", "--source", &init, "-o"])
            .arg(format!("settings set plugin.symbol-locator.debuginfod.cache-path {}", self.at(cache)))
            .args(["-o", &format!("target create {}", self.stripped.display())])
            .args(["-o", "image lookup -v -n a_function_with_a_long_name_17"])
            .output()
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => find(&entry.path(), name),
        _ => (entry.file_name() == name).then(|| entry.path()),
    })
}

/// A gateway on a free port, ended with the value.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) url: String,
}

impl Gateway {
    /// In front of `upstreams`, by the scene's trust directory; `state` is a folder of the scene.
    pub(crate) fn start(scene: &Scene, state: &str, upstreams: &[&str], more: &[&str]) -> Self {
        let mut command = program::command("symseal");
        command.args([
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--trust",
            &scene.at("trust"),
            "--state",
            &scene.at(state),
        ]);
        for upstream in upstreams {
            command.args(["--upstream", upstream]);
        }
        let mut child = command.args(more).env("SYMSEAL_LOG", "error").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url =
            lines.next().and_then(|line| Some(line.strip_prefix("gateway on ")?.to_owned())).expect("its address");
        assert_eq!(lines.next(), Some(format!("gdb, lldb:  DEBUGINFOD_URLS={url}")));
        assert_eq!(lines.next(), Some(format!("WinDbg:     _NT_SYMBOL_PATH=srv*C:\\symbols*{url}/symbols")));
        assert_eq!(lines.next(), Some(format!("status:     {url}/")));
        Self { child, url }
    }

    /// GET by curl: its exit status, the HTTP status, the headers and the body.
    pub(crate) fn get(&self, path: &str, more: &[&str]) -> Got {
        let folder = tempfile::tempdir().unwrap();
        let (head, body) = (folder.path().join("head"), folder.path().join("body"));
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--path-as-is", "--write-out", "%{http_code}", "--dump-header"])
            .arg(&head)
            .arg("--output")
            .arg(&body)
            .args(more)
            .arg(format!("{}{path}", self.url))
            .output()
            .unwrap();
        Got {
            exit: output.status.code().unwrap_or(-1),
            status: String::from_utf8_lossy(&output.stdout).parse().unwrap_or(0),
            head: std::fs::read_to_string(head).unwrap_or_default().to_lowercase(),
            body: std::fs::read(body).unwrap_or_default(),
        }
    }

    /// Asks until the answer has this status; the answer.
    #[track_caller]
    pub(crate) fn get_until(&self, path: &str, status: u16) -> Got {
        let began = std::time::Instant::now();
        loop {
            let got = self.get(path, &[]);
            if got.status == status {
                return got;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "no {status} in time: {} {}", got.status, got.head);
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Asks until the answer is 404 with this reason.
    #[track_caller]
    pub(crate) fn refuses_until(&self, path: &str, code: &str) {
        let began = std::time::Instant::now();
        let header = format!("x-symseal-refused: {code}\r\n");
        while !self.get(path, &[]).head.contains(&header) && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(250));
        }
        self.get(path, &[]).is_refused(code);
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.get("/status.json", &[]).body).unwrap()
    }

    /// The newest refusal of something that was offered.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str) -> Value {
        let status = self.status();
        let refused = status["refused"].as_array().unwrap().iter().find(|refusal| refusal["code"] == code).cloned();
        refused.unwrap_or_else(|| panic!("no refusal {code}: {status:#}"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) exit: i32,
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    /// Fails unless it is 404 with this reason in header and body.
    #[track_caller]
    pub(crate) fn is_refused(&self, code: &str) {
        assert_eq!(self.status, 404, "{}", self.head);
        assert!(self.head.contains(&format!("x-symseal-refused: {code}\r\n")), "{}", self.head);
        let text = String::from_utf8_lossy(&self.body).into_owned();
        assert!(text.starts_with(&format!("refused ({code}): ")), "{text}");
    }
}
