//! What a bundle holds, and that its bytes follow from its inputs alone.

use crate::inputs;
use std::path::{Path, PathBuf};

use crate::inputs::{Release, build, builder, tool};
use serde_json::Value;
use symseal_bundle::module_index;
use symseal_bundle::verify::verify_contents;
use symseal_bundle::{Bundle, DebugInfo, FileRole, LayoutDir, ModuleEntry};
use symseal_module::DebugId;

fn identify(bytes: &[u8]) -> Vec<DebugId> {
    symseal_artifact::ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default()
}

fn roles(module: &ModuleEntry) -> Vec<&'static str> {
    module.files.iter().map(|file| file.role.code()).collect()
}

#[test]
fn modules_are_paired_labelled_and_complete() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = build(&[release.dir.path().to_owned()], &layout).unwrap();
    let index = &built.index;
    let tables = ["symbol-table", "unwind-table", "module-index"];

    let full = &index.linux["aa01020304"];
    assert_eq!((full.name.as_str(), full.debug_info, full.stripped), ("full.so", DebugInfo::Full, false));
    assert_eq!(roles(full), [&["debuginfo", "executable"], &tables[..]].concat());
    assert_eq!(full.files[0].sha256, full.files[1].sha256, "an unstripped file is one blob with two roles");
    assert_eq!(full.files[0].path, ".build-id/aa/01020304.debug");
    assert_eq!(full.files[1].path, ".build-id/aa/01020304");

    let split = &index.linux["bb01020304"];
    assert_eq!((split.name.as_str(), split.debug_info, split.stripped), ("split.so", DebugInfo::Full, true));
    assert_ne!(split.files[0].sha256, split.files[1].sha256);
    assert_eq!(split.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["split.debug", "split.so"]);
    let table = split.file(FileRole::SymbolTable).unwrap();
    assert_eq!(table.derived_from, [split.files[0].sha256, split.files[1].sha256]);
    assert_eq!(split.file(FileRole::UnwindTable).unwrap().derived_from[0], split.files[1].sha256);

    let bare = &index.linux["cc01020304"];
    assert_eq!((bare.debug_info, bare.stripped), (DebugInfo::None, true));
    assert_eq!(roles(bare), [&["executable"], &tables[..]].concat());

    // The same code gives the same functions, from whichever file they were read.
    assert_eq!(full.statistics.functions, split.statistics.functions);
    assert!(full.statistics.rows > 0 && bare.statistics.rows <= full.statistics.rows);
    assert_eq!(index.statistics.modules, 3);
    assert_eq!(built.report.inputs.taken, 4);
    assert!(built.report.modules.iter().all(|module| module.unwind.none_because.is_none()));

    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    assert_eq!(bundle.index(), index);
    let contents = verify_contents(&bundle, &identify);
    assert!(contents.holds(), "{:#?}", contents.checks);
}

#[test]
fn the_index_of_a_module_names_functions_lines_and_inlined_calls() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = build(&[release.path("full.so")], &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let module = &built.index.linux["aa01020304"];
    let json = bundle.read(module.file(FileRole::ModuleIndex).unwrap()).unwrap();
    let read = module_index::parse(&json).unwrap();
    let add = read.functions.iter().find(|function| function.name == "add").unwrap();
    assert!(add.file.ends_with("full.so.c") && add.line == Some(4) && add.size > 0, "{add:?}");
    let lines = read.lines.as_ref().unwrap();
    let name = |frame: u32| lines.strings[lines.frames[frame as usize][0] as usize].as_str();
    let inlined = lines.rows.iter().find(|row| row.frames.len() == 2).expect("a row of an inlined call");
    assert_eq!((name(inlined.frames[0]), name(inlined.frames[1])), ("twice", "add"));
    assert!(inlined.address >= add.address && inlined.address.0 < add.address.0 + add.size);

    let table = bundle.read(module.file(FileRole::SymbolTable).unwrap()).unwrap();
    let again = module_index::write(&symseal_symx::Table::open(&table).unwrap(), "full.so").unwrap();
    assert_eq!(again.json, json, "the index follows from the table");
}

#[test]
fn copies_elsewhere_in_another_order_with_other_threads_give_the_same_digest() {
    let Some(release) = Release::make() else { return };
    let names = ["full.so", "split.so", "split.debug", "bare.so"];
    let first = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(first.path()).unwrap();
    let paths: Vec<PathBuf> = names.iter().map(|name| release.path(name)).collect();
    let expected = build(&paths, &layout).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let mut copies: Vec<PathBuf> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let directory = elsewhere.path().join(format!("{}", 9 - at));
        std::fs::create_dir(&directory).unwrap();
        std::fs::copy(release.path(name), directory.join(name)).unwrap();
        copies.push(directory.join(name));
    }
    copies.rotate_left(2);
    for (paths, threads) in [(copies.clone(), 1), (vec![elsewhere.path().to_owned()], 7)] {
        let dir = tempfile::tempdir().unwrap();
        let layout = LayoutDir::create(dir.path()).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let built = pool.install(|| build(&paths, &layout)).unwrap();
        assert_eq!(built.digest, expected.digest);
        assert_eq!(built.index, expected.index);
    }
    // The same again into the same layout changes nothing.
    let listed = layout.manifests().unwrap();
    assert_eq!(build(&copies, &layout).unwrap().digest, expected.digest);
    assert_eq!(layout.manifests().unwrap(), listed);
    // Another version is another bundle.
    let other = symseal_builder::Options { name: "app".to_owned(), version: "1.1".to_owned(), progress: None };
    let built =
        symseal_builder::SymbolBundleBuilder::new(other).add_path(release.path("full.so")).build(&layout).unwrap();
    assert_ne!(built.digest, expected.digest);
}

#[test]
fn one_file_under_two_names_is_one_module_with_the_same_name_in_any_order() {
    let Some(release) = Release::make() else { return };
    let copy = release.path("also_full.so");
    std::fs::copy(release.path("full.so"), &copy).unwrap();
    let mut digests = Vec::new();
    for paths in [[release.path("full.so"), copy.clone()], [copy, release.path("full.so")]] {
        let dir = tempfile::tempdir().unwrap();
        let built = build(&paths, &LayoutDir::create(dir.path()).unwrap()).unwrap();
        assert_eq!(built.index.linux["aa01020304"].name, "also_full.so");
        assert_eq!((built.report.inputs.taken, built.report.inputs.doubles), (1, 1));
        digests.push(built.digest);
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn executables_are_left_out_where_they_are_not_wanted() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = builder(&[release.dir.path().to_owned()]).executables(false).build(&layout).unwrap();
    let split = &built.index.linux["bb01020304"];
    assert_eq!(roles(split), ["debuginfo", "symbol-table", "unwind-table", "module-index"]);
    assert!(verify_contents(&Bundle::open(layout, None).unwrap(), &identify).holds());
}

#[test]
fn a_debug_file_alone_gives_names_without_unwind_rules() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = build(&[release.path("split.debug")], &layout).unwrap();
    let module = &built.index.linux["bb01020304"];
    assert_eq!(roles(module), ["debuginfo", "symbol-table", "module-index"]);
    assert!(module.statistics.rows > 0);
    assert!(built.report.modules[0].unwind.none_because.as_ref().is_some_and(|because| because.contains("debug file")));
}

/// The C library of MIPS has functions whose frame no path of instructions tells; whoever looks for them needs their addresses.
#[test]
fn functions_that_could_not_be_followed_are_counted_and_placed() {
    let library = Path::new("/usr/mips-linux-gnu/lib/libc.so.6");
    let (Some(_), Some(readelf)) = (tool("mips-linux-gnu-gcc"), tool("readelf")) else { return };
    if !library.exists() {
        return println!("SKIP {}: not found", library.display());
    }
    let dir = tempfile::tempdir().unwrap();
    let built = build(&[library.to_owned()], &LayoutDir::create(dir.path()).unwrap()).unwrap();
    let unwind = &built.report.modules[0].unwind;
    assert!(unwind.unsupported_reasons.keys().any(|reason| reason.starts_with("function: ")), "{unwind:?}");
    assert_eq!(unwind.unsupported, unwind.unsupported_reasons.values().sum::<u64>());
    // `[ 9] .text PROGBITS 00001000 001000 0a0000 00 AX 0 0 16`
    let sections = inputs::run(&readelf, &["-SW", "/usr/mips-linux-gnu/lib/libc.so.6"]).stdout;
    let sections = String::from_utf8(sections).unwrap();
    let code = sections.lines().filter_map(|line| {
        let [_, kind, address, _, size, _, flags, ..] =
            line.split_once("] ")?.1.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let start = number(address).filter(|_| kind == "PROGBITS" && flags.contains('X'))?;
        Some(start..start + number(size)?)
    });
    let code: Vec<_> = code.collect();
    for reason in unwind.unsupported_reasons.keys() {
        let listed = unwind.unsupported_ranges.iter().find(|range| range.reason == *reason);
        let range = listed.unwrap_or_else(|| panic!("{reason}: {unwind:?}"));
        let is_code = |code: &std::ops::Range<u64>| code.start <= range.start.0 && range.end.0 <= code.end;
        assert!(range.start < range.end && code.iter().any(is_code), "{range:?}");
    }
    assert!(unwind.unsupported_ranges.is_sorted_by_key(|range| range.start));
}

#[test]
fn programs_for_other_processors_get_unwind_tables() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("main.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { return printf(\"%d\\n\", 1) < 0; }\n").unwrap();
    for (compiler, number) in [("aarch64-linux-gnu-gcc", 2), ("mips-linux-gnu-gcc", 3), ("mipsel-linux-gnu-gcc", 4)] {
        let Some(compiler) = tool(compiler) else { continue };
        let program = dir.path().join("program");
        let (from, to) = (source.to_str().unwrap(), program.to_str().unwrap());
        inputs::run(&compiler, &["-O2", "-static", "-Wl,--build-id", "-o", to, from]);
        let out = tempfile::tempdir().unwrap();
        let layout = LayoutDir::create(out.path()).unwrap();
        let built = build(std::slice::from_ref(&program), &layout).unwrap();
        let unwind = &built.report.modules[0].unwind;
        assert_eq!(unwind.none_because, None, "{}", compiler.display());
        assert!(unwind.covered_bytes * 100 > unwind.text_bytes * 97, "{unwind:?}");
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        let (_, _, module) = built.index.modules().next().unwrap();
        let table = bundle.read(module.file(FileRole::UnwindTable).unwrap()).unwrap();
        assert_eq!((&table[..4], table[6]), (&b"UWT1"[..], number));
    }
}

#[test]
fn real_output_keeps_to_the_published_schemas() {
    let Some(release) = Release::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = build(&[release.dir.path().to_owned(), "/lib/x86_64-linux-gnu/libc.so.6".into()], &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    check_schema("symbol_index.schema.json", &built.index.to_canonical_json().unwrap());
    for (_, _, module) in built.index.modules() {
        let json = bundle.read(module.file(FileRole::ModuleIndex).unwrap()).unwrap();
        assert!(symseal_bundle::canonical::is_canonical(&json));
        check_schema("module_index.schema.json", &json);
    }
    check_schema("build_report.schema.json", &serde_json::to_vec(&built.report).unwrap());
    assert_eq!(built.report.modules.len(), 4);
}

#[test]
fn reports_of_every_platform_keep_to_the_published_schema() {
    let Some(fixtures) = inputs::fixtures() else { return };
    let folders = ["breakpad", "dump_syms", "elfutils", "mac-fat", "samply/fixtures/other/simple-example"];
    let paths: Vec<PathBuf> = folders.iter().map(|folder| fixtures.join(folder)).collect();
    let report = inputs::report(&paths);
    assert!(!report.superseded.is_empty() && !report.debug_files_without_binaries.is_empty());
    check_schema("build_report.schema.json", &serde_json::to_vec(&report).unwrap());
    let foreign = inputs::report(&[
        fixtures.join("samply/fixtures/other/simple-example/out/mac-oso/main"),
        fixtures.join("samply/fixtures/other/simple-example/out/mac-dsym/main.dSYM"),
    ]);
    assert!(!foreign.mismatches.is_empty());
    check_schema("build_report.schema.json", &serde_json::to_vec(&foreign).unwrap());
}

#[track_caller]
pub(crate) fn check_schema(name: &str, json: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats/schemas").join(name);
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let value: Value = serde_json::from_slice(json).unwrap();
    if let Err(error) = validator.validate(&value) {
        panic!("{error} at {}", error.instance_path());
    }
}

#[test]
fn a_reader_in_another_language_agrees() {
    let (Some(release), Some(python)) = (Release::make(), tool("python3")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    // The C library has a number of pages that is no power of two.
    let built = build(&[release.dir.path().to_owned(), "/lib/x86_64-linux-gnu/libc.so.6".into()], &layout).unwrap();
    let bundle = Bundle::open(layout.clone(), Some(&built.digest)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/oracles/page_tree_reader.py");
    let (script, root) = (script.to_str().unwrap(), dir.path().to_str().unwrap());
    let largest = built.index.files().max_by_key(|file| file.size).unwrap();
    let leaves = symseal_bundle::pages::leaves(&bundle.read(largest).unwrap(), largest.page_size);
    for index in [0, leaves.len() / 2, leaves.len() - 1] {
        let output = inputs::run(&python, &[script, root, "--page", &largest.path, &index.to_string()]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["bundle"], built.digest.to_string());
        assert_eq!(said["files"], built.index.statistics.files);
        let path: Vec<String> =
            symseal_bundle::pages::proof(&leaves, index as u64).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(said["path"], serde_json::json!(path), "page {index} of {}", leaves.len());
    }
    // It refuses what we refuse.
    let blob = layout.blob_path(&largest.sha256);
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let output = std::process::Command::new(&python).args([script, root]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn oras_copies_and_pulls_the_layout_and_we_read_what_it_wrote() {
    let (Some(release), Some(oras)) = (Release::make(), tool("oras")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    let built = build(&[release.dir.path().to_owned()], &layout).unwrap();
    let seal = symseal_builder::attach_seal(&layout, &built.digest, b"{\"a\":\"seal\"}").unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let source = format!("{}:1.0", text(layout.root()));
    let copied = dir.path().join("copied");
    let target = format!("{}:1.0", text(&copied));
    inputs::run(&oras, &["cp", "-r", "--from-oci-layout", &source, "--to-oci-layout", &target]);
    let copy = LayoutDir::open(&copied).unwrap();
    let bundle = Bundle::open(copy.clone(), None).unwrap();
    assert_eq!(bundle.digest(), Some(built.digest));
    assert_eq!(bundle.seals(), [b"{\"a\":\"seal\"}"]);
    assert_eq!(copy.referrers(&built.digest).unwrap()[0].digest, seal);
    assert!(verify_contents(&bundle, &identify).holds());

    let pulled = dir.path().join("pulled");
    inputs::run(&oras, &["pull", "--oci-layout", &source, "--output", &text(&pulled)]);
    let opened = Bundle::open_pulled(&pulled).unwrap();
    assert_eq!(opened.index(), &built.index);
    let contents = verify_contents(&opened, &identify);
    assert!(contents.holds(), "{:#?}", contents.checks);
    assert!(pulled.join(".build-id/aa/01020304.debug").is_file());

    // A layout that oras wrote takes further bundles.
    let before = copy.manifests().unwrap().len();
    let other = symseal_builder::Options { name: "app".to_owned(), version: "2.0".to_owned(), progress: None };
    symseal_builder::SymbolBundleBuilder::new(other).add_path(release.path("full.so")).build(&copy).unwrap();
    assert_eq!(copy.manifests().unwrap().len(), before + 1);
}
