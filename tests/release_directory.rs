//! One command makes one bundle from a directory of packages and files of three platforms, and its report is right line by
//! line: by llvm's and elfutils' tools.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod program;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use program::{symseal, tool};
use release::ReleaseDirectory;
use release::oracle::{self, Kind};
use serde_json::Value;

const TOOLS: [&str; 4] = ["eu-readelf", "llvm-readobj", "llvm-pdbutil", "llvm-dwarfdump"];

fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value[field].as_str()
}

#[test]
fn one_command_makes_one_bundle_and_its_report_is_right_line_by_line() {
    if !TOOLS.iter().all(|name| tool(name).is_some()) {
        return;
    }
    let release = ReleaseDirectory::make();
    println!("not to be had here: {:?}", release.missing);
    let output = release.root.with_file_name("bundle");
    let root = release.root.display().to_string();
    let arguments = ["bundle", "build", &root, "--name", "release", "--version", "1.0", "--json", "--output"];
    let report = symseal(arguments.iter().copied().chain([output.to_str().expect("UTF-8")])).ok().json();
    let modules = report["modules"].as_array().expect("modules");
    println!("{} modules of {} files", modules.len(), report["inputs"]["files"]);

    let mut seen = BTreeSet::new();
    for module in modules {
        ids_are_those_of_the_tools(&release, module, &mut seen);
    }
    every_release_file_is_accounted_for(&release, &report, &seen);
    orphans_are_those_of_the_tools(&release, &report);
    if release.missing.is_empty() {
        for platform in ["linux", "macos", "windows"] {
            let own = modules.iter().filter(|module| module["platform"] == platform);
            assert!(own.clone().count() > 0, "{platform} has modules");
            let paired = own.filter(|module| !module["debug_file"].is_null() && !module["binary"].is_null());
            assert!(paired.count() > 0, "{platform} has modules with a debug file");
        }
    }

    // The bundle says what the report says.
    let index = symseal(["bundle", "inspect", output.to_str().expect("UTF-8"), "--json"]).ok().json();
    for module in modules {
        let (platform, id) = (text(module, "platform").expect("a platform"), text(module, "debug_id").expect("an id"));
        let entry = &index[platform][id];
        assert_eq!(entry["statistics"], module["statistics"], "{id}");
        assert_eq!(entry["debug_info"], module["debug_info"], "{id}");
    }
}

/// Binary and debug file of a module have its id, by the tool of their format.
fn ids_are_those_of_the_tools(release: &ReleaseDirectory, module: &Value, seen: &mut BTreeSet<std::path::PathBuf>) {
    let id = text(module, "debug_id").expect("an id");
    let kind = text(module, "id_kind").expect("a kind of id");
    for role in ["binary", "debug_file"] {
        let Some(place) = text(module, role) else { continue };
        let file = release.file(place);
        let ids = oracle::debug_ids(&file);
        match kind {
            // These are made by us: no tool has them, and no tool may have another one.
            "text-hash" | "go-build-id" => assert!(ids.is_empty(), "{place}: {id} by {kind}, the tools say {ids:?}"),
            _ => assert!(ids.contains(id), "{place}: {id}, the tools say {ids:?}"),
        }
        seen.insert(file);
    }
    for paired in module["paired"].as_array().expect("paired files") {
        seen.insert(release.file(text(paired, "place").expect("a place")));
    }
}

/// No release file of the inputs is left out in silence.
fn every_release_file_is_accounted_for(
    release: &ReleaseDirectory,
    report: &Value,
    seen: &BTreeSet<std::path::PathBuf>,
) {
    let mut bytes_seen: BTreeSet<Vec<u8>> = BTreeSet::new();
    for file in seen {
        bytes_seen.insert(std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for file in release.files() {
        if oracle::kind(&file) == Kind::Other || seen.contains(&file) {
            continue;
        }
        // A file may be there twice, byte for byte.
        if !bytes_seen.contains(&std::fs::read(&file).expect("a file")) {
            *left_out.entry(file.display().to_string()).or_default() += 1;
        }
    }
    let counted: u64 =
        report["inputs"]["skipped"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    println!("left out: {left_out:?}; skipped: {}", report["inputs"]["skipped"]);
    let objects = left_out.keys().filter(|path| path.ends_with(".o") || path.ends_with(".a")).count();
    assert_eq!(left_out.len(), objects, "{left_out:?}");
    assert!(counted >= left_out.len() as u64, "what is left out is counted");
}

/// A binary without a debug file is one to whose id no debug file among the inputs belongs, and the other way round.
fn orphans_are_those_of_the_tools(release: &ReleaseDirectory, report: &Value) {
    // The same file may be there twice.
    let mut by_id: BTreeMap<String, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for file in release.files() {
        for id in oracle::debug_ids(&file) {
            by_id.entry(id).or_default().insert(std::fs::read(&file).expect("a file"));
        }
    }
    for side in ["binaries_without_debug_files", "debug_files_without_binaries"] {
        let orphans = report[side].as_array().expect("a list");
        println!("{side}: {}", orphans.len());
        for orphan in orphans {
            let Some(id) = text(orphan, "debug_id") else { continue };
            let files = by_id.get(id).map_or(0, BTreeSet::len);
            assert!(files <= 1, "{side}: {id} is the id of {files} files");
        }
    }
}
