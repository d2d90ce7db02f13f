//! The real Rekor v2: the file-backed server of rekor-tiles, with a static server over its directory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symseal_seal::trust::policy::PolicyLogDocument;
use symseal_seal::trust::trusted_root;
use symseal_seal::{LogIdentity, Trust};
use symseal_sealer::{LogKey, RekorLog, RekorVersion};

use super::{NOW, World, have, with_policy};

/// A running server; stopped when dropped.
pub struct Rekor {
    pub directory: PathBuf,
    pub identity: LogIdentity,
    pub url: String,
    child: Child,
}

/// A peer that `tests/peers` builds, or one on the PATH.
pub fn peer(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache =
        std::env::var_os("SYMSEAL_PEERS").map(PathBuf::from).or_else(|| Some(home?.join(".cache/symseal/peers")));
    let built = cache.map(|cache| cache.join("bin").join(name)).filter(|path| path.is_file());
    let program = built.unwrap_or_else(|| PathBuf::from(name));
    have(program.to_str()?, "--help").then_some(program)
}

pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Rekor {
    /// `None`, with a word about it, where the server is not to be had.
    pub fn start(directory: &Path, options: &[&str]) -> Option<Self> {
        let program = peer("rekor-posix")?;
        let key_file = directory.join("rekor-log.pem");
        let key =
            if key_file.exists() { LogKey::load_pem(&key_file) } else { LogKey::generate_file(&key_file) }.unwrap();
        let identity = key.identity(&"rekor-local".parse().unwrap()).unwrap();
        let storage = directory.join("rekor-storage");
        std::fs::create_dir_all(&storage).unwrap();
        // Another process may take a port between looking for it and using it.
        for _ in 0..5 {
            let ports = [free_port(), free_port(), free_port()];
            let child = Command::new(&program)
                .args(["serve", "--hostname=rekor-local", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"])
                .arg(format!("--http-port={}", ports[0]))
                .arg(format!("--grpc-port={}", ports[1]))
                .arg(format!("--http-metrics-port={}", ports[2]))
                .arg(format!("--storage-dir={}", storage.display()))
                .arg(format!("--signer-filepath={}", key_file.display()))
                .args(options)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let url = format!("http://127.0.0.1:{}", ports[0]);
            let mut rekor = Self { directory: storage.clone(), identity: identity.clone(), url, child };
            if rekor.is_ready() {
                return Some(rekor);
            }
        }
        panic!("rekor-posix did not start");
    }

    fn is_ready(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if get(&format!("{}/healthz", self.url)).is_some_and(|answer| answer.contains("SERVING")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// A client that knows the log's key.
    pub fn client(&self) -> RekorLog {
        RekorLog::new(&self.url, Some(RekorVersion::V2), vec![self.identity.clone()]).unwrap()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The world's policy with this log instead of its own.
    pub fn trust(&self, world: &World) -> Trust {
        let document = PolicyLogDocument::new(&self.identity, "a Rekor v2", Some(NOW));
        with_policy(world, |policy| policy.logs = vec![document], std::slice::from_ref(&self.identity)).unwrap()
    }
}

impl Drop for Rekor {
    fn drop(&mut self) {
        self.kill();
    }
}

fn get(url: &str) -> Option<String> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).ok()?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A server on a thread of its own that answers each request by `answer`, given method and path. It ends with the test.
pub fn serve(answer: impl Fn(&str, &str, &mut TcpStream) + Send + Sync + 'static) -> String {
    serve_bodies(move |method, path, _, stream| answer(method, path, stream))
}

/// [`serve`], given the request's body too.
pub fn serve_bodies(answer: impl Fn(&str, &str, &[u8], &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), answer) = (stream, answer.clone()) else { continue };
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).ok()?;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).ok()?;
                    let line = line.trim().to_ascii_lowercase();
                    if line.is_empty() {
                        break;
                    }
                    length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).ok()?;
                let mut words = first.split(' ');
                answer(words.next()?, words.next()?, &body, &mut stream);
                Some(())
            });
        }
    });
    format!("http://{address}")
}

pub fn reply(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// A static file server over a directory.
pub fn serve_files(directory: PathBuf) -> String {
    serve(move |_, path, stream| match std::fs::read(directory.join(path.trim_start_matches('/'))) {
        Ok(bytes) => reply(stream, 200, "", &bytes),
        Err(_) => reply(stream, 404, "", b""),
    })
}

/// What cosign says of a seal of the world's artifact key, offline, with this log as the only one; `None`, with a word about
/// it, where cosign is not to be had.
pub fn cosign_accepts(world: &World, log: &LogIdentity, seal: &[u8]) -> Option<bool> {
    let cosign = peer("cosign")?;
    let trusted = trusted_root::TrustedLog {
        host: log.origin.name().to_owned(),
        id: log.id(),
        key: log.key.clone(),
        validity: (NOW, None),
    };
    std::fs::write(world.path("cosign-root.json"), trusted_root::write(&[trusted])).unwrap();
    std::fs::write(world.path("cosign-seal.json"), seal).unwrap();
    std::fs::write(world.path("cosign-key.pub"), world.artifact.public().to_pem()).unwrap();
    let output = Command::new(cosign)
        // Nothing of this machine's Sigstore set-up, and no network, may matter.
        .env("HOME", world.directory.path())
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .current_dir(world.directory.path())
        .args(["verify-blob-attestation", "--bundle", "cosign-seal.json", "--key", "cosign-key.pub"])
        .args(["--trusted-root", "cosign-root.json", "--type", symseal_seal::PREDICATE_TYPE])
        .args(["--digest", &symseal_seal::encoding::to_hex(&super::BUNDLE), "--digestAlg", "sha256"])
        .output()
        .unwrap();
    println!("cosign: {}", String::from_utf8_lossy(&output.stderr).trim());
    Some(output.status.success())
}
