//! What every test of this folder does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::curl::{Answer, curl};
use crate::program::{self, RunningServer, peer, symseal};

/// A build-id for each release.
pub(crate) fn id(release: u8) -> String {
    format!("{release:02x}{}", "ab".repeat(19))
}

#[track_caller]
pub(crate) fn get(address: &str, path: &str) -> Answer {
    ask(address, path, &[])
}

#[track_caller]
pub(crate) fn ask(address: &str, path: &str, more: &[&str]) -> Answer {
    let url = format!("http://{address}{path}");
    curl(more.iter().copied().chain([url.as_str()])).expect("curl")
}

/// A request to which no answer may come, or one that no client keeps.
pub(crate) fn breaks(address: &str, path: &str) -> bool {
    let url = format!("http://{address}{path}");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--output", "/dev/null", "--max-time", "30", &url]);
    // The server closed the connection without an answer, or reset it.
    matches!(curl.status().unwrap().code(), Some(52 | 56))
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A server with these arguments, and this environment.
pub(crate) fn server(data: &Path, more: &[&str], environment: &[(&str, String)]) -> RunningServer {
    RunningServer::start_in(data, more, environment)
}

/// Builds a release and pushes it; its digest.
#[track_caller]
pub(crate) fn publish(root: &Path, address: &str, repository: &str, release: u8) -> String {
    let folder = root.join(format!("release-{release}"));
    std::fs::create_dir_all(&folder).unwrap();
    let flag = format!("-Wl,--build-id=0x{}", id(release));
    let source =
        format!("int f{release}(int x) {{ return x + {release}; }}\nint main(void) {{ return f{release}(0); }}\n");
    let binary = program::compile_c(&folder, "app", &source, &["-g", &flag]).expect("a compiler");
    let layout = folder.join("layout");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let version = release.to_string();
    symseal(["bundle", "build", &text(&binary), "--name", "app", "--version", &version, "--output", &text(&layout)])
        .ok();
    let reference = format!("{address}/{repository}:{version}");
    symseal(["bundle", "push", &text(&layout), &reference]).ok();
    let head = ask(address, &format!("/v2/{repository}/manifests/{version}"), &["--head"]);
    assert_eq!(head.status, 200, "{head:?}");
    head.header("docker-content-digest")[0].to_owned()
}

/// Bytes that do not repeat.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let hex: String = sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// oras, with nothing of this machine's set-up.
pub(crate) struct Oras {
    program: PathBuf,
    folder: PathBuf,
}

impl Oras {
    /// `None`, with a word about it, where there is none.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        Some(Self { program: peer("oras")?, folder: folder.to_owned() })
    }

    /// What it prints, if all goes well.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.env("HOME", &self.folder).env("DOCKER_CONFIG", &self.folder).current_dir(&self.folder);
        let output = command.args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("oras {arguments:?}: {}{}", text(&output.stdout), text(&output.stderr)))
        }
    }

    #[track_caller]
    pub(crate) fn push(&self, reference: &str, files: &[&str]) {
        self.run(&[&["push", "--plain-http", reference], files].concat()).unwrap();
    }
}
