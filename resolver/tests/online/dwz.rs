//! Debug information in two files: what dwz moved out has a say in the names, and counts by the same rules.

use std::process::Command;
use std::sync::Arc;
use symseal_artifact::ObjectFile;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_resolver::online::OnlineServers;
use symseal_resolver::{DigestOf, Outcome, Resolver};

use crate::scene::{Scene, Stub, ok, online, skip, status, step};

/// A scene whose debug file shares what dwz moved out.
struct Shared {
    scene: Scene,
    id: DebugId,
    bytes: Vec<u8>,
}

impl Shared {
    fn new() -> Option<Self> {
        let mut scene = Scene::new(&[])?;
        let at = |name: &str| scene.root.path().join(name);
        // dwz moves what two files share.
        std::fs::copy(at("files/app.debug"), at("second.debug")).unwrap();
        std::fs::create_dir(at("files/.dwz")).unwrap();
        let moved = Command::new("dwz")
            .args(["-m", "files/.dwz/shared", "-M", ".dwz/shared", "files/app.debug", "second.debug"])
            .current_dir(scene.root.path())
            .status();
        let Ok(moved) = moved else {
            skip("dwz");
            return None;
        };
        assert!(moved.success());
        let bytes = std::fs::read(at("files/.dwz/shared")).expect("dwz moved something");
        let id = ObjectFile::parse(&bytes).unwrap().debug_id().unwrap().clone();
        scene.debug = std::fs::read(at("files/app.debug")).unwrap();
        Some(Self { scene, id, bytes })
    }

    /// A server that has the debug file and these bytes in the place of what was moved out.
    fn server(&self, shared: Option<Vec<u8>>) -> Stub {
        let (debug, id) = (self.scene.debug.clone(), self.id.clone());
        let (of_debug, of_shared) = (format!("GET {} ", self.scene.path()), format!("GET /buildid/{id}/debuginfo "));
        Stub::new(move |head| match (head.starts_with(&of_debug), head.starts_with(&of_shared), &shared) {
            (true, ..) => ok(&debug),
            (_, true, Some(shared)) => ok(shared),
            _ => status("404 Not Found"),
        })
    }

    fn sealed(&self, stub: &Stub) -> Resolver {
        let servers = OnlineServers::new(self.scene.config(&[&stub.url])).unwrap();
        self.scene.bundle(Proof::Sealed).with_servers(Arc::new(servers))
    }
}

#[test]
fn both_files_are_the_ones_that_the_bundle_names() {
    let Some(shared) = Shared::new() else { return };
    let found = shared.scene.ask(&shared.sealed(&shared.server(Some(shared.bytes.clone()))));
    assert_eq!(
        (found.resolver, found.quality, found.proof),
        (ResolverStep::Debuginfod, Quality::Full, Proof::Sealed),
        "{found:#?}"
    );
    let of: Vec<_> = found.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::Bundle, DigestOf::SymbolIndex, DigestOf::DebugFile, DigestOf::Companion]);
}

#[test]
fn a_changed_shared_file_gives_no_name_where_a_bundle_has_the_module() {
    let Some(shared) = Shared::new() else { return };
    let mut changed = shared.bytes.clone();
    let at = changed.windows(7).position(|window| window == b"hidden\0").expect("the name was moved");
    changed[at] = b'H';
    let found = shared.scene.ask(&shared.sealed(&shared.server(Some(changed))));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::DigestMismatch), "{found:#?}");
    let names: Vec<_> = found.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert!(names.contains(&"hidden"), "{names:?}");
    assert_eq!((found.resolver, found.quality, found.proof), (ResolverStep::LocalBundle, Quality::Full, Proof::Sealed));
}

#[test]
fn half_of_the_names_are_worse_than_the_bundle_and_better_than_nothing() {
    let Some(shared) = Shared::new() else { return };
    let stub = shared.server(None);
    let found = shared.scene.ask(&shared.sealed(&stub));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerMiss), "{found:#?}");
    assert!(step(&found).detail.contains("supplementary file"), "{:?}", step(&found));
    assert_eq!((found.resolver, found.quality), (ResolverStep::LocalBundle, Quality::Full));
    // Where no bundle has it, lines without their functions are told as what they are.
    let alone = online(shared.scene.config(&[&stub.url]));
    let mut without = 0;
    for rva in shared.scene.rva..shared.scene.rva + 16 {
        let found = alone.symbolize(&shared.scene.id, Rva(rva));
        let Some(innermost) = found.frames.first() else { continue };
        let full = innermost.function.is_some() && innermost.line.is_some();
        assert_eq!(found.quality == Quality::Full, full, "{found:#?}");
        without += usize::from(innermost.function.is_none());
    }
    assert!(without > 0, "no function was moved out");
}

#[test]
fn the_program_in_the_place_of_its_debug_file_does_not_stand_before_a_bundle() {
    let Some(scene) = Scene::new(&[]) else { return };
    // The bundle names it too, as what its unwind table was made of.
    let program = std::fs::read(scene.root.path().join("files/app")).unwrap();
    let stub = Stub::gives(&scene.path(), program);
    let servers = OnlineServers::new(scene.config(&[&stub.url])).unwrap();
    let found = scene.ask(&scene.bundle(Proof::Sealed).with_servers(Arc::new(servers)));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::NoDebugInfo), "{found:#?}");
    assert_eq!((found.resolver, found.quality), (ResolverStep::LocalBundle, Quality::Full));
}

#[test]
fn a_program_without_debug_information_does_not_stand_before_a_bundle() {
    let Some(scene) = Scene::new(&[]) else { return };
    let program = std::fs::read(scene.root.path().join("app")).unwrap();
    let stub = Stub::gives(&format!("/buildid/{}/executable", scene.id), program.clone());
    let servers = OnlineServers::new(scene.config(&[&stub.url])).unwrap();
    let found = scene.ask(&scene.bundle(Proof::Sealed).with_servers(Arc::new(servers)));
    assert_eq!(step(&found).outcome, Outcome::Miss(MissReason::ServerMiss), "{found:#?}");
    assert_eq!((found.resolver, found.quality), (ResolverStep::LocalBundle, Quality::Full));
    assert_eq!(stub.asked(), 1, "it is not even asked for");
    let alone = scene.ask(&online(scene.config(&[&stub.url])));
    assert_eq!(alone.resolver, ResolverStep::Debuginfod, "{alone:#?}");
    let digests: Vec<_> = alone.digests.iter().map(|it| (it.of, it.digest)).collect();
    assert_eq!(digests, [(DigestOf::Binary, Digest::of(&program))]);
}
