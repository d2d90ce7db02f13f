//! Servers over HTTP: Debian's debuginfod, and servers that do what no server should.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_module::{DebugId, MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_resolver::online::{Floor, Lock, LockMode, OnlineConfig, OnlineServers};
use symseal_resolver::{DigestOf, Options, Outcome, Resolver, Symbolized, Tried};

const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
static __attribute__((noinline)) int hidden(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return hidden(argc, &y); }
";

fn skip(tool: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool), "{tool}: not found, and it is required");
    eprintln!("SKIP {tool}: not found");
}

/// A stripped program, its debug file, and where `hidden` is.
struct Scene {
    root: tempfile::TempDir,
    id: DebugId,
    rva: u64,
    debug: Vec<u8>,
}

impl Scene {
    fn new(flags: &[&str]) -> Option<Self> {
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

    fn path(&self) -> String {
        format!("/buildid/{}/debuginfo", self.id)
    }

    fn config(&self, urls: &[&str]) -> OnlineConfig {
        OnlineConfig {
            debuginfod: urls.iter().map(|url| (*url).to_owned()).collect(),
            symbol_servers: Vec::new(),
            headers: Vec::new(),
            cache: self.root.path().join("cache"),
            cache_bytes: 1 << 30,
            elfutils_cache: None,
            file_bytes: 64 << 20,
            connect: Duration::from_secs(2),
            silence: Duration::from_millis(1500),
            floor: Floor { bytes: 10_000, time: Duration::from_secs(2) },
        }
    }

    fn ask(&self, resolver: &Resolver) -> Symbolized {
        resolver.symbolize(&self.id, Rva(self.rva))
    }

    fn bundle(&self, proof: Proof) -> Resolver {
        let layout = LayoutDir::create(self.root.path().join("layout")).unwrap();
        let options = BuildOptions { name: "app".into(), version: "1".into(), progress: None };
        let built = SymbolBundleBuilder::new(options).add_path(self.root.path().join("files")).build(&layout).unwrap();
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        Resolver::new(Options { online: true, ..Options::default() }).with_bundle(bundle, proof)
    }
}

fn online(config: OnlineConfig) -> Resolver {
    let servers = OnlineServers::new(config).unwrap();
    Resolver::new(Options { online: true, ..Options::default() }).with_servers(Arc::new(servers))
}

/// For servers that answer, on a machine that has much to do.
fn patient(config: OnlineConfig) -> OnlineConfig {
    OnlineConfig { silence: Duration::from_secs(20), ..config }
}

fn step(found: &Symbolized) -> &Tried {
    found.tried.iter().find(|tried| tried.step == ResolverStep::Debuginfod).unwrap()
}

/// A server of the test's own.
struct Stub {
    url: String,
    asked: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    /// `says` is given the head of the request and gives all that is sent.
    fn new(says: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::slow(move |head, stream| {
            let _ = stream.write_all(&says(head));
        })
    }

    fn slow(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
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
    fn gives(path: &str, bytes: Vec<u8>) -> Self {
        let wanted = format!("GET {path} ");
        Self::new(move |head| if head.starts_with(&wanted) { ok(&bytes) } else { status("404 Not Found") })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn ok(bytes: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
    [head.into_bytes(), bytes.to_vec()].concat()
}

fn status(line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Debian's debuginfod over a folder, which ends with the test.
struct Debuginfod(Child, String);

impl Debuginfod {
    fn start(scene: &Scene) -> Option<Self> {
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

#[test]
fn debuginfod_answers_and_the_cache_afterwards() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Some(server) = Debuginfod::start(&scene) else { return };
    let found = scene.ask(&online(scene.config(&[&server.1])));
    assert_eq!(
        (found.resolver, found.quality, found.proof),
        (ResolverStep::Debuginfod, Quality::Full, Proof::None),
        "{found:#?}"
    );
    let names: Vec<_> = found.frames.iter().map(|frame| frame.function.as_deref().unwrap()).collect();
    assert!(names.contains(&"hidden"), "{names:?}");
    assert_eq!(
        found.digests.iter().map(|it| (it.of, it.digest)).collect::<Vec<_>>(),
        [(DigestOf::DebugFile, Digest::of(&scene.debug))]
    );
    assert!(step(&found).detail.contains(&server.1));
    drop(server);
    // From the disk, by another run.
    let again = scene.ask(&online(scene.config(&["http://127.0.0.1:1"])));
    assert_eq!(again.frames, found.frames);
    // A file of the cache that somebody changed is fetched again, and from nobody not at all.
    let kept = scene.root.path().join("cache/files/debug-file").join(scene.id.to_string());
    std::fs::write(&kept, b"swapped").unwrap();
    let lost = scene.ask(&online(scene.config(&["http://127.0.0.1:1"])));
    assert_eq!((step(&lost).outcome, lost.frames.len()), (Outcome::Miss(MissReason::ServerError), 0), "{lost:#?}");
}

#[test]
fn nothing_is_asked_that_was_not_allowed_or_is_nobodys() {
    let Some(scene) = Scene::new(&[]) else { return };
    let stub = Stub::gives(&scene.path(), scene.debug.clone());
    let servers = Arc::new(OnlineServers::new(scene.config(&[&stub.url])).unwrap());
    let offline = scene.ask(&Resolver::new(Options::default()).with_servers(servers));
    assert_eq!((step(&offline).outcome, stub.asked()), (Outcome::Skipped(MissReason::Offline), 0));
    let nobody = scene.ask(&Resolver::new(Options { online: true, ..Options::default() }));
    assert_eq!(step(&nobody).outcome, Outcome::Skipped(MissReason::Unsupported));
    assert!(step(&nobody).detail.contains("DEBUGINFOD_URLS"));
}

#[test]
fn a_bundle_outranks_the_network() {
    let (Some(scene), Some(other)) = (Scene::new(&[]), Scene::new(&["-DOTHER"])) else { return };
    let servers = |bytes: Vec<u8>, cache: &str| {
        let stub = Stub::gives(&scene.path(), bytes);
        let config = OnlineConfig { cache: scene.root.path().join(cache), ..scene.config(&[&stub.url]) };
        Arc::new(OnlineServers::new(config).unwrap())
    };
    // The same bytes: the server answers, and the seal speaks for what it gave.
    let sealed = scene.bundle(Proof::Sealed).with_servers(servers(scene.debug.clone(), "same"));
    let found = scene.ask(&sealed);
    assert_eq!((found.resolver, found.proof), (ResolverStep::Debuginfod, Proof::Sealed), "{found:#?}");
    let of: Vec<_> = found.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::Bundle, DigestOf::SymbolIndex, DigestOf::DebugFile]);
    // The right id with other bytes: a name was changed in it.
    let mut swapped = scene.debug.clone();
    let at = swapped.windows(7).position(|window| window == b"hidden\0").expect("the name");
    swapped[at] = b'H';
    let sealed = scene.bundle(Proof::Sealed).with_servers(servers(swapped.clone(), "swapped"));
    let found = scene.ask(&sealed);
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::DigestMismatch), "{found:#?}");
    assert_eq!((found.resolver, found.proof), (ResolverStep::LocalBundle, Proof::Sealed));
    assert!(found.frames.iter().any(|frame| frame.function.as_deref() == Some("hidden")));
    // Where no bundle covers the module nobody can tell.
    let stub = Stub::gives(&scene.path(), swapped);
    let config = OnlineConfig { cache: scene.root.path().join("alone"), ..scene.config(&[&stub.url]) };
    assert_eq!(scene.ask(&online(config)).proof, Proof::None);
    drop(other);
}

#[test]
fn hostile_servers_end_in_a_reason_and_the_next_one_is_asked() {
    let (Some(scene), Some(other)) = (Scene::new(&[]), Scene::new(&["-O1"])) else { return };
    let honest = Stub::gives(&scene.path(), scene.debug.clone());
    let debug = scene.debug.clone();
    let longer = scene.debug.len() + 1000;
    let hostile: Vec<(&str, Stub, MissReason)> = vec![
        ("another module's file", Stub::gives(&scene.path(), other.debug.clone()), MissReason::DebugIdMismatch),
        ("junk", Stub::gives(&scene.path(), b"<html>".to_vec()), MissReason::Malformed),
        ("nothing", Stub::gives(&scene.path(), Vec::new()), MissReason::Malformed),
        ("a half", Stub::gives(&scene.path(), scene.debug[..scene.debug.len() / 2].to_vec()), MissReason::Malformed),
        ("500", Stub::new(|_| status("500 Internal Server Error")), MissReason::ServerError),
        ("429", Stub::new(|_| status("429 Too Many Requests")), MissReason::ServerError),
        ("no HTTP", Stub::new(|_| b"SSH-2.0-OpenSSH\r\n".to_vec()), MissReason::ServerError),
        (
            "a lie about its length",
            Stub::new(move |_| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {longer}\r\nConnection: close\r\n\r\n");
                [head.into_bytes(), debug.clone()].concat()
            }),
            MissReason::ServerError,
        ),
        (
            "redirections without end",
            Stub::new(|_| {
                b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
            }),
            MissReason::ServerError,
        ),
        (
            "no end",
            Stub::slow(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[7; 64 << 10]).is_ok() {}
            }),
            MissReason::ServerError,
        ),
        ("silence", Stub::slow(|_, _| std::thread::sleep(Duration::from_secs(20))), MissReason::ServerError),
        (
            "silence within",
            Stub::slow(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n0123");
                std::thread::sleep(Duration::from_secs(20));
            }),
            MissReason::ServerError,
        ),
        (
            "a trickle",
            Stub::slow(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                while stream.write_all(&[7; 10]).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }),
            MissReason::ServerError,
        ),
    ];
    for (at, (what, stub, reason)) in hostile.iter().enumerate() {
        let cache = |name: &str| scene.root.path().join(format!("cache-{at}-{name}"));
        let config =
            |name: &str, urls: &[&str]| OnlineConfig { cache: cache(name), file_bytes: 1 << 20, ..scene.config(urls) };
        let alone = scene.ask(&online(config("alone", &[&stub.url])));
        assert_eq!(step(&alone).outcome, Outcome::Miss(*reason), "{what}: {:?}", step(&alone));
        assert!(alone.frames.is_empty(), "{what}");
        let both = scene.ask(&online(config("both", &[&stub.url, &honest.url])));
        assert_eq!((both.resolver, both.quality), (ResolverStep::Debuginfod, Quality::Full), "{what}: {both:#?}");
        // Nothing of it is kept under a name.
        let kept: Vec<_> = std::fs::read_dir(cache("alone").join("files/debug-file")).unwrap().flatten().collect();
        assert!(kept.is_empty(), "{what}: {kept:?}");
    }
}

#[test]
fn a_dead_server_costs_one_time_out_and_not_one_a_module() {
    let Some(scene) = Scene::new(&[]) else { return };
    let silent = Stub::slow(|_, _| std::thread::sleep(Duration::from_secs(30)));
    let silent_within = Stub::slow(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n0123");
        std::thread::sleep(Duration::from_secs(30));
    });
    for server in [&silent, &silent_within] {
        let resolver = online(scene.config(&[&server.url]));
        let began = Instant::now();
        for n in 0..50_u8 {
            let id: DebugId = format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap();
            assert!(resolver.symbolize(&id, Rva(0)).frames.is_empty());
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(server.asked(), 1);
    }
    // Nor does it cost one a process that shares the cache.
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert!(scene.ask(&online(scene.config(&[&silent.url]))).frames.is_empty()));
        }
    });
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[test]
fn the_files_of_many_modules_are_fetched_beside_each_other() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (path, debug) = (scene.path(), scene.debug.clone());
    let slow = Stub::slow(move |head, stream| {
        std::thread::sleep(Duration::from_millis(300));
        let has_it = head.starts_with(&format!("GET {path} "));
        let _ = stream.write_all(&if has_it { ok(&debug) } else { status("404 Not Found") });
    });
    let ids = (0..23_u8).map(|n| format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap()).chain([scene.id.clone()]);
    let modules = (1..).zip(ids).map(|(at, id)| symseal_module::MappedModule {
        path: format!("/lib/{at}.so"),
        debug_id: Some(id),
        start: symseal_module::Avma(at << 24),
        end: symseal_module::Avma((at + 1) << 24),
        bias: at << 24,
        image_base: symseal_module::Svma(0),
    });
    let map = symseal_module::ModuleMap::new(modules.collect());
    let resolver = online(patient(scene.config(&[&slow.url])));
    let began = Instant::now();
    resolver.open_modules(&map);
    let opened = began.elapsed();
    let asked = slow.asked();
    // One after the other the answers take 24 times 0.3 s, and for all but one of them again for the program.
    assert!(asked >= 24 && opened < Duration::from_millis(300) * asked as u32 / 3, "{asked} in {opened:?}");
    for module in map.modules() {
        let ip = symseal_module::Avma(module.bias + scene.rva);
        let frame = resolver.resolve(&map, ip, true, symseal_module::UnwindMethod::Context);
        let is_there = module.debug_id.as_ref() == Some(&scene.id);
        assert_eq!(frame.quality == Quality::Full, is_there, "{frame:#?}");
    }
    assert_eq!(slow.asked(), asked, "each was asked for once");
}

#[test]
fn what_many_ask_for_at_once_is_fetched_once() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (path, debug) = (scene.path(), scene.debug.clone());
    let slow = Stub::slow(move |head, stream| {
        std::thread::sleep(Duration::from_millis(300));
        let has_it = head.starts_with(&format!("GET {path} "));
        let _ = stream.write_all(&if has_it { ok(&debug) } else { status("404 Not Found") });
    });
    let absent: DebugId = "cd".repeat(20).parse().unwrap();
    // As processes do that share the cache and nothing else.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let resolver = online(patient(scene.config(&[&slow.url])));
                assert_eq!(scene.ask(&resolver).quality, Quality::Full);
                assert!(resolver.symbolize(&absent, Rva(0)).frames.is_empty());
            });
        }
    });
    // The file; and debug file and program of what nobody has.
    assert_eq!(slow.asked(), 3);
    let left: Vec<_> = std::fs::read_dir(scene.root.path().join("cache/parts")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_meant_for_one_server_is_sent_to_no_other() {
    let Some(scene) = Scene::new(&[]) else { return };
    let elsewhere = Stub::gives(&scene.path(), scene.debug.clone());
    let to = format!("{}{}", elsewhere.url, scene.path());
    let moved = Stub::new(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
    });
    let symbols = Stub::new(|_| status("404 Not Found"));
    let config = OnlineConfig {
        headers: vec!["X-Token: secret".into()],
        symbol_servers: vec![symbols.url.clone()],
        ..scene.config(&[&moved.url])
    };
    let resolver = online(config);
    assert_eq!(scene.ask(&resolver).quality, Quality::Full);
    let pdb: DebugId = "0102030405060708090a0b0c0d0e0f10-1".parse().unwrap();
    resolver.symbolize_named(&pdb, Some("app.pdb"), Rva(0));
    let told = |stub: &Stub| stub.heads.lock().unwrap().iter().filter(|head| head.contains("secret")).count();
    assert_eq!((moved.asked(), told(&moved)), (1, 1));
    assert_eq!((elsewhere.asked(), told(&elsewhere)), (1, 0));
    assert_eq!((symbols.asked() > 0, told(&symbols)), (true, 0));
}

#[test]
fn a_server_that_failed_is_asked_again_after_a_while() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (path, debug, count) = (scene.path(), scene.debug.clone(), AtomicUsize::new(0));
    let recovers = Stub::new(move |head| {
        match head.starts_with(&format!("GET {path} ")) && count.fetch_add(1, Ordering::SeqCst) > 0 {
            true => ok(&debug),
            false => status("503 Service Unavailable"),
        }
    });
    let resolver = online(scene.config(&[&recovers.url]));
    let began = Instant::now();
    assert_eq!(step(&scene.ask(&resolver)).outcome, Outcome::Miss(MissReason::ServerError));
    while scene.ask(&resolver).frames.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never asked again");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(began.elapsed() > Duration::from_secs(8) && recovers.asked() == 2, "{}", recovers.asked());
}

#[test]
fn what_a_download_left_behind_counts_as_filling_the_cache() {
    let Some(scene) = Scene::new(&[]) else { return };
    let stub = Stub::gives(&scene.path(), scene.debug.clone());
    let config = OnlineConfig { cache_bytes: scene.debug.len() as u64 + 10_000, ..scene.config(&[&stub.url]) };
    let parts = config.cache.join("parts");
    std::fs::create_dir_all(&parts).unwrap();
    for (name, bytes) in [("left", 20_000), ("on-its-way", 2_000)] {
        std::fs::write(parts.join(name), vec![7; bytes]).unwrap();
    }
    let held = std::fs::File::open(parts.join("on-its-way")).unwrap();
    held.lock().unwrap();
    assert_eq!(scene.ask(&online(config)).quality, Quality::Full);
    let is_there = |name: &str| parts.join(name).exists();
    assert_eq!((is_there("left"), is_there("on-its-way")), (false, true));
    // What came is not what has to go.
    assert!(scene.root.path().join("cache/files/debug-file").join(scene.id.to_string()).exists());
}

#[test]
fn only_a_true_404_is_remembered() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (absent, busy) = (Stub::new(|_| status("404 Not Found")), Stub::new(|_| status("503 Service Unavailable")));
    for _ in 0..3 {
        let found = scene.ask(&online(scene.config(&[&absent.url])));
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerMiss));
        let found = scene.ask(&online(scene.config(&[&busy.url])));
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError));
    }
    // Debug file and program, each once; and each time anew.
    assert_eq!((absent.asked(), busy.asked()), (2, 3));
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_was() {
    let Some(scene) = Scene::new(&[]) else { return };
    let bytes = scene.debug.clone();
    let half = bytes.len() / 2;
    let whole = bytes.clone();
    let breaks = Stub::new(move |head| {
        let range =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        match range {
            None => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    whole.len()
                );
                [head.as_bytes(), &whole[..half]].concat()
            }
            Some(range) => {
                let from: usize = range.trim().trim_end_matches('-').parse().unwrap();
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nETag: \"one\"\r\nContent-Range: bytes {from}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    whole.len() - 1,
                    whole.len(),
                    whole.len() - from
                );
                [head.as_bytes(), &whole[from..]].concat()
            }
        }
    });
    let found = scene.ask(&online(scene.config(&[&breaks.url])));
    assert_eq!((found.resolver, found.quality), (ResolverStep::Debuginfod, Quality::Full), "{found:#?}");
    assert_eq!(found.digests[0].digest, Digest::of(&bytes));
    let heads = breaks.heads.lock().unwrap();
    assert!(heads.len() == 2 && heads[1].to_ascii_lowercase().contains("if-range: \"one\""), "{heads:?}");
}

#[test]
fn a_lock_file_repeats_a_run() {
    let Some(scene) = Scene::new(&[]) else { return };
    let stub = Stub::gives(&scene.path(), scene.debug.clone());
    let path = scene.root.path().join("symbols.lock");
    let run = |url: &str, mode: LockMode, cache: &str| {
        let config = OnlineConfig { cache: scene.root.path().join(cache), ..scene.config(&[url]) };
        let servers = Arc::new(OnlineServers::new(config).unwrap().with_lock(Lock::read(&path, mode).unwrap()));
        let resolver = Resolver::new(Options { online: true, ..Options::default() }).with_servers(servers.clone());
        let unknown: DebugId = "ffffffffffffffffffffffffffffffffffffffff".parse().unwrap();
        let found = (scene.ask(&resolver), resolver.symbolize(&unknown, Rva(0)));
        servers.lock().unwrap().write(&path).unwrap();
        found
    };
    let (first, _) = run(&stub.url, LockMode::Extend, "one");
    assert_eq!(first.quality, Quality::Full);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(&Digest::of(&scene.debug).to_string()) && text.contains("null"), "{text}");
    // Another server with other bytes of the same id, and one that has meanwhile what nobody had.
    let mut swapped = scene.debug.clone();
    let at = swapped.windows(7).position(|window| window == b"hidden\0").unwrap();
    swapped[at] = b'H';
    let other = Stub::gives(&scene.path(), swapped);
    let (found, absent) = run(&other.url, LockMode::Extend, "two");
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::DigestMismatch), "{found:#?}");
    assert_eq!((step(&absent).outcome, other.asked()), (Outcome::Miss(MissReason::ServerMiss), 1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "what is pinned stays");
    let (again, _) = run(&stub.url, LockMode::Frozen, "three");
    assert_eq!(again, first);
    // What it does not name is not fetched.
    std::fs::write(&path, "{\"version\":1,\"files\":{}}").unwrap();
    let (frozen, _) = run(&stub.url, LockMode::Frozen, "four");
    assert_eq!(step(&frozen).outcome, Outcome::Miss(MissReason::NotAllowed));
    for wrong in ["", "{}", "{\"version\":2,\"files\":{}}", "[]"] {
        std::fs::write(&path, wrong).unwrap();
        assert!(Lock::read(&path, LockMode::Extend).is_err(), "{wrong:?}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(Lock::read(&path, LockMode::Frozen).is_err() && Lock::read(&path, LockMode::Extend).unwrap().is_empty());
}

#[test]
fn the_cache_is_bounded_and_many_processes_may_share_it() {
    let Some(scene) = Scene::new(&[]) else { return };
    let debug = scene.debug.clone();
    let stub = Stub::new(move |head| if head.contains("/debuginfo") { ok(&debug) } else { status("404 Not Found") });
    let config = OnlineConfig { cache_bytes: scene.debug.len() as u64 * 3, ..scene.config(&[&stub.url]) };
    // Other files that were used longer ago.
    let folder = config.cache.join("files/debug-file");
    std::fs::create_dir_all(&folder).unwrap();
    for n in 0..5 {
        let file = folder.join(format!("old-{n}"));
        std::fs::write(&file, vec![0; scene.debug.len()]).unwrap();
        let past = std::time::SystemTime::now() - Duration::from_secs(1000);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(past).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(scene.ask(&online(config.clone())).quality, Quality::Full));
        }
    });
    let sizes: u64 = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum();
    assert!(sizes <= config.cache_bytes, "{sizes}");
    assert!(folder.join(scene.id.to_string()).exists());
}

#[test]
fn the_cache_of_libdebuginfod_is_read() {
    let Some(scene) = Scene::new(&[]) else { return };
    let theirs = scene.root.path().join("debuginfod_client");
    let folder = theirs.join(scene.id.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let config = OnlineConfig { elfutils_cache: Some(theirs), ..scene.config(&["http://127.0.0.1:1"]) };
    // An empty file there is its memory of a miss.
    std::fs::write(folder.join("debuginfo"), b"").unwrap();
    assert!(scene.ask(&online(config.clone())).frames.is_empty());
    std::fs::write(folder.join("debuginfo"), &scene.debug).unwrap();
    let found = scene.ask(&online(config));
    assert_eq!((found.resolver, found.quality), (ResolverStep::Debuginfod, Quality::Full));
}

#[test]
fn a_symbol_server_gives_a_program_database_also_in_a_cabinet() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    std::fs::write(folder.join("app.c"), SOURCE).unwrap();
    let run = |programs: &[&str], arguments: &[&str]| {
        for program in programs {
            let Ok(status) = Command::new(program).args(arguments).current_dir(folder).stdout(Stdio::null()).status()
            else {
                continue;
            };
            assert!(status.success(), "{program} {arguments:?}");
            return true;
        }
        skip(programs[0]);
        false
    };
    let clang = ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-c", "app.c", "-o", "app.obj"];
    let link = [
        "/nologo",
        "/debug",
        "/nodefaultlib",
        "/entry:main",
        "/subsystem:console",
        "/out:app.exe",
        "/pdb:app.pdb",
        "app.obj",
    ];
    if !(run(&["clang"], &clang)
        && run(&["lld-link-19", "lld-link"], &link)
        && run(&["gcab"], &["-c", "-z", "app.pd_", "app.pdb"]))
    {
        return;
    }
    let exe = std::fs::read(folder.join("app.exe")).unwrap();
    let id = ReleaseFile::parse(&exe).unwrap().debug_ids()[0].clone();
    let DebugId::Pdb { guid, age } = &id else { panic!("{id}") };
    let key = format!("{:032X}{age:x}", u128::from_be_bytes(*guid));
    let object = ObjectFile::parse(&exe).unwrap();
    let rva = object.unwind_inputs().text[0].start - object.image_base().0;
    let files: HashMap<&str, PathBuf> =
        HashMap::from([("app.pdb", folder.join("app.pdb")), ("app.pd_", folder.join("app.pd_"))]);
    for name in ["app.pdb", "app.pd_"] {
        let stub = Stub::gives(&format!("/symbols/app.pdb/{key}/{name}"), std::fs::read(&files[name]).unwrap());
        let config = OnlineConfig {
            debuginfod: Vec::new(),
            symbol_servers: vec![format!("{}/symbols", stub.url)],
            headers: Vec::new(),
            cache: folder.join(format!("cache-{name}")),
            cache_bytes: 1 << 30,
            elfutils_cache: None,
            file_bytes: 64 << 20,
            connect: Duration::from_secs(2),
            silence: Duration::from_secs(2),
            floor: Floor::default(),
        };
        let lock = folder.join(format!("{name}.lock"));
        let servers = OnlineServers::new(config).unwrap().with_lock(Lock::read(&lock, LockMode::Extend).unwrap());
        let servers = Arc::new(servers);
        let options = Options { online: true, ..Options::default() };
        let resolver = Resolver::new(options).with_servers(servers.clone());
        // Without the file's name nobody can be asked: that is no absence, and keeps nobody from the answer later.
        let nameless = resolver.symbolize(&id, Rva(rva));
        let outcome = nameless.tried.iter().find(|tried| tried.step == ResolverStep::SymbolServer).unwrap().outcome;
        assert_eq!((outcome, stub.asked()), (Outcome::Miss(MissReason::Unsupported), 0), "{nameless:#?}");
        servers.lock().unwrap().write(&lock).unwrap();
        assert!(!std::fs::read_to_string(&lock).unwrap().contains("null"));
        let map = symseal_module::ModuleMap::new(vec![symseal_module::MappedModule {
            path: "C:\\Program Files\\app.exe".into(),
            debug_id: Some(id.clone()),
            start: symseal_module::Avma(0x1000_0000),
            end: symseal_module::Avma(0x2000_0000),
            bias: 0x1000_0000,
            image_base: symseal_module::Svma(0),
        }]);
        let ip = symseal_module::Avma(0x1000_0000 + rva);
        let found = resolver.resolve(&map, ip, true, symseal_module::UnwindMethod::Context);
        assert_eq!((found.resolver, found.quality), (ResolverStep::SymbolServer, Quality::Full), "{name}: {found:#?}");
        let named = resolver.symbolize_named(&id, Some("app.exe"), Rva(rva));
        assert_eq!((named.resolver, &named.frames), (found.resolver, &found.frames));
    }
}
