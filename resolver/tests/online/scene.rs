//! A program, its debug file, and servers that have it: Debian's debuginfod, and some of the test's own.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use symseal_artifact::ObjectFile;
use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_module::{DebugId, Proof, ResolverStep, Rva};
use symseal_resolver::online::{Floor, OnlineConfig, OnlineServers};
use symseal_resolver::{Options, Resolver, Symbolized, Tried};

pub(crate) const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
static __attribute__((noinline)) int hidden(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return hidden(argc, &y); }
";

pub(crate) fn skip(tool: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool), "{tool}: not found, and it is required");
    eprintln!("SKIP {tool}: not found");
}

/// A stripped program, its debug file, and where `hidden` is.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) id: DebugId,
    pub(crate) rva: u64,
    pub(crate) debug: Vec<u8>,
}

impl Scene {
    pub(crate) fn new(flags: &[&str]) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("files")).unwrap();
        std::fs::write(root.path().join("app.c"), SOURCE).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let status = Command::new(program).args(arguments).current_dir(root.path()).status();
            let Ok(status) = status else { return skip(program) };
            assert!(status.success(), "{program} {arguments:?}");
        };
        run("gcc", &[&["-O2", "-g", "app.c", "-Wl,--build-id", "-o", "app"], flags].concat());
        let whole = std::fs::read(root.path().join("app")).ok()?;
        let object = ObjectFile::parse(&whole).unwrap();
        let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
        let hidden = stream.functions.iter().find(|function| stream.strings.get(function.name) == "hidden").unwrap();
        run("objcopy", &["--only-keep-debug", "app", "files/app.debug"]);
        run("objcopy", &["--strip-all", "app", "files/app"]);
        let debug = std::fs::read(root.path().join("files/app.debug")).ok()?;
        Some(Self { id: object.debug_id().unwrap().clone(), rva: hidden.start.0, debug, root })
    }

    pub(crate) fn path(&self) -> String {
        format!("/buildid/{}/debuginfo", self.id)
    }

    pub(crate) fn config(&self, urls: &[&str]) -> OnlineConfig {
        OnlineConfig {
            debuginfod: urls.iter().map(|url| (*url).to_owned()).collect(),
            symbol_servers: Vec::new(),
            headers: Vec::new(),
            cache: self.root.path().join("cache"),
            cache_bytes: 1 << 30,
            elfutils_cache: None,
            file_bytes: 64 << 20,
            file_time: None,
            connect: Duration::from_secs(2),
            silence: Duration::from_millis(1500),
            floor: Floor { bytes: 10_000, time: Duration::from_secs(2) },
        }
    }

    pub(crate) fn ask(&self, resolver: &Resolver) -> Symbolized {
        resolver.symbolize(&self.id, Rva(self.rva))
    }

    pub(crate) fn bundle(&self, proof: Proof) -> Resolver {
        let layout = LayoutDir::create(self.root.path().join("layout")).unwrap();
        let options = BuildOptions { name: "app".into(), version: "1".into(), progress: None };
        let built = SymbolBundleBuilder::new(options).add_path(self.root.path().join("files")).build(&layout).unwrap();
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        Resolver::new(Options { online: true, ..Options::default() }).with_bundle(bundle, proof)
    }
}

pub(crate) fn online(config: OnlineConfig) -> Resolver {
    let servers = OnlineServers::new(config).unwrap();
    Resolver::new(Options { online: true, ..Options::default() }).with_servers(Arc::new(servers))
}

/// For servers that answer, on a machine that has much to do.
pub(crate) fn patient(config: OnlineConfig) -> OnlineConfig {
    OnlineConfig { silence: Duration::from_secs(20), ..config }
}

pub(crate) fn step(found: &Symbolized) -> &Tried {
    found.tried.iter().find(|tried| tried.step == ResolverStep::Debuginfod).unwrap()
}

/// A server of the test's own.
pub(crate) struct Stub {
    pub(crate) url: String,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    /// `says` is given the head of the request and gives all that is sent.
    pub(crate) fn new(says: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::slow(move |head, stream| {
            let _ = stream.write_all(&says(head));
        })
    }

    pub(crate) fn slow(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, kept, answer) = (Arc::clone(&asked), Arc::clone(&heads), Arc::new(answer));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (counted, kept, answer) = (Arc::clone(&counted), Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    counted.fetch_add(1, Ordering::SeqCst);
                    kept.lock().unwrap().push(head.clone());
                    answer(&head, &mut stream);
                });
            }
        });
        Self { url, asked, heads }
    }

    /// 200 with these bytes for a path, 404 for others.
    pub(crate) fn gives(path: &str, bytes: Vec<u8>) -> Self {
        let wanted = format!("GET {path} ");
        Self::new(move |head| if head.starts_with(&wanted) { ok(&bytes) } else { status("404 Not Found") })
    }

    /// The same, each answer after a while.
    pub(crate) fn late(path: &str, bytes: Vec<u8>) -> Self {
        let wanted = format!("GET {path} ");
        Self::slow(move |head, stream| {
            std::thread::sleep(Duration::from_millis(300));
            let _ = stream.write_all(&if head.starts_with(&wanted) { ok(&bytes) } else { status("404 Not Found") });
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

pub(crate) fn ok(bytes: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
    [head.into_bytes(), bytes.to_vec()].concat()
}

pub(crate) fn status(line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Debian's debuginfod over a folder, which ends with the test.
pub(crate) struct Debuginfod(Child, pub(crate) String);

impl Debuginfod {
    pub(crate) fn start(scene: &Scene) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("debuginfod")
            .args(["-F", "-p", &port.to_string(), "-d", ":memory:", "-L"])
            .arg(scene.root.path().join("files"))
            .env_remove("DEBUGINFOD_URLS")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            skip("debuginfod-find");
            return None;
        };
        let this = Self(child, format!("http://127.0.0.1:{port}"));
        let began = Instant::now();
        // It has read the folder when it gives the file.
        while began.elapsed() < Duration::from_secs(30) {
            let asked = TcpStream::connect(("127.0.0.1", port)).ok().and_then(|mut stream| {
                let request = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", scene.path());
                stream.write_all(request.as_bytes()).ok()?;
                let mut head = [0; 15];
                stream.read_exact(&mut head).ok()?;
                Some(head.ends_with(b"200 OK"))
            });
            if asked == Some(true) {
                return Some(this);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("debuginfod did not index the folder");
    }
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
