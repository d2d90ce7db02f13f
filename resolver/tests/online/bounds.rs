//! What servers may send in all, whatever they say of it.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use symseal_module::{Avma, DebugId, MappedModule, MissReason, ModuleMap, Quality, ResolverStep, Rva, Svma};
use symseal_resolver::Outcome;
use symseal_resolver::online::OnlineConfig;

use crate::scene::{Scene, Stub, ok, online, patient, status, step};

fn id_of(n: u8) -> DebugId {
    format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap()
}

/// Sends without end, until nobody takes it.
fn endless() -> Stub {
    Stub::slow(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[7; 16 << 10]).is_ok() {}
    })
}

/// The bytes in a folder and below it, as far as they are there by then.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_in(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn no_download_is_longer_than_the_cache_and_a_server_that_sends_nothing_else_is_asked_no_more() {
    let Some(scene) = Scene::new(&[]) else { return };
    let server = endless();
    let config = OnlineConfig { cache_bytes: 1_000_000, ..patient(scene.config(&[&server.url])) };
    let cache = config.cache.clone();
    let resolver = online(config);
    for n in 0..6 {
        let found = resolver.symbolize(&id_of(n), Rva(0));
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerError), "{found:#?}");
        let detail = &step(&found).detail;
        assert!(detail.contains("1000000 bytes") && detail.contains("SYMSEAL_CACHE_BYTES"), "{detail}");
        assert_eq!(bytes_in(&cache), 0, "nothing is left of it");
    }
    assert_eq!(server.asked(), 3);
}

#[test]
fn what_was_too_large_is_not_fetched_again_and_others_are_asked() {
    let Some(scene) = Scene::new(&[]) else { return };
    // It says beforehand how large it is.
    let large = Stub::new(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\nConnection: close\r\n\r\n".to_vec());
    // Which is why the module is asked for again after ten seconds.
    let failing = Stub::new(|_| status("503 Service Unavailable"));
    let config = OnlineConfig { file_bytes: 1 << 20, ..patient(scene.config(&[&large.url, &failing.url])) };
    let resolver = online(config);
    assert_eq!(step(&scene.ask(&resolver)).outcome, Outcome::Miss(MissReason::ServerError));
    std::thread::sleep(Duration::from_millis(10_500));
    let found = scene.ask(&resolver);
    assert!(step(&found).detail.contains("DEBUGINFOD_MAXSIZE"), "{found:#?}");
    assert_eq!((large.asked(), failing.asked()), (1, 2));
    // With answers between that are none of these, a server is not given up.
    let (path, debug) = (scene.path(), scene.debug.clone());
    let mixed = Stub::new(move |head| match head.starts_with(&format!("GET {path} ")) {
        true => ok(&debug),
        false if head.contains("/buildid/0") => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\nConnection: close\r\n\r\n".to_vec()
        }
        false => status("404 Not Found"),
    });
    let resolver = online(OnlineConfig { file_bytes: 1 << 20, ..patient(scene.config(&[&mixed.url])) });
    for n in [0, 1, 0xf0, 2, 3] {
        assert!(resolver.symbolize(&id_of(n), Rva(0)).frames.is_empty());
    }
    assert_eq!(scene.ask(&resolver).quality, Quality::Full);
}

#[test]
fn all_downloads_that_are_under_way_fit_into_the_cache() {
    let Some(scene) = Scene::new(&[]) else { return };
    let server = endless();
    let config = OnlineConfig { cache_bytes: 3_000_000, ..patient(scene.config(&[&server.url])) };
    let cache = config.cache.clone();
    let resolver = online(config);
    let modules = (0..24_u8).map(|n| {
        let at = (u64::from(n) + 1) << 24;
        MappedModule {
            path: format!("/lib/{n}.so"),
            debug_id: Some(id_of(n)),
            start: Avma(at),
            end: Avma(at + (1 << 24)),
            bias: at,
            image_base: Svma(0),
        }
    });
    let map = ModuleMap::new(modules.collect());
    let (most, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                most.fetch_max(bytes_in(&cache), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        resolver.open_modules(&map);
        ended.store(true, Ordering::SeqCst);
    });
    let most = most.into_inner();
    assert!(most > 0 && most <= 3_000_000, "{most}");
    assert_eq!(bytes_in(&cache), 0);
}

#[test]
fn who_says_how_long_a_file_is_waits_until_others_leave_room() {
    let Some(scene) = Scene::new(&[]) else { return };
    // Two of them at once are more than the cache may fill.
    let (path, debug) = (scene.path(), scene.debug.clone());
    let server = Stub::slow(move |head, stream| {
        if head.starts_with(&format!("GET {path} ")) {
            let _ = stream.write_all(&ok(&debug));
        } else if head.contains("/debuginfo") {
            let length = debug.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            std::thread::sleep(Duration::from_millis(1500));
            let _ = stream.write_all(&vec![7; length]);
        } else {
            let _ = stream.write_all(&status("404 Not Found"));
        }
    });
    let bound = scene.debug.len() as u64 * 3 / 2;
    let resolver = online(OnlineConfig { cache_bytes: bound, ..patient(scene.config(&[&server.url])) });
    std::thread::scope(|threads| {
        threads.spawn(|| resolver.symbolize(&id_of(1), Rva(0)));
        std::thread::sleep(Duration::from_millis(700));
        let found = scene.ask(&resolver);
        assert_eq!((found.resolver, found.quality), (ResolverStep::Debuginfod, Quality::Full), "{found:#?}");
    });
}
