//! One command makes one bundle from a directory of packages and files of three platforms, and its report is right line by
//! line: by llvm's and elfutils' tools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::program::{required, symseal, tool};
use crate::release::ReleaseDirectory;
use crate::release::oracle::{self, Facts, Half, Kind};
use serde_json::Value;

const TOOLS: [&str; 4] = ["eu-readelf", "llvm-readobj", "llvm-pdbutil", "llvm-dwarfdump"];

fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value[field].as_str()
}

/// What the tools say of every release file among the inputs, byte for byte each once.
struct Oracle {
    /// Every name of each.
    files: BTreeMap<Vec<u8>, (BTreeSet<PathBuf>, BTreeSet<String>, Facts)>,
    /// Regular files in all, members of archives included.
    count: usize,
}

impl Oracle {
    fn of(release: &ReleaseDirectory) -> Self {
        let mut oracle = Self { files: BTreeMap::new(), count: 0 };
        for path in release.files() {
            oracle.count += 1;
            // Input of linkers: no module.
            if oracle::kind(&path) == Kind::Other || path.extension().is_some_and(|ending| ending == "o") {
                continue;
            }
            let bytes = std::fs::read(&path).expect("a file");
            let entry = oracle
                .files
                .entry(bytes)
                .or_insert_with(|| (BTreeSet::new(), oracle::debug_ids(&path), oracle::facts(&path)));
            entry.0.insert(path);
        }
        oracle
    }

    fn file(&self, path: &Path) -> &(BTreeSet<PathBuf>, BTreeSet<String>, Facts) {
        let found = self.files.values().find(|(paths, ..)| paths.contains(path));
        found.unwrap_or_else(|| panic!("{} is no release file", path.display()))
    }

    /// The files of an id.
    fn halves(&self, id: &str, half: Half) -> impl Iterator<Item = &Facts> {
        self.files
            .values()
            .filter(move |(_, ids, facts)| ids.contains(id) && facts.half == half)
            .map(|(.., facts)| facts)
    }

    fn ids(&self) -> BTreeSet<&str> {
        self.files.values().flat_map(|(_, ids, _)| ids).map(String::as_str).collect()
    }
}

#[test]
fn one_command_makes_one_bundle_and_its_report_is_right_line_by_line() {
    if !TOOLS.iter().all(|name| tool(name).is_some()) {
        return;
    }
    let release = ReleaseDirectory::make();
    for missing in &release.missing {
        assert!(!required("packages"), "{missing} is required and was not to be had");
        println!("SKIP packages: {missing} was not to be had; the rest is looked at");
    }
    let output = release.root.with_file_name("bundle");
    let root = release.root.display().to_string();
    let arguments = ["bundle", "build", &root, "--name", "release", "--version", "1.0", "--json", "--output"];
    let report = symseal(arguments.iter().copied().chain([output.to_str().expect("UTF-8")])).ok().json();
    let modules = report["modules"].as_array().expect("modules");
    println!("{} modules of {} files", modules.len(), report["inputs"]["files"]);

    let oracle = Oracle::of(&release);
    for module in modules {
        ids_are_those_of_the_tools(&release, &oracle, module);
        is_what_the_tools_say(&release, &oracle, module);
    }
    the_modules_are_those_of_the_tools(&oracle, modules);
    orphans_are_those_of_the_tools(&oracle, &report);
    counts_are_right(&release, &oracle, &report);
    if release.missing.is_empty() {
        for platform in ["linux", "macos", "windows"] {
            let own = modules.iter().filter(|module| module["platform"] == platform);
            assert!(own.clone().count() > 0, "{platform} has modules");
            let paired = own.filter(|module| !module["debug_file"].is_null() && !module["binary"].is_null());
            assert!(paired.count() > 0, "{platform} has modules with a debug file");
        }
        let kinds: BTreeSet<&str> = modules.iter().filter_map(|module| text(module, "debug_info")).collect();
        assert_eq!(kinds, BTreeSet::from(["full", "line-tables", "none", "symbols"]), "one of each kind is there");
        assert!(modules.iter().any(|module| module["mini_debug_info"] == true));
    }

    // The bundle says what the report says.
    let index = symseal(["bundle", "inspect", output.to_str().expect("UTF-8"), "--json"]).ok().json();
    let entries = ["linux", "macos", "windows"].iter().filter_map(|platform| index[*platform].as_object());
    assert_eq!(entries.map(serde_json::Map::len).sum::<usize>(), modules.len());
    for module in modules {
        let (platform, id) = (text(module, "platform").expect("a platform"), text(module, "debug_id").expect("an id"));
        let entry = &index[platform][id];
        for field in ["name", "arch", "debug_info", "stripped", "statistics"] {
            assert_eq!(entry[field], module[field], "{id}: {field}");
        }
    }
}

/// Binary and debug file of a module have its id, by the tool of their format.
fn ids_are_those_of_the_tools(release: &ReleaseDirectory, oracle: &Oracle, module: &Value) {
    let id = text(module, "debug_id").expect("an id");
    let kind = text(module, "id_kind").expect("a kind of id");
    for role in ["binary", "debug_file"] {
        let Some(place) = text(module, role) else { continue };
        let (_, ids, _) = oracle.file(&release.file(place));
        match kind {
            // These are made by us: no tool has them, and no tool may have another one.
            "text-hash" | "go-build-id" => assert!(ids.is_empty(), "{place}: {id} by {kind}, the tools say {ids:?}"),
            _ => assert!(ids.contains(id), "{place}: {id}, the tools say {ids:?}"),
        }
    }
}

/// Architecture, debug information, symbols, how it was paired, unwind entries.
fn is_what_the_tools_say(release: &ReleaseDirectory, oracle: &Oracle, module: &Value) {
    let id = text(module, "debug_id").expect("an id");
    let facts = |role: &str| text(module, role).map(|place| &oracle.file(&release.file(place)).2);
    let (binary, debug) = (facts("binary"), facts("debug_file"));
    let both = || [binary, debug].into_iter().flatten();
    // A file may be both halves: an unstripped twin of what is shipped is its debug file.
    assert!(binary.is_none_or(|facts| facts.half == Half::Binary), "{id}: {binary:?}");
    assert!(debug.is_none_or(|facts| binary.is_some() || facts.half == Half::DebugFile), "{id}: {debug:?}");

    let arch = match text(module, "arch").expect("an architecture") {
        "x86" => "i386",
        "arm64e" => "aarch64",
        arch => arch,
    };
    assert!(both().all(|facts| facts.arch.contains(arch)), "{id}: {arch}, the tools say {binary:?} {debug:?}");

    let mini = both().any(|facts| facts.has_mini_debug_info);
    assert_eq!(module["mini_debug_info"], binary.is_some_and(|facts| facts.has_mini_debug_info), "{id}");
    if text(module, "format") == Some("elf") {
        let expected = if both().any(|facts| facts.has_debug_info && facts.has_types) {
            "full"
        } else if both().any(|facts| facts.has_debug_info) {
            "line-tables"
        } else if both().any(|facts| facts.has_symtab) || mini {
            "symbols"
        } else {
            "none"
        };
        assert_eq!(text(module, "debug_info"), Some(expected), "{id}: {binary:?} {debug:?}");
        let stripped = binary.is_some_and(|facts| !facts.has_debug_info && !facts.has_symtab);
        assert_eq!(module["stripped"], stripped, "{id}: {binary:?}");
    } else if debug.is_some() {
        assert_eq!(text(module, "debug_info"), Some("full"), "{id}: {debug:?}");
    }

    let ways: BTreeSet<&str> = module["paired"]
        .as_array()
        .expect("paired files")
        .iter()
        .filter(|file| file["role"] == "debug-file" || file["role"] == "pdb")
        .filter_map(|file| text(file, "paired_by"))
        .collect();
    let expected = match text(module, "platform") {
        _ if binary.is_none() || debug.is_none() => BTreeSet::new(),
        Some("linux") => BTreeSet::from(["build-id"]),
        Some("windows") => BTreeSet::from(["guid-age"]),
        _ => BTreeSet::from(["uuid"]),
    };
    assert_eq!(ways, expected, "{id}");

    let unwind = &module["unwind"];
    let frames = binary.filter(|_| unwind["none_because"].is_null() && !both().any(|facts| facts.has_debug_frame));
    if let Some(fdes) = frames.and_then(|facts| facts.fdes) {
        assert_eq!(unwind["fdes"], fdes, "{id}: frame description entries");
    }
}

/// Every id that a tool finds in the inputs is a module, and every module that has an id of a linker is one of them.
fn the_modules_are_those_of_the_tools(oracle: &Oracle, modules: &[Value]) {
    let made_here = |module: &&Value| matches!(text(module, "id_kind"), Some("text-hash" | "go-build-id"));
    let told: BTreeSet<&str> =
        modules.iter().filter(|module| !made_here(module)).filter_map(|module| text(module, "debug_id")).collect();
    assert_eq!(told, oracle.ids());
    let without_id = oracle.files.values().filter(|(_, ids, _)| ids.is_empty()).count();
    assert_eq!(modules.iter().filter(made_here).count(), without_id, "a module for each binary without an id");
}

/// A binary without a debug file is one that needs one and to whose id no debug file belongs, and every such binary is told; and
/// the other way round.
fn orphans_are_those_of_the_tools(oracle: &Oracle, report: &Value) {
    let told = |side: &str| -> BTreeSet<&str> {
        let orphans = report[side].as_array().expect("a list").iter();
        orphans.filter_map(|orphan| text(orphan, "debug_id")).filter(|id| oracle.ids().contains(id)).collect()
    };
    let (mut binaries, mut debug_files) = (BTreeSet::new(), BTreeSet::new());
    for id in oracle.ids() {
        let mut own = oracle.halves(id, Half::Binary).peekable();
        let has_debug_file = oracle.halves(id, Half::DebugFile).next().is_some();
        match own.peek().is_some() {
            // Go's function table has the lines as well.
            true if !has_debug_file && !own.any(|facts| facts.has_debug_info || facts.is_go) => {
                binaries.insert(id);
            }
            true => {}
            false => drop(debug_files.insert(id)),
        }
    }
    println!("{} binaries without debug files, {} the other way round", binaries.len(), debug_files.len());
    assert!(binaries.len() > 1 && !debug_files.is_empty(), "there are some of both");
    assert_eq!(told("binaries_without_debug_files"), binaries);
    assert_eq!(told("debug_files_without_binaries"), debug_files);
}

/// No file of the inputs is left out in silence, and the figures are those of what is listed.
fn counts_are_right(release: &ReleaseDirectory, oracle: &Oracle, report: &Value) {
    let modules = report["modules"].as_array().expect("modules");
    let places = modules.iter().flat_map(|module| {
        let paired = module["paired"].as_array().expect("paired files").iter();
        text(module, "binary").into_iter().chain(paired.filter_map(|file| text(file, "place")))
    });
    let seen: BTreeSet<PathBuf> = places.map(|place| release.file(place)).collect();
    for (paths, ..) in oracle.files.values() {
        assert_eq!(paths.intersection(&seen).count(), 1, "one of these is taken, whatever it is called: {paths:?}");
    }
    let inputs = &report["inputs"];
    assert_eq!(inputs["files"], oracle.count, "files that were looked at");
    let bytes: usize = oracle.files.keys().map(Vec::len).sum();
    let members: u64 = seen
        .iter()
        .filter(|path| oracle::kind(path) == Kind::Other)
        .map(|path| path.metadata().expect("a file").len())
        .sum();
    assert_eq!(inputs["bytes"], bytes as u64 + members, "bytes of what is taken");
    let skipped = inputs["skipped"].as_object().expect("reasons").iter();
    let links = ["symbolic link", "hard link to another member", "archive or package that is not looked into"];
    let skipped = skipped.filter(|(reason, _)| !links.contains(&reason.as_str()));
    let skipped: u64 = skipped.filter_map(|(_, count)| count.as_u64()).sum();
    let [taken, doubles] = ["taken", "doubles"].map(|field| inputs[field].as_u64().expect("a count"));
    assert_eq!(taken + doubles + skipped, oracle.count as u64, "each file is taken, a double, or skipped: {inputs}");
    let unwind = &report["unwind"];
    for field in ["rows", "table_bytes", "text_bytes", "covered_bytes", "unsupported"] {
        let sum: u64 = modules.iter().filter_map(|module| module["unwind"][field].as_u64()).sum();
        assert_eq!(unwind[field], sum, "unwind {field} of all modules");
    }
    let without: u64 = unwind["none_because"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    assert_eq!(unwind["modules"].as_u64().expect("a count") + without, modules.len() as u64);
}
