//! Release files called as something in a bundle is, or lying where another's directory is.

use std::path::{Path, PathBuf};

use crate::inputs::{builder, run, tool};
use serde_json::Value;
use symseal_bundle::{Digest, LayoutDir};

const SOURCE: &str = "int twice(int x) { return 2 * x; }\n";

/// Of a manifest.
const MOST_BYTES: u64 = 1 << 20;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The titles of all files of a bundle of these, of each of its manifests.
fn titles(paths: &[PathBuf]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    let built = builder(paths).build(&layout).unwrap();
    let json =
        |digest: &Digest| -> Value { serde_json::from_slice(&layout.read_blob(digest, MOST_BYTES).unwrap()).unwrap() };
    let mut titles = Vec::new();
    for manifest in json(&built.digest)["manifests"].as_array().unwrap() {
        let layers = json(&manifest["digest"].as_str().unwrap().parse().unwrap())["layers"].clone();
        let annotations = layers.as_array().unwrap().iter().map(|layer| &layer["annotations"]);
        let named = annotations.filter_map(|of| of["org.opencontainers.image.title"].as_str());
        titles.extend(named.map(str::to_owned));
    }
    titles
}

#[test]
fn a_windows_program_and_its_database_may_be_called_as_the_index_of_a_bundle_is() {
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    run(
        &clang,
        &["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", text(&at("a.c")), "-o", text(&at("a.obj"))],
    );
    let out = format!("/out:{}", text(&at("symbol_index.json")));
    let pdb = format!("/pdb:{}", text(&at("symbol_index.sigstore.json")));
    let object = at("a.obj");
    run(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:twice", &out, &pdb, text(&object)]);
    let titles = titles(&[at("symbol_index.json"), at("symbol_index.sigstore.json")]);
    let exact = |name: &str| titles.iter().filter(|title| title.split('/').next() == Some(name)).count();
    assert_eq!((exact("symbol_index.json"), exact("symbol_index.sigstore.json")), (1, 0), "{titles:#?}");
    for written in ["%73ymbol_index.json/", "%73ymbol_index.sigstore.json/"] {
        assert!(titles.iter().any(|title| title.starts_with(written)), "{titles:#?}");
    }
}

#[test]
fn a_dsym_in_an_archive_may_have_a_file_where_another_of_its_files_has_a_directory() {
    let (Some(clang), Some(lld), Some(python)) = (tool("clang"), tool("ld64.lld-19"), tool("python3")) else { return };
    let Some(dsymutil) = ["dsymutil-19", "dsymutil"].iter().find_map(|name| tool(name)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    run(&clang, &["--target=arm64-apple-macos12", "-g", "-c", text(&at("a.c")), "-o", text(&at("a.o"))]);
    let options = ["-dylib", "-arch", "arm64", "-platform_version", "macos", "12", "12"];
    run(&lld, &[&options[..], &[text(&at("a.o")), "-o", text(&at("a.dylib"))]].concat());
    run(&dsymutil, &[text(&at("a.dylib")), "-o", text(&at("a.dylib.dSYM"))]);
    // A tape takes both; a disk would not.
    let script = "
import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w') as tar:
    tar.add(sys.argv[2], arcname='a.dylib.dSYM')
    for name in ['notes', 'notes/more']:
        member = tarfile.TarInfo('a.dylib.dSYM/Contents/Resources/' + name)
        member.size = len(name)
        tar.addfile(member, io.BytesIO(name.encode()))
";
    run(&python, &["-c", script, text(&at("dsym.tar")), text(&at("a.dylib.dSYM"))]);
    let titles = titles(&[at("a.dylib"), at("dsym.tar")]);
    let ends = |end: &str| titles.iter().filter(|title| title.ends_with(end)).count();
    assert_eq!((ends("/notes"), ends("/notes/more")), (1, 1), "{titles:#?}");
    // No title is a directory of another: each can be written to a disk.
    for title in &titles {
        let directory = format!("{title}/");
        assert!(!titles.iter().any(|other| other.starts_with(&directory)), "{title}: {titles:#?}");
    }
}

#[test]
fn a_file_that_could_not_keep_its_name_or_its_place_is_told() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let compile = |name: &str, id: &str| {
        let folder = dir.path().join(id);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.c"), SOURCE).unwrap();
        let (to, id) = (folder.join(name), format!("-Wl,--build-id=0x{id}"));
        run(&cc, &["-g", "-shared", "-fPIC", &id, text(&folder.join("a.c")), "-o", text(&to)]);
        to
    };
    // An id of one byte has no place of its own in a directory of build-ids.
    let (device, plain) = (compile("CON.so", "a1"), compile("plain.so", "a1b2c3d4"));
    let built = builder(&[device, plain]).build_into(&dir.path().join("bundle")).unwrap();
    let notes = |name: &str| {
        let module = built.report.modules.iter().find(|module| module.name == name).unwrap();
        module.notes.iter().filter(|note| note.starts_with("stored as ")).cloned().collect::<Vec<_>>()
    };
    let told = notes("CON.so");
    assert!(!told.is_empty() && told.iter().all(|note| note.contains("%43ON.so")), "{told:?}");
    assert_eq!(notes("plain.so"), Vec::<String>::new());
}

/// Windows' tools look for a program by its name, its time and its size, which two builds may share.
#[test]
fn a_file_whose_place_is_another_modules_is_told_by_a_dry_run_as_well() {
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let make = |folder: &str, factor: u32| {
        let at = |name: &str| dir.path().join(folder).join(name);
        std::fs::create_dir(dir.path().join(folder)).unwrap();
        std::fs::write(at("a.c"), format!("int times(int x) {{ return {factor} * x; }}\n")).unwrap();
        let object = at("a.obj");
        let options = ["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c"];
        run(&clang, &[&options[..], &[text(&at("a.c")), "-o", text(&object)]].concat());
        let out = format!("/out:{}", text(&at("app.dll")));
        let options = ["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:times", "/timestamp:1700000000"];
        run(&link, &[&options[..], &[&out, text(&object)]].concat());
        at("app.dll")
    };
    let inputs = [make("one", 3), make("two", 5)];
    let moved = |report: &symseal_builder::BuildReport| -> Vec<String> {
        let notes = report.modules.iter().flat_map(|module| &module.notes);
        notes.filter(|note| note.ends_with("as its place is another module's")).cloned().collect()
    };
    let told = moved(&builder(&inputs).report().unwrap());
    assert!(!told.is_empty() && told.iter().all(|note| note.contains("app.dll")), "{told:?}");
    let built = builder(&inputs).build_into(&dir.path().join("bundle")).unwrap();
    assert_eq!(moved(&built.report), told);
}
