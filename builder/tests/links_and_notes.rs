//! Symbolic links as further names of files, and what the report says that is no error.

use std::path::Path;

use crate::inputs::{Release, SOURCE, compile, report, run, tool};
use symseal_builder::PairedBy;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
#[cfg(unix)]
fn a_link_within_the_inputs_is_a_name_of_its_file_in_a_directory_and_in_a_tar() {
    let (Some(cc), Some(objcopy), Some(tar)) = (tool("cc"), tool("objcopy"), tool("tar")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("in/sub")).unwrap();
    let binary = compile(&cc, &at("in"), "prog.so", SOURCE, &["-g", "-Wl,--build-id=none"]);
    run(&objcopy, &["--only-keep-debug", text(&binary), text(&at("prog.debug"))]);
    run(&objcopy, &["--strip-all", &format!("--add-gnu-debuglink={}", text(&at("prog.debug"))), text(&binary)]);
    std::fs::rename(at("prog.debug"), at("in/sub/real-name.dbg")).unwrap();
    std::os::unix::fs::symlink("sub/real-name.dbg", at("in/prog.debug")).unwrap();
    run(&tar, &["-C", text(dir.path()), "-cf", text(&at("in.tar")), "in"]);
    for input in ["in", "in.tar"] {
        let found = report(&[at(input)]);
        assert!(found.is_complete(), "{found:#?}");
        assert_eq!(found.modules[0].paired[0].paired_by, Some(PairedBy::DebuglinkCrc));
        assert!(found.modules[0].paired[0].place.ends_with("real-name.dbg"), "{found:#?}");
    }
    // One that leads out of the inputs names nothing.
    std::fs::rename(at("in/sub/real-name.dbg"), at("prog.debug")).unwrap();
    std::fs::remove_file(at("in/prog.debug")).unwrap();
    std::os::unix::fs::symlink("../prog.debug", at("in/prog.debug")).unwrap();
    std::os::unix::fs::symlink("loop", at("in/loop")).unwrap();
    assert_eq!(report(&[at("in")]).unpaired(), 1);
}

#[test]
fn a_debug_file_of_the_right_id_and_another_checksum_is_noted() {
    let (Some(release), Some(objcopy)) = (Release::make(), tool("objcopy")) else { return };
    let (binary, debug) = (release.path("split.so"), release.path("split.debug"));
    run(&objcopy, &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&binary)]);
    let inputs = [binary, debug.clone()];
    assert!(report(&inputs).modules[0].notes.is_empty());
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let found = report(&inputs);
    let [note] = &found.modules[0].notes[..] else { panic!("{found:#?}") };
    assert!(note.contains("split.debug") && note.contains("CRC-32"), "{note}");
    assert!(found.is_complete(), "a note is no error");
}

#[test]
fn what_dwz_made_is_counted_neither_with_a_table_nor_without_one() {
    let (Some(cc), Some(dwz), Some(objcopy)) = (tool("cc"), tool("dwz"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let source = format!("{SOURCE}\nstruct shared {{ int one; struct shared *next; }};\nstruct shared first;");
    let mut debug_files = Vec::new();
    for (name, id) in [("a.so", "0xa101020304"), ("b.so", "0xa201020304")] {
        let binary = compile(&cc, dir.path(), name, &source, &["-g", &format!("-Wl,--build-id={id}")]);
        let debug = at(&format!("{name}.debug"));
        run(&objcopy, &["--only-keep-debug", text(&binary), text(&debug)]);
        run(&objcopy, &["--strip-all", text(&binary)]);
        debug_files.push(debug);
    }
    run(&dwz, &["-m", text(&at("shared.debug")), text(&debug_files[0]), text(&debug_files[1])]);
    let found = report(&[dir.path().to_owned()]);
    let made = found.modules.iter().find(|module| module.name == "shared.debug").expect("a module of its own");
    assert_eq!(made.unwind.none_because, None, "{made:#?}");
    assert_eq!((found.unwind.modules, found.unwind.none_because.len()), (2, 0), "{:?}", found.unwind);
}
