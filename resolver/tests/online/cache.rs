//! What is kept on the disk, and what is pinned by a lock file.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Quality, ResolverStep, Rva};
use symseal_resolver::online::{Lock, LockMode, OnlineConfig, OnlineServers};
use symseal_resolver::{Options, Outcome, Resolver};

use crate::scene::{Scene, Stub, ok, online, patient, status, step};

#[test]
fn what_many_ask_for_at_once_is_fetched_once() {
    let Some(scene) = Scene::new(&[]) else { return };
    let slow = Stub::late(&scene.path(), scene.debug.clone());
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
fn a_kept_file_that_was_changed_is_told_of_where_nobody_gives_another() {
    let Some(scene) = Scene::new(&[]) else { return };
    let stub = Stub::gives(&scene.path(), scene.debug.clone());
    assert_eq!(scene.ask(&online(scene.config(&[&stub.url]))).quality, Quality::Full);
    let kept = scene.root.path().join("cache/files/debug-file").join(scene.id.to_string());
    std::fs::write(&kept, &scene.debug[..scene.debug.len() / 2]).unwrap();
    let found = scene.ask(&online(scene.config(&["http://127.0.0.1:1"])));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError));
    assert!(step(&found).detail.contains(kept.to_str().unwrap()), "{:?}", step(&found));
    // Another server has it.
    assert_eq!(scene.ask(&online(scene.config(&["http://127.0.0.1:1", &stub.url]))).quality, Quality::Full);
    // One of the right id, and with another name in it, is none that came.
    let mut renamed = std::fs::read(&kept).unwrap();
    let at = renamed.windows(7).position(|bytes| bytes == b"hidden\0").expect("the name stands there");
    renamed[at] = b'H';
    std::fs::write(&kept, &renamed).unwrap();
    let found = scene.ask(&online(scene.config(&["http://127.0.0.1:1"])));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError));
    assert!(step(&found).detail.contains("expected the sha256:"), "{:?}", step(&found));
    let again = scene.ask(&online(scene.config(&[&stub.url])));
    assert_eq!((again.quality, again.frames.last().unwrap().function.as_deref()), (Quality::Full, Some("hidden")));
}

#[test]
fn only_a_true_404_is_remembered() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (absent, busy) = (Stub::new(|_| status("404 Not Found")), Stub::new(|_| status("503 Service Unavailable")));
    let gone = Stub::new(|_| status("410 Gone"));
    for _ in 0..3 {
        let found = scene.ask(&online(scene.config(&[&absent.url])));
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerMiss));
        for server in [&busy, &gone] {
            let found = scene.ask(&online(scene.config(&[&server.url])));
            assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError));
        }
    }
    // Debug file and program, each once; and each time anew.
    assert_eq!((absent.asked(), busy.asked(), gone.asked()), (2, 3, 3));
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
    assert_eq!(step(&frozen).outcome, Outcome::Skipped(MissReason::NotAllowed), "nobody was asked");
    assert_eq!(step(&frozen).detail, "the lock file does not name it");
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

#[cfg(unix)]
#[test]
fn what_is_no_file_in_a_cache_is_not_opened() {
    let Some(scene) = Scene::new(&[]) else { return };
    let server = Stub::gives(&scene.path(), scene.debug.clone());
    let theirs = scene.root.path().join("elfutils");
    let config = OnlineConfig { elfutils_cache: Some(theirs.clone()), ..patient(scene.config(&[&server.url])) };
    let kept = config.cache.join("files/debug-file").join(scene.id.to_string());
    let noted = kept.with_file_name(format!("{}.from", scene.id));
    let url = format!("{}{}", server.url, scene.path());
    let part = config.cache.join("parts").join(symseal_bundle::Digest::of(url.as_bytes()).hex());
    let theirs = theirs.join(scene.id.to_string()).join("debuginfo");
    let named =
        |place: &Path| assert_eq!(scene.ask(&online(config.clone())).quality, Quality::Full, "{}", place.display());
    let fifo = |place: &Path| assert!(Command::new("mkfifo").arg(place).status().unwrap().success());
    let endless = |place: &Path| std::os::unix::fs::symlink("/dev/zero", place).unwrap();
    for place in [&kept, &noted, &part, &theirs] {
        for special in [&fifo as &dyn Fn(&Path), &endless] {
            named(place);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(place);
            special(place);
            if place != &noted {
                let _ = std::fs::remove_file(&noted);
            }
            named(place);
            let _ = std::fs::remove_file(place);
        }
    }
}

#[test]
fn what_another_process_has_and_does_not_get_on_with_comes_a_second_time() {
    let Some(scene) = Scene::new(&[]) else { return };
    let server = Stub::gives(&scene.path(), scene.debug.clone());
    let config = scene.config(&[&server.url]);
    let url = format!("{}{}", server.url, scene.path());
    let parts = config.cache.join("parts");
    std::fs::create_dir_all(&parts).unwrap();
    let name = parts.join(symseal_bundle::Digest::of(url.as_bytes()).hex());
    // Somebody began, and was stopped.
    std::fs::write(&name, &scene.debug[..100]).unwrap();
    let stopped = std::fs::File::open(&name).unwrap();
    stopped.lock().unwrap();
    assert_eq!(scene.ask(&online(config.clone())).quality, Quality::Full);
    assert_eq!(server.asked(), 1);
    let left: Vec<_> = std::fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [name], "what the other one has is left to it");
}
