//! Bad input: an error that names the object, and a layout that shows what it showed before.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on has failed

mod inputs;

use std::path::{Path, PathBuf};

use inputs::{Release, SOURCE, build, builder, compile, tool};
use symseal_builder::{BuildError, Options, SymbolBundleBuilder};
use symseal_bundle::{FileRole, LayoutDir};

/// Builds, expects an error, and checks that the layout still lists nothing.
#[track_caller]
fn refused(paths: &[PathBuf]) -> BuildError {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let error = build(paths, &layout).expect_err("a refusal");
    assert_eq!(layout.manifests().unwrap(), []);
    error
}

#[track_caller]
fn names(error: &BuildError, paths: &[&Path]) {
    let text = error.to_string();
    for path in paths {
        assert!(text.contains(path.to_str().unwrap()), "{text:?} does not name {}", path.display());
    }
}

#[test]
fn a_missing_file_is_named() {
    let path = Path::new("/nonexistent/app");
    names(&refused(&[path.to_owned()]), &[path]);
    assert!(matches!(refused(&[path.to_owned()]), BuildError::Io { .. }));
}

#[test]
fn what_is_no_elf_file_is_refused_by_name_and_passed_over_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "no ELF").unwrap();
    std::fs::write(dir.path().join("empty"), "").unwrap();
    std::fs::write(dir.path().join("app-gdb.py"), "import gdb").unwrap();
    let error = refused(std::slice::from_ref(&text));
    assert!(matches!(error, BuildError::Artifact { .. }), "{error}");
    names(&error, &[&text]);
    let error = refused(&[dir.path().to_owned()]);
    assert!(matches!(error, BuildError::NoModules { files: 3, .. }), "{error}");
    names(&error, &[dir.path()]);
    assert!(matches!(refused(&[]), BuildError::NoModules { .. }));

    let Some(release) = Release::make() else { return };
    std::fs::copy(release.path("full.so"), dir.path().join("full.so")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(release.path("bare.so"), dir.path().join("link.so")).unwrap();
    let layout = tempfile::tempdir().unwrap();
    let built = build(&[dir.path().to_owned()], &LayoutDir::create(layout.path()).unwrap()).unwrap();
    assert_eq!((built.report.inputs.taken, built.report.inputs.skipped["no release file"]), (1, 2));
    assert_eq!(built.report.inputs.skipped["symbolic link"], 1, "a link out of the directory is not followed");
    assert_eq!(built.index.linux.len(), 1);
    let refused = &built.report.inputs.refused;
    assert!(refused.len() == 1 && refused[0].place.ends_with("app-gdb.py"), "{refused:?}");
}

#[test]
fn object_files_are_refused_by_name_and_passed_over_in_a_directory() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("a.c"), dir.path().join("a.o"));
    std::fs::write(&source, SOURCE).unwrap();
    inputs::run(&cc, &["-c", "-o", object.to_str().unwrap(), source.to_str().unwrap()]);
    let error = refused(std::slice::from_ref(&object));
    assert!(matches!(error, BuildError::Unsuitable { .. }), "{error}");
    names(&error, &[&object]);
    assert!(matches!(refused(&[dir.path().to_owned()]), BuildError::NoModules { files: 2, .. }));
}

#[test]
fn an_elf_file_cut_at_any_of_fifty_places_is_named_even_in_a_directory() {
    let Some(release) = Release::make() else { return };
    let whole = std::fs::read(release.path("full.so")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.so");
    // A fixed linear congruential sequence: a failure can be had again.
    let mut state = 12345u64;
    for _ in 0..50 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let length = 4 + (state >> 33) as usize % (whole.len() - 4);
        std::fs::write(&cut, &whole[..length]).unwrap();
        for path in [&cut, &dir.path().to_owned()] {
            let error = refused(std::slice::from_ref(path));
            assert!(matches!(error, BuildError::Artifact { .. }), "{length} bytes: {error}");
            names(&error, &[&cut]);
        }
    }
}

#[test]
fn two_files_for_one_role_of_one_id_are_both_named() {
    let Some(cc) = tool("cc") else { return };
    let Some(objcopy) = tool("objcopy") else { return };
    let dir = tempfile::tempdir().unwrap();
    let id = "-Wl,--build-id=0xdd01020304";
    let one = compile(&cc, dir.path(), "one.so", SOURCE, &["-g", id]);
    let two = compile(&cc, dir.path(), "two.so", "int other(void) { return 1; }", &["-g", id]);
    for paths in [vec![one.clone(), two.clone()], vec![two.clone(), one.clone()], vec![dir.path().to_owned()]] {
        let error = refused(&paths);
        assert!(matches!(error, BuildError::Conflict { role: FileRole::Executable, .. }), "{error}");
        names(&error, &[&one, &two]);
        assert!(error.to_string().contains("dd01020304"));
    }
    let debug = |from: &Path| {
        let to = from.with_extension("debug");
        inputs::run(&objcopy, &["--only-keep-debug", from.to_str().unwrap(), to.to_str().unwrap()]);
        to
    };
    let (debug_one, debug_two) = (debug(&one), debug(&two));
    let error = refused(&[one, debug_one.clone(), debug_two.clone()]);
    assert!(matches!(error, BuildError::Conflict { role: FileRole::Debuginfo, .. }), "{error}");
    names(&error, &[&debug_one, &debug_two]);
}

#[test]
fn what_a_debugger_would_run_is_refused() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let inline = format!(
        "{SOURCE}\nasm(\".pushsection .debug_gdb_scripts, \\\"MS\\\",@progbits,1\\n.byte 4\\n.ascii \\\"name\\\\nprint(1)\\\\n\\\"\\n.byte 0\\n.popsection\");"
    );
    let path = compile(&cc, dir.path(), "scripted.so", &inline, &["-g", "-Wl,--build-id=0xee01020304"]);
    for paths in [path.clone(), dir.path().to_owned()] {
        let error = refused(&[paths]);
        assert!(matches!(error, BuildError::DebuggerScript { .. }), "{error}");
        names(&error, &[&path]);
    }
    let named = dir.path().join("app-gdb.py");
    std::fs::rename(&path, &named).unwrap();
    names(&refused(std::slice::from_ref(&named)), &[&named]);
}

#[test]
fn a_name_that_cannot_be_sealed_is_refused_before_anything_is_read() {
    for (name, version) in [("", "1"), ("app", ""), ("a b", "1"), ("app", "1@2")] {
        let options = Options { name: name.to_owned(), version: version.to_owned(), progress: None };
        let dir = tempfile::tempdir().unwrap();
        let layout = LayoutDir::create(dir.path()).unwrap();
        let error = SymbolBundleBuilder::new(options).add_path("/nonexistent").build(&layout).unwrap_err();
        assert!(matches!(error, BuildError::Release(_)), "{error}");
    }
}

#[test]
fn a_layout_that_cannot_be_written_is_named_and_shows_what_it_showed() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let first = build(&[release.path("full.so")], &layout).unwrap();
    let listed = layout.manifests().unwrap();
    // Permissions do not stop root, so the directory for unfinished files is none.
    std::fs::remove_dir_all(dir.path().join("ingest")).unwrap();
    std::fs::write(dir.path().join("ingest"), "in the way").unwrap();
    let error = build(&[release.path("bare.so")], &layout).unwrap_err();
    assert!(matches!(error, BuildError::Layout(_)), "{error}");
    names(&error, &[dir.path()]);
    assert_eq!(layout.manifests().unwrap(), listed);
    assert!(symseal_bundle::Bundle::open(layout, Some(&first.digest)).is_ok());
}

#[test]
fn a_new_layout_is_gone_after_an_error_and_an_old_one_stays() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new");
    assert!(builder(&["/nonexistent".into()]).build_into(&new).is_err());
    assert!(!new.exists());
    let built = builder(&[release.path("full.so")]).build_into(&new).unwrap();
    assert!(builder(&["/nonexistent".into()]).build_into(&new).is_err());
    assert_eq!(symseal_bundle::Bundle::open_dir(&new).unwrap().digest(), Some(built.digest));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    names(&builder(&[release.path("full.so")]).build_into(&file).unwrap_err(), &[&file]);
}
