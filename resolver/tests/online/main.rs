//! Servers over HTTP: Debian's debuginfod, and servers that do what no server should.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

mod bounds;
mod cache;
mod dwz;
mod scene;
mod stripped;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_resolver::online::{Floor, Lock, LockMode, OnlineConfig, OnlineServers};
use symseal_resolver::{DigestOf, Options, Outcome, Resolver};

use scene::{Debuginfod, SOURCE, Scene, Stub, ok, online, patient, skip, status, step};

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
    let short = scene.debug.clone();
    let (longer, shorter) = (scene.debug.len() + 1000, scene.debug.len() - 1000);
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
            "a length that is too short",
            Stub::new(move |_| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {shorter}\r\nConnection: close\r\n\r\n");
                [head.into_bytes(), short.clone()].concat()
            }),
            MissReason::Malformed,
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
fn one_file_may_be_given_a_time() {
    let Some(scene) = Scene::new(&[]) else { return };
    // Fast enough for the floor, and of no end that anybody waits for.
    let slow = Stub::slow(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n");
        while stream.write_all(&[7; 2000]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let honest = Stub::gives(&scene.path(), scene.debug.clone());
    let config =
        OnlineConfig { file_time: Some(Duration::from_millis(700)), ..scene.config(&[&slow.url, &honest.url]) };
    let began = Instant::now();
    let found = scene.ask(&online(config));
    assert_eq!(found.quality, Quality::Full, "{found:#?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let alone = OnlineConfig {
        file_time: Some(Duration::from_millis(700)),
        cache: scene.root.path().join("alone"),
        ..scene.config(&[&slow.url])
    };
    let found = scene.ask(&online(alone));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError));
    assert!(step(&found).detail.contains("within 0.7 s (DEBUGINFOD_MAXTIME)"), "{:?}", step(&found));
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
    let processes: Vec<_> = (0..6).map(|_| online(scene.config(&[&silent.url]))).collect();
    let began = Instant::now();
    std::thread::scope(|threads| {
        for resolver in &processes {
            threads.spawn(|| assert!(scene.ask(resolver).frames.is_empty()));
        }
    });
    // One after the other it would be nine seconds.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[test]
fn a_server_that_takes_its_time_to_fail_costs_that_once_and_not_once_a_module() {
    let Some(scene) = Scene::new(&[]) else { return };
    let later = |answer: &'static [u8]| {
        Stub::slow(move |_, stream| {
            std::thread::sleep(Duration::from_millis(2200));
            let _ = stream.write_all(answer);
        })
    };
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let too_many = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let breaks_within = Stub::slow(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n0123");
        std::thread::sleep(Duration::from_millis(2200));
    });
    for server in [later(busy), later(too_many), later(b""), breaks_within] {
        let resolver = online(patient(scene.config(&[&server.url])));
        for n in 0..4_u8 {
            let id: DebugId = format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap();
            let found = resolver.symbolize(&id, Rva(0));
            assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError), "{found:#?}");
        }
        assert_eq!(server.asked(), 1);
    }
    // One that is slow, and true, is asked for each.
    let absent = later(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let resolver = online(patient(scene.config(&[&absent.url])));
    assert_eq!(step(&scene.ask(&resolver)).outcome, Outcome::Miss(MissReason::ServerMiss));
    assert_eq!(absent.asked(), 2);
}

#[test]
fn the_files_of_many_modules_are_fetched_beside_each_other() {
    let Some(scene) = Scene::new(&[]) else { return };
    let slow = Stub::late(&scene.path(), scene.debug.clone());
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
fn a_server_that_sends_its_clients_to_a_dead_one_is_alive_itself() {
    let Some(scene) = Scene::new(&[]) else { return };
    let dead = Stub::slow(|_, _| std::thread::sleep(Duration::from_secs(30)));
    let (to, path, debug) = (dead.url.clone(), scene.path(), scene.debug.clone());
    let wanted = format!("GET {path} ");
    let moved = Stub::new(move |head| match head.starts_with(&wanted) {
        true => ok(&debug),
        false => {
            format!("HTTP/1.1 302 Found\r\nLocation: {to}/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into()
        }
    });
    let resolver = online(scene.config(&[&moved.url]));
    for n in 0..3_u8 {
        let id: DebugId = format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap();
        let found = resolver.symbolize(&id, Rva(0));
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError), "{found:#?}");
        // Neither hides the other: what is said names the one that is silent.
        assert!(step(&found).detail.contains(&dead.url), "{:?}", step(&found));
    }
    assert_eq!((dead.asked(), moved.asked()), (1, 3));
    assert_eq!(scene.ask(&resolver).quality, Quality::Full);
}

#[test]
fn what_is_secret_is_in_no_debug_output() {
    let Some(scene) = Scene::new(&[]) else { return };
    let config = OnlineConfig {
        headers: vec!["X-Token: secret".into()],
        symbol_servers: vec!["https://me:secret@host.example/?token=secret".into()],
        ..scene.config(&["https://me:secret@host.example/debug"])
    };
    let shown = format!("{config:?} {:?}", online(config.clone()));
    assert!(shown.contains("host.example") && !shown.contains("secret"), "{shown}");
}

#[test]
fn a_wrong_file_of_one_server_does_not_hide_for_good_that_another_failed() {
    let (Some(scene), Some(other)) = (Scene::new(&[]), Scene::new(&["-O1"])) else { return };
    let wrong = Stub::gives(&scene.path(), other.debug.clone());
    let recovers = failing_once(&scene);
    let resolver = online(scene.config(&[&wrong.url, &recovers.url]));
    let found = scene.ask(&resolver);
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::DebugIdMismatch), "{found:#?}");
    named_in_the_end(&scene, &resolver, &recovers);
    assert_eq!(wrong.asked(), 1, "it is known what this one has");
}

/// A server that fails at the first question and has the file at the next.
fn failing_once(scene: &Scene) -> Stub {
    let (path, debug, count) = (scene.path(), scene.debug.clone(), AtomicUsize::new(0));
    Stub::new(move |head| match head.starts_with(&format!("GET {path} ")) && count.fetch_add(1, Ordering::SeqCst) > 0 {
        true => ok(&debug),
        false => status("503 Service Unavailable"),
    })
}

/// After its while, and not before.
fn named_in_the_end(scene: &Scene, resolver: &Resolver, recovers: &Stub) {
    let began = Instant::now();
    while scene.ask(resolver).frames.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never asked again");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(began.elapsed() > Duration::from_secs(8) && recovers.asked() == 2, "{}", recovers.asked());
}

#[test]
fn a_server_that_failed_is_asked_again_after_a_while() {
    let Some(scene) = Scene::new(&[]) else { return };
    let recovers = failing_once(&scene);
    let resolver = online(scene.config(&[&recovers.url]));
    assert_eq!(step(&scene.ask(&resolver)).outcome, Outcome::Miss(MissReason::ServerError));
    named_in_the_end(&scene, &resolver, &recovers);
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
            file_time: None,
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
        assert_eq!((outcome, stub.asked()), (Outcome::Skipped(MissReason::Unsupported), 0), "{nameless:#?}");
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
