//! What servers may send in all, whatever they say of it.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use symseal_module::{Avma, DebugId, MappedModule, MissReason, ModuleMap, Quality, Rva, Svma};
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

struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The most bytes in a folder while this runs.
fn most_bytes_in(folder: &Path, of: impl FnOnce()) -> u64 {
    let (most, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let look = || most.fetch_max(bytes_in(folder), Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                look();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Also where it fails.
        let _ends = Ends(&ended);
        of();
    });
    look();
    most.into_inner()
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
    let most = most_bytes_in(&cache, || resolver.open_modules(&map));
    assert!(most > 0 && most <= 3_000_000, "{most}");
    assert_eq!(bytes_in(&cache), 0);
}

/// The scene's debug file as that of other modules, by the path at which it is asked for.
fn of_other_modules(scene: &Scene, ids: impl Iterator<Item = DebugId>) -> HashMap<String, Vec<u8>> {
    let own = scene.id.build_id().unwrap();
    let at = scene.debug.windows(own.len()).position(|bytes| bytes == own).unwrap();
    let file = |id: &DebugId| {
        let mut bytes = scene.debug.clone();
        bytes[at..at + own.len()].copy_from_slice(id.build_id().unwrap());
        bytes
    };
    ids.map(|id| (format!("/buildid/{id}/debuginfo"), file(&id))).collect()
}

#[test]
fn files_that_do_not_fit_beside_each_other_come_one_after_another() {
    for says_length in [true, false] {
        let Some(scene) = Scene::new(&[]) else { return };
        let ids = || (0..12).map(id_of);
        let files = of_other_modules(&scene, ids());
        let length = scene.debug.len();
        // Slowly, so that many are under way at once.
        let server = Stub::slow(move |head, stream| {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let Some(file) = files.get(path) else { return drop(stream.write_all(&status("404 Not Found"))) };
            let length = if says_length { format!("Content-Length: {length}\r\n") } else { String::new() };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n");
            for piece in file.chunks(file.len() / 8 + 1) {
                std::thread::sleep(Duration::from_millis(10));
                if stream.write_all(piece).is_err() {
                    return;
                }
            }
        });
        let bound = length as u64 * 3 / 2;
        let config = OnlineConfig { cache_bytes: bound, ..patient(scene.config(&[&server.url])) };
        let cache = config.cache.clone();
        let resolver = online(config);
        let most = most_bytes_in(&cache, || {
            std::thread::scope(|threads| {
                for id in ids() {
                    let (resolver, rva) = (&resolver, Rva(scene.rva));
                    threads.spawn(move || {
                        let found = resolver.symbolize(&id, rva);
                        assert_eq!(found.quality, Quality::Full, "{found:#?}");
                    });
                }
            });
        });
        // One that is kept, and what is under way; each with a few lines beside it.
        assert!(most > 0 && most <= 2 * bound + 8192, "{most}, the bound is {bound}");
    }
}

#[test]
fn a_file_that_came_is_kept_and_not_copied() {
    let Some(scene) = Scene::new(&[]) else { return };
    let server = Stub::gives(&scene.path(), scene.debug.clone());
    let config = patient(scene.config(&[&server.url]));
    let cache = config.cache.clone();
    let resolver = online(config);
    let most = most_bytes_in(&cache, || assert_eq!(scene.ask(&resolver).quality, Quality::Full));
    let length = scene.debug.len() as u64;
    assert!(most >= length && most < length + 4096, "{most}, the file has {length}");
    assert!(std::fs::read_dir(cache.join("parts")).unwrap().next().is_none(), "nothing else is left");
}
