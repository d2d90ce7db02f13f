//! Bad input: an error that names the object, and a layout that shows what it showed before.

use crate::inputs;
use std::path::{Path, PathBuf};

use crate::inputs::{Release, SOURCE, build, builder, compile, tool};
use symseal_builder::{BuildError, Exclude, Options, SymbolBundleBuilder};
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

/// Those of the pairs that contradict each other.
fn roles(error: &BuildError) -> Vec<FileRole> {
    match error {
        BuildError::Conflict { conflicts, .. } => conflicts.iter().map(|conflict| conflict.role).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_missing_file_is_named() {
    let path = Path::new("/nonexistent/app");
    names(&refused(&[path.to_owned()]), &[path]);
    assert!(matches!(refused(&[path.to_owned()]), BuildError::Io { .. }));
}

#[test]
fn an_object_file_that_is_called_as_split_dwarf_is_refused_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let Some(cc) = tool("cc") else { return };
    let object = compile(&cc, dir.path(), "a.dwo", SOURCE, &["-g", "-c"]);
    let error = refused(std::slice::from_ref(&object));
    names(&error, &[&object]);
    let found = "found elf of the kind \"relocatable\", without units of split DWARF";
    assert!(error.to_string().contains(found), "{error}");
}

#[test]
fn what_is_no_elf_file_is_refused_by_name_and_passed_over_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "no ELF").unwrap();
    std::fs::write(dir.path().join("empty"), "").unwrap();
    std::fs::write(dir.path().join("app-gdb.py"), "import gdb").unwrap();
    let error = refused(std::slice::from_ref(&text));
    assert!(matches!(error, BuildError::Unsuitable { .. }), "{error}");
    assert!(error.to_string().contains("PDB") && error.to_string().contains("archive"), "{error}");
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

#[cfg(unix)]
#[test]
fn a_directory_with_nothing_but_links_says_that_they_were_skipped_and_why() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one.so", "two.so"] {
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), dir.path().join(name)).unwrap();
    }
    let error = refused(&[dir.path().to_owned()]).to_string();
    assert!(error.contains("2 symbolic links skipped") && error.contains("outside"), "{error}");
}

#[test]
fn an_output_that_is_a_file_or_a_link_to_nothing_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut wrong = vec![file.clone(), file.join("below")];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/nonexistent/layout", dir.path().join("link")).unwrap();
        wrong.push(dir.path().join("link"));
    }
    for path in wrong {
        let error = builder(std::slice::from_ref(&file)).build_into(&path).unwrap_err().to_string();
        assert!(error.contains("name an empty or new directory") && !error.contains("os error"), "{error}");
        names(&builder(std::slice::from_ref(&file)).build_into(&path).unwrap_err(), &[&path]);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"");
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
        assert_eq!(roles(&error), [FileRole::Executable], "{error}");
        names(&error, &[&one, &two]);
        assert!(error.to_string().contains("dd01020304"));
    }
    let debug = |from: &Path| {
        let to = from.with_extension("debug");
        inputs::run(&objcopy, &["--only-keep-debug", from.to_str().unwrap(), to.to_str().unwrap()]);
        to
    };
    let (debug_one, debug_two) = (debug(&one), debug(&two));
    // Beside the binary the one of the other build would be a mismatch.
    let error = refused(&[debug_one.clone(), debug_two.clone()]);
    assert_eq!(roles(&error), [FileRole::Debuginfo], "{error}");
    names(&error, &[&debug_one, &debug_two]);
}

#[test]
fn one_report_names_all_files_that_contradict_each_other_and_what_else_was_found() {
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let other = |number: u32| format!("int other_{number}(void) {{ return {number}; }}");
    let mut of_id = Vec::new();
    for id in ["aa01020304", "bb01020304"] {
        let flag = format!("-Wl,--build-id=0x{id}");
        let files = [1, 2, 3]
            .map(|number| compile(&cc, dir.path(), &format!("{id}-{number}.so"), &other(number), &["-g", &flag]));
        of_id.push(files);
    }
    // Of the third id two debug files, and of the fourth nothing is wrong.
    let debug = [4, 5].map(|number| {
        let flags = ["-g", "-Wl,--build-id=0xcc01020304"];
        let whole = compile(&cc, dir.path(), &format!("cc-{number}.so"), &other(number), &flags);
        let debug = whole.with_extension("debug");
        inputs::run(&objcopy, &["--only-keep-debug", whole.to_str().unwrap(), debug.to_str().unwrap()]);
        std::fs::remove_file(whole).unwrap();
        debug
    });
    compile(&cc, dir.path(), "sound.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let error = inputs::builder(&[dir.path().to_owned()]).report().unwrap_err();
    let BuildError::Conflict { conflicts, report } = &error else { panic!("{error}") };
    let report = report.as_ref().expect("a report");
    assert_eq!((&report.conflicts, report.bundle, report.is_complete()), (conflicts, None, false));
    crate::build::check_schema("build_report.schema.json", &serde_json::to_vec(report).unwrap());
    assert_eq!((report.modules.len(), report.superseded.len()), (4, 0), "{report:#?}");
    // Two of three files with one id, each beside the one that comes first.
    assert_eq!(
        roles(&error),
        [[FileRole::Executable; 2], [FileRole::Executable; 2]]
            .concat()
            .into_iter()
            .chain([FileRole::Debuginfo])
            .collect::<Vec<_>>()
    );
    let named = |paths: &[PathBuf]| {
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        paths.iter().all(|path| conflicts.iter().any(|one| one.first == text(path) || one.second == text(path)))
    };
    assert!(of_id.iter().all(|files| named(files)) && named(&debug), "{conflicts:#?}");
    assert!(error.to_string().contains("4 more pairs contradict each other"), "{error}");
    let error = refused(&[dir.path().to_owned()]);
    assert_eq!(roles(&error).len(), 5, "{error}");
    // What the pairs name is all that has to go.
    let kept = |files: &[PathBuf]| {
        let pairs =
            || conflicts.iter().filter(|one| files.iter().any(|file| file.to_str() == Some(one.first.as_str())));
        let in_all = |file: &&PathBuf| {
            pairs().all(|one| [&one.first, &one.second].into_iter().any(|place| file.to_str() == Some(place.as_str())))
        };
        files.iter().find(in_all).expect("a file that each pair names").clone()
    };
    for files in of_id.iter().map(|files| files.as_slice()).chain([debug.as_slice()]) {
        let kept = kept(files);
        files.iter().filter(|file| **file != kept).for_each(|file| std::fs::remove_file(file).unwrap());
    }
    let report = inputs::builder(&[dir.path().to_owned()]).report().unwrap();
    assert_eq!((report.modules.len(), report.conflicts.len()), (4, 0));
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

#[test]
fn a_failed_build_leaves_an_existing_layout_as_it_was_file_by_file() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    build(&[release.path("full.so")], &layout).unwrap();
    let before = files_below(dir.path());
    // Modules are finished before the strict build fails.
    let strict = builder(&[release.path("full.so"), release.path("bare.so")]).strict(true);
    assert!(matches!(strict.build(&layout), Err(BuildError::Strict { unpaired: 1, .. })));
    assert_eq!(files_below(dir.path()), before);
    // A damaged file among good ones.
    let cut = release.path("cut.so");
    std::fs::write(&cut, &std::fs::read(release.path("full.so")).unwrap()[..900]).unwrap();
    assert!(matches!(build(&[release.path("bare.so"), cut], &layout), Err(BuildError::Artifact { .. })));
    assert_eq!(files_below(dir.path()), before);
    build(&[release.path("bare.so")], &layout).unwrap();
    let after = files_below(dir.path());
    assert!(before.keys().all(|path| after.contains_key(path)) && after.len() > before.len());
    assert!(after.keys().all(|path| !path.starts_with(dir.path().join("ingest"))), "{after:?}");
}

#[test]
fn all_damaged_files_of_a_build_are_told_at_once() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(release.path("full.so")).unwrap();
    let cut: Vec<PathBuf> = ["a.so", "b.so", "c.so"].map(|name| dir.path().join(name)).into();
    for (path, length) in cut.iter().zip([900, 64, 20]) {
        std::fs::write(path, &whole[..length]).unwrap();
    }
    std::fs::copy(release.path("full.so"), dir.path().join("full.so")).unwrap();
    let error = refused(&[dir.path().to_owned()]);
    assert!(matches!(&error, BuildError::Damaged { others, .. } if others.len() == 2), "{error:?}");
    names(&error, &cut.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let told = error.to_string();
    assert!(told.starts_with(cut[0].to_str().unwrap()) && told.contains("2 more files are damaged too"), "{told}");
    let exclude = Exclude::new(["[abc].so"]).unwrap();
    builder(&[dir.path().to_owned()]).exclude(exclude).strict(true).report().unwrap();
}

#[test]
fn a_letter_that_begins_like_a_pe_file_is_no_damaged_one() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(release.path("full.so"), dir.path().join("full.so")).unwrap();
    let letter = "MZ was the sign of Mark Zbikowski, who made the format of DOS programs.\n";
    for (name, text) in [("long.txt", letter.repeat(9)), ("short.txt", "MZ\n".to_owned())] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let found = builder(&[dir.path().to_owned()]).strict(true).report().unwrap();
    assert_eq!((found.inputs.skipped["no release file"], found.inputs.damaged()), (2, 0), "{found:#?}");
    // One that is a program, cut short.
    let mut program = letter.as_bytes().to_vec();
    program[60..64].copy_from_slice(&0x80_u32.to_le_bytes());
    std::fs::write(dir.path().join("cut.exe"), program).unwrap();
    assert!(matches!(
        builder(&[dir.path().to_owned()]).strict(true).report(),
        Err(BuildError::Strict { damaged: 1, .. })
    ));
}

/// Every file with its bytes.
fn files_below(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    files
}

#[test]
fn inputs_without_a_module_are_told_what_they_are_and_what_to_do() {
    let Some(release) = Release::make() else { return };
    let bundle = release.path("bundle");
    build(&[release.path("full.so")], &LayoutDir::create(&bundle).unwrap()).unwrap();
    let hint = |paths: &[PathBuf]| {
        let error = refused(paths);
        assert!(matches!(error, BuildError::NoModules { .. }), "{error}");
        error.to_string()
    };
    let text = hint(std::slice::from_ref(&bundle));
    assert!(text.contains("is a bundle already") && text.contains("publish --join"), "{text}");

    let Some(cc) = tool("cc") else { return };
    let source = release.path("unit.c");
    std::fs::write(&source, SOURCE).unwrap();
    let (object, dwo) = (release.path("unit.o"), release.path("unit.dwo"));
    inputs::run(&cc, &["-g", "-gsplit-dwarf", "-c", "-o", object.to_str().unwrap(), source.to_str().unwrap()]);
    let text = hint(std::slice::from_ref(&dwo));
    assert!(text.contains(dwo.to_str().unwrap()) && text.contains("split DWARF") && text.contains("add the binary"));
    // A debug file whose id was taken away.
    let Some(objcopy) = tool("objcopy") else { return };
    let (full, debug) = (release.path("full.so"), release.path("nameless.debug"));
    let flags = ["--only-keep-debug", "--remove-section=.note.gnu.build-id"];
    inputs::run(&objcopy, &[&flags[..], &[full.to_str().unwrap(), debug.to_str().unwrap()]].concat());
    let text = hint(std::slice::from_ref(&debug));
    assert!(text.contains("a debug file without an id") && text.contains("add that binary"), "{text}");
}

#[cfg(unix)]
#[test]
fn names_that_would_steer_a_terminal_are_escaped_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a\u{1b}[31mred");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("text"), "no release file").unwrap();
    let pipe = dir.path().join("a\u{1b}[31mpipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [folder.clone(), pipe, folder.join("missing\n"), folder.join("text")] {
        let text = refused(&[path]).to_string();
        assert!(!text.contains('\u{1b}') && !text.contains('\n') && text.contains("\\x1b[31m"), "{text:?}");
    }
}

#[test]
fn what_nobody_may_read_is_told_with_a_way_out() {
    let denied = |action| BuildError::Io {
        action,
        path: "release/secret".into(),
        source: std::io::ErrorKind::PermissionDenied.into(),
    };
    assert!(denied("list").to_string().contains("release/secret") && denied("list").to_string().contains("--exclude"));
    // Of the bundle that is written nothing can be left out.
    assert!(!denied("create").to_string().contains("--exclude"));
}

#[test]
fn a_module_with_more_files_than_a_manifest_holds_is_told_to_pack_them() {
    let Some(clang) = tool("clang") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut objects = Vec::new();
    for number in 0..400 {
        let (source, object) = (at(&format!("u{number}.c")), at(&format!("u{number}.o")));
        std::fs::write(&source, format!("int f{number}(int x) {{ return x + {number}; }}\n")).unwrap();
        objects.push((source, object));
    }
    let names = objects.iter().map(|(source, _)| source.as_str());
    let mut compile = std::process::Command::new(&clang);
    // All by one call, which writes where it stands.
    compile.current_dir(dir.path()).args(["-g", "-gdwarf-5", "-gsplit-dwarf", "-O1", "-fPIC", "-c"]).args(names);
    assert!(compile.status().unwrap().success());
    let files: Vec<&str> = objects.iter().map(|(_, object)| object.as_str()).collect();
    let library = at("libmany.so");
    let link = ["-shared", "-nostdlib", "-Wl,--build-id", "-o", &library];
    inputs::run(&clang, &[&link[..], &files].concat());
    let error = refused(&[dir.path().to_owned()]).to_string();
    assert!(error.contains("401 files") && error.contains("llvm-dwp"), "{error}");
}
