//! Debug files of this machine: found where debuggers look, used only where they are of the module, and as good as a bundle made of them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

mod other_systems;
mod scene;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use scene::{DEBUG_FILE, Scene, address, ask, ask_in, id_of, mapped, tried};
use symseal_artifact::ObjectFile;
use symseal_module::{MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_resolver::{DigestOf, ModuleFiles, Options, Outcome, ResolvedFrame, Resolver, ThisMachine};

#[test]
fn a_debug_file_is_found_by_its_build_id_and_names_what_a_bundle_names() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split(&scene.by_build_id()).is_none() {
        return;
    }
    let resolver = scene.resolver();
    let frame = scene.ask(&resolver, hidden);
    assert_eq!((frame.resolver, frame.quality, frame.proof), (DEBUG_FILE, Quality::Full, Proof::None));
    assert!(tried(&frame, DEBUG_FILE).detail.ends_with(".debug"), "{:?}", frame.tried);
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary]);
    scene.agrees(&resolver, &scene.bundled(&["app", "debug"]), DEBUG_FILE);
    // Without a path there is still the id.
    assert_eq!(resolver.symbolize(&scene.id, Rva(hidden)).resolver, DEBUG_FILE);
    // Nothing is read that was not allowed.
    let frame = scene.ask(&Resolver::new(Options::default()).with_debug_directories(vec![scene.at("debug")]), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Skipped(MissReason::NotAllowed));
    assert_eq!(frame.quality, Quality::ModuleOffset);
}

#[test]
fn a_debug_file_with_symbols_alone_does_not_hide_the_debug_information_of_the_binary() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    let symbols = scene.by_build_id();
    std::fs::create_dir_all(scene.at(&symbols).parent().unwrap()).unwrap();
    if scene.run("objcopy", &["--only-keep-debug", "app", &symbols]).is_none() {
        return;
    }
    scene.run("strip", &["-g", &symbols]).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!((frame.resolver, frame.quality), (ResolverStep::BinaryDebugInfo, Quality::Full), "{:#?}", frame.tried);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugInfo));
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::Binary, DigestOf::DebugFile]);
    scene.agrees(&scene.resolver(), &scene.bundled(&["app", "debug"]), ResolverStep::BinaryDebugInfo);
}

#[test]
fn who_expects_an_address_has_the_answer_of_who_does_not() {
    let own = std::env::current_exe().unwrap();
    let (id, map) = (id_of(&own), mapped(&own, own.to_str().unwrap(), &id_of(&own)));
    let bytes = std::fs::read(&own).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
    let step = stream.functions.len() / 24;
    let asked: Vec<Rva> =
        stream.functions.iter().step_by(step).map(|function| Rva(function.start.0 + function.size / 2)).collect();
    // No name, or that of a symbol alone: only the whole file tells.
    let asked = [asked, vec![Rva(8)]].concat();
    let resolver = || {
        Resolver::new(Options { local_files: true, ..Options::default() }).with_debug_directories(vec!["/none".into()])
    };
    let whole = resolver();
    let (expected, other) = asked.split_at(asked.len() / 2);
    let part = resolver().expecting(&id, expected);
    let mut described = 0;
    for rva in expected.iter().chain(other) {
        let (told, found) = (ask_in(&whole, &map, rva.0), ask_in(&part, &map, rva.0));
        described += usize::from(found.resolver == ResolverStep::BinaryDebugInfo);
        assert_eq!(format!("{told:?}"), format!("{found:?}"));
    }
    assert!(described > asked.len() / 2, "{described}");
}

/// What a process in a container sees, and the machine that it runs on: two trees of files.
#[derive(Debug)]
struct TwoTrees {
    inside: PathBuf,
    outside: PathBuf,
}

impl ModuleFiles for TwoTrees {
    fn open_path(&self, path: &Path) -> io::Result<File> {
        ThisMachine.open_path(&self.inside.join(path.strip_prefix("/").unwrap()))
    }

    fn open_elsewhere(&self, path: &Path) -> io::Result<File> {
        ThisMachine.open_path(&self.outside.join(path.strip_prefix("/").unwrap()))
    }
}

#[test]
fn a_wrong_debug_file_in_a_container_does_not_hide_that_of_the_machine() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let rva = address(&scene.at("app"), "hidden");
    let by_build_id = scene.by_build_id();
    let (inside, outside) = (format!("inside/{by_build_id}"), format!("outside/{by_build_id}"));
    let Some(()) = scene.split(&outside) else { return };
    std::fs::create_dir_all(scene.at(&inside).parent().unwrap()).unwrap();
    // Of another build, at the place of this one's.
    std::fs::write(scene.at("other.c"), "int main(void) { return 0; }").unwrap();
    scene.run("gcc", &["-g", "other.c", "-Wl,--build-id", "-o", &inside]).unwrap();
    std::fs::copy(scene.at("app"), scene.at("inside/app")).unwrap();
    let map = mapped(&scene.at("app"), "/app", &scene.id);
    let ask_with = |inside: PathBuf, outside: PathBuf| {
        let resolver = Resolver::new(Options { local_files: true, ..Options::default() })
            .with_debug_directories(vec!["/debug".into()])
            .with_module_files(Arc::new(TwoTrees { inside, outside }));
        ask_in(&resolver, &map, rva)
    };
    let found = ask_with(scene.at("inside"), scene.at("outside"));
    let function = found.frames.last().and_then(|frame| frame.function.as_deref());
    assert_eq!((found.resolver, function), (ResolverStep::DebugFile, Some("hidden")));
    // Where neither is of the module, the step says so of the first.
    let missed = ask_with(scene.at("inside"), scene.at("inside"));
    assert_eq!(tried(&missed, ResolverStep::DebugFile).outcome, Outcome::Miss(MissReason::DebugIdMismatch));
}

#[test]
fn a_link_counts_by_id_and_checksum() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split("linked/app.debug").is_none() {
        return;
    }
    scene.run("objcopy", &["--add-gnu-debuglink=linked/app.debug", "app"]).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(frame.quality, Quality::ModuleOffset);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugFile));
    let good = std::fs::read(scene.at("linked/app.debug")).unwrap();
    // Beside the program, in `.debug`, and below the debug directory.
    let below = scene.at("debug").join(scene.root.path().strip_prefix("/").unwrap()).join("app.debug");
    for place in [scene.at(".debug/app.debug"), below.clone(), scene.at("app.debug")] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, &good).unwrap();
        assert_eq!(scene.ask(&scene.resolver(), hidden).resolver, DEBUG_FILE, "{}", place.display());
        std::fs::remove_file(&place).unwrap();
    }
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    // The same build-id and other bytes.
    let mut changed = good.clone();
    changed.push(0);
    std::fs::write(&below, &changed).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::ChecksumMismatch));
    // Of another program: that says more than the checksum.
    let other = Scene::new(&["-g", "-DOTHER", "-O1"]).unwrap();
    other.run("objcopy", &["--only-keep-debug", "app", "app.debug"]).unwrap();
    std::fs::copy(other.at("app.debug"), &below).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::DebugIdMismatch));
    assert!(tried(&frame, DEBUG_FILE).detail.contains(&other.id.to_string()));
    // Of the same build-id and with other bytes it counts at none of the places to which the link leads, also under a name that debuggers know without one.
    std::fs::remove_file(&below).unwrap();
    for place in [scene.at(".debug/app.debug"), below.clone(), scene.at("app.debug")] {
        std::fs::write(&place, &changed).unwrap();
        let frame = scene.ask(&scene.resolver(), hidden);
        let outcome = tried(&frame, DEBUG_FILE).outcome;
        assert_eq!(outcome, Outcome::Miss(MissReason::ChecksumMismatch), "{}", place.display());
        std::fs::remove_file(&place).unwrap();
    }
    std::fs::write(&below, &changed).unwrap();
    // One that is right somewhere else still counts.
    std::fs::write(scene.at("app.debug"), &good).unwrap();
    assert_eq!(scene.ask(&scene.resolver(), hidden).resolver, DEBUG_FILE);
}

#[test]
fn what_is_no_debug_file_ends_in_a_reason_and_the_binary_is_asked() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    let place = scene.at(&scene.by_build_id());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    let whole = std::fs::read(scene.at("app")).unwrap();
    for (bytes, reason) in [
        (Vec::new(), MissReason::Malformed),
        (b"\x7fELF".to_vec(), MissReason::Malformed),
        (whole[..whole.len() / 2].to_vec(), MissReason::Malformed),
        (b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0".to_vec(), MissReason::Malformed),
    ] {
        std::fs::write(&place, &bytes).unwrap();
        let frame = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(reason), "{} bytes", bytes.len());
        assert_eq!((frame.resolver, frame.quality), (ResolverStep::BinaryDebugInfo, Quality::Full));
    }
    // What would block or never end.
    std::fs::remove_file(&place).unwrap();
    if scene.run("mkfifo", &[place.to_str().unwrap()]).is_some() {
        let frame = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::FileUnreadable));
        std::fs::remove_file(&place).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", &place).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::FileUnreadable));
    assert_eq!(frame.resolver, ResolverStep::BinaryDebugInfo);
}

#[test]
fn what_dwz_moved_out_is_followed_and_missed() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split(&scene.by_build_id()).is_none() {
        return;
    }
    // dwz moves what two files share.
    std::fs::copy(scene.at(&scene.by_build_id()), scene.at("second.debug")).unwrap();
    std::fs::create_dir_all(scene.at("debug/.dwz")).unwrap();
    let (debug, shared) = (scene.by_build_id(), scene.at("debug/.dwz/shared"));
    if scene.run("dwz", &["-m", shared.to_str().unwrap(), "-M", "../../.dwz/shared", &debug, "second.debug"]).is_none()
    {
        return;
    }
    assert!(shared.exists(), "dwz moved something");
    let expected = {
        let unpacked = Scene::new(&["-g"]).unwrap();
        ask(&unpacked.resolver(), &unpacked.at("app"), &unpacked.id, hidden).frames.clone()
    };
    let frame = scene.ask(&scene.resolver(), hidden);
    let names =
        |frame: &ResolvedFrame| frame.frames.iter().map(|it| (it.function.clone(), it.line)).collect::<Vec<_>>();
    let expected: Vec<_> = expected.iter().map(|it| (it.function.clone(), it.line)).collect();
    assert_eq!((frame.resolver, names(&frame)), (DEBUG_FILE, expected));
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary, DigestOf::Companion]);
    // One of another build is as good as none.
    let other = Scene::new(&["-g", "-O1"]).unwrap();
    std::fs::copy(other.at("app"), &shared).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert!(tried(&frame, DEBUG_FILE).lacks.contains("supplementary file"), "{:?}", frame.tried);
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary]);
}

#[test]
fn split_dwarf_is_found_and_a_skeleton_alone_says_so() {
    let Some(scene) = Scene::new(&["-g", "-gsplit-dwarf"]) else { return };
    let hidden = address(&scene.at("app"), "main");
    let dwo = std::fs::read_dir(scene.root.path()).unwrap().flatten().map(|entry| entry.path());
    let dwo = dwo.into_iter().find(|path| path.extension().is_some_and(|end| end == "dwo")).expect("a .dwo file");
    let step = ResolverStep::BinaryDebugInfo;
    let whole = scene.ask(&scene.resolver(), hidden);
    assert_eq!((whole.resolver, whole.quality), (step, Quality::Full));
    assert_eq!(
        whole.digests.iter().map(|digest| digest.of).collect::<Vec<_>>(),
        [DigestOf::Binary, DigestOf::Companion]
    );
    // A package stands in for it.
    let package = Command::new("dwp").args(["-e", "app", "-o", "app.dwp"]).current_dir(scene.root.path()).status();
    let kept = std::fs::read(&dwo).unwrap();
    std::fs::remove_file(&dwo).unwrap();
    if package.is_ok_and(|status| status.success()) && scene.at("app.dwp").exists() {
        assert_eq!(scene.ask(&scene.resolver(), hidden).frames, whole.frames);
        std::fs::remove_file(scene.at("app.dwp")).unwrap();
    }
    let skeleton = scene.ask(&scene.resolver(), hidden);
    let told = skeleton.tried.iter().any(|tried| tried.lacks.contains("skeleton-only"));
    assert!(told && skeleton.digests.len() <= 1, "{:#?}", skeleton.tried);
    // One that was compiled again is not the one that is asked for.
    let other = Scene::new(&["-g", "-gsplit-dwarf", "-O1"]).unwrap();
    let theirs = other.at(dwo.file_name().unwrap().to_str().unwrap());
    std::fs::copy(theirs, &dwo).unwrap();
    let stale = scene.ask(&scene.resolver(), hidden);
    let why = "cannot be used (";
    let is_told =
        |lacks: &str| lacks.contains("skeleton-only") && lacks.contains(why) && lacks.contains("of this build");
    assert!(stale.tried.iter().any(|tried| is_told(&tried.lacks)), "{:#?}", stale.tried);
    std::fs::write(&dwo, kept).unwrap();
    assert_eq!(scene.ask(&scene.resolver(), hidden).frames, whole.frames);
}
