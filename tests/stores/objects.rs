//! A versitygw of the test's own: S3 over a folder, on a free loopback port.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::peer;

const BUCKET: &str = "symbols";
const KEY: &str = "symseal-test";
pub(crate) const SECRET: &str = "hunter2-of-the-store";

pub(crate) struct ObjectServer {
    program: PathBuf,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    server: Option<Child>,
    /// What it asks for.
    pub(crate) secret: &'static str,
    /// Its certificate and key, where it is reached by TLS.
    tls: Option<(PathBuf, PathBuf)>,
}

/// A port that nobody uses now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until something listens.
pub(crate) fn wait_for_port(port: u16) {
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl ObjectServer {
    /// `None`, with a word about it, where there is no versitygw.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// The same, with a certificate and its key.
    pub(crate) fn start_with(tls: Option<(PathBuf, PathBuf)>) -> Option<Self> {
        let program = peer("versitygw")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("data").join(BUCKET)).unwrap();
        std::fs::create_dir(folder.path().join("sidecar")).unwrap();
        let mut started = Self { program, folder, port: free_port(), server: None, secret: SECRET, tls };
        started.start_again();
        Some(started)
    }

    pub(crate) fn start_again(&mut self) {
        let mut server = Command::new(&self.program);
        server
            .args(["--access", KEY, "--secret", self.secret, "--quiet", "--port"])
            .arg(format!("127.0.0.1:{}", self.port));
        if let Some((certificate, key)) = &self.tls {
            server.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        server
            .args(["posix", "--sidecar"])
            .arg(self.folder.path().join("sidecar"))
            .arg(self.folder.path().join("data"));
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(server.spawn().unwrap());
        wait_for_port(self.port);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Stops it in its work, or lets it go on.
    pub(crate) fn hang(&self, hangs: bool) {
        let signal = if hangs { "-STOP" } else { "-CONT" };
        let id = self.server.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// What `symseal serve --blobs` takes.
    pub(crate) fn url(&self) -> String {
        format!("s3://{BUCKET}/team/one")
    }

    /// What the environment says of it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        Self::environment_at(self.port)
    }

    /// [`Self::environment`] for those who come through a gate.
    pub(crate) fn environment_at(port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    /// The file of an object.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join("data").join(BUCKET).join("team/one").join(key)
    }

    /// The object of a blob.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        self.file(&format!("blobs/sha256/{}/{hex}", &hex[..2]))
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Bytes of the files below a folder.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
