//! Servers that have the program in the place of its debug file, or a debug file that lost its end: of the right id, and worse
//! than what the next one has.

use std::process::Command;
use std::sync::Arc;

use symseal_module::{MissReason, Quality, ResolverStep};
use symseal_resolver::online::{OnlineConfig, OnlineServers};
use symseal_resolver::{Options, Outcome, Resolver};

use super::scene::{Scene, Stub, ok, online, status, step};

/// The program with its symbol table, without debug information.
fn with_symbols(scene: &Scene) -> Vec<u8> {
    let path = scene.root.path().join("with-symbols");
    let program = scene.root.path().join("app");
    assert!(Command::new("objcopy").arg("--strip-debug").args([&program, &path]).status().unwrap().success());
    std::fs::read(path).unwrap()
}

#[test]
fn a_file_without_debug_information_does_not_end_the_search_and_is_not_kept() {
    let Some(scene) = Scene::new(&[]) else { return };
    let honest = Stub::gives(&scene.path(), scene.debug.clone());
    let stripped = std::fs::read(scene.root.path().join("files/app")).unwrap();
    let mut lost_end = scene.debug.clone();
    let half = lost_end.len() / 2;
    lost_end[half..].fill(0);
    for (at, (what, bytes)) in
        [("stripped", stripped), ("with its symbols", with_symbols(&scene)), ("a lost end", lost_end)]
            .into_iter()
            .enumerate()
    {
        let cache = scene.root.path().join(format!("cache-{at}"));
        let config = |urls: &[&str]| OnlineConfig { cache: cache.clone(), ..scene.config(urls) };
        let stub = Stub::gives(&scene.path(), bytes.clone());
        let alone = scene.ask(&online(config(&[&stub.url])));
        assert_eq!(step(&alone).outcome, Outcome::Miss(MissReason::NoDebugInfo), "{what}: {:?}", step(&alone));
        assert!(std::fs::read_dir(cache.join("files/debug-file")).unwrap().next().is_none(), "{what} is kept");
        let both = scene.ask(&online(config(&[&stub.url, &honest.url])));
        assert_eq!((both.resolver, both.quality), (ResolverStep::Debuginfod, Quality::Full), "{what}: {both:#?}");
        // What an earlier run kept for a debug file.
        std::fs::write(cache.join("files/debug-file").join(scene.id.to_string()), &bytes).unwrap();
        let after = scene.ask(&online(config(&[&honest.url])));
        assert_eq!((after.resolver, after.quality), (ResolverStep::Debuginfod, Quality::Full), "{what}: {after:#?}");
    }
}

#[test]
fn a_debug_file_of_symbols_alone_is_one() {
    let Some(scene) = Scene::new(&[]) else { return };
    let path = scene.root.path().join("symbols.debug");
    let debug = scene.root.path().join("files/app.debug");
    assert!(Command::new("objcopy").arg("--strip-debug").args([&debug, &path]).status().unwrap().success());
    let stub = Stub::gives(&scene.path(), std::fs::read(&path).unwrap());
    let found = scene.ask(&online(scene.config(&[&stub.url])));
    assert_eq!((found.resolver, found.quality), (ResolverStep::Debuginfod, Quality::Function), "{found:#?}");
    assert_eq!(found.frames[0].function.as_deref(), Some("hidden"));
}

#[test]
fn a_servers_symbols_do_not_hide_a_debug_file_of_this_machine() {
    let Some(scene) = Scene::new(&[]) else { return };
    let (debuginfo, executable) = (scene.path(), format!("/buildid/{}/executable", scene.id));
    let program = with_symbols(&scene);
    // Stripped, at either place: one server calls it a debug file, another one has it as the program.
    for places in [vec![executable.clone()], vec![debuginfo, executable]] {
        let bytes = program.clone();
        let stub = Stub::new(move |head| {
            let is_there = places.iter().any(|place| head.starts_with(&format!("GET {place} ")));
            if is_there { ok(&bytes) } else { status("404 Not Found") }
        });
        let resolver = || {
            let servers = OnlineServers::new(scene.config(&[&stub.url])).unwrap();
            let options = Options { online: true, local_files: true, ..Options::default() };
            Resolver::new(options).with_servers(Arc::new(servers))
        };
        let debug = scene.root.path().join("debug");
        let nobody = scene.ask(&resolver().with_debug_directories(vec![debug.clone()]));
        assert_eq!((nobody.resolver, nobody.quality), (ResolverStep::Debuginfod, Quality::Function), "{nobody:#?}");
        assert_eq!((nobody.frames[0].function.as_deref(), step(&nobody).outcome), (Some("hidden"), Outcome::Hit));

        let id = scene.id.to_string();
        let folder = debug.join(".build-id").join(&id[..2]);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{}.debug", &id[2..])), &scene.debug).unwrap();
        let found = scene.ask(&resolver().with_debug_directories(vec![debug.clone()]));
        assert_eq!((found.resolver, found.quality), (ResolverStep::DebugFile, Quality::Full), "{found:#?}");
        assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::NoDebugInfo), "{found:#?}");
        std::fs::remove_dir_all(&debug).unwrap();
    }
}
