//! `--rederive`: tables are made again from the files that they came from.

use serde_json::Value;
use symseal_builder::{Options, SymbolBundleBuilder};
use symseal_bundle::compose::{self, FileFormat};
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::{Bundle, Digest, FileRole, LayoutDir, SymbolIndex, module_index, pages, pieces};
use symseal_module::Rva;
use symseal_symx::{FunctionFlags, FunctionRecord, StrId, Strings, SymbolSource, Table, TableInput};

use crate::program::{self, symseal};
use crate::scene::Scene;

impl Scene {
    /// Puts another table into the bundle `from`, with everything that follows from it, and gives it to `to`: what a
    /// pipeline that was taken over would sign.
    fn forge(&self, from: &str, to: &str, producer: &str) {
        let source = LayoutDir::open(self.path(from)).unwrap();
        let bundle = Bundle::open(source.clone(), None).unwrap();
        let layout = LayoutDir::create(self.path(to)).unwrap();
        let mut index: SymbolIndex = bundle.index().clone();
        let mut all = Vec::new();
        let (id, module) = index.linux.iter_mut().next().unwrap();
        let id = id.parse().unwrap();
        let derived = module.file(FileRole::SymbolTable).unwrap().derived_from[0];
        let base = module.image_base;
        let table = other_table(&id, base, *derived.as_bytes(), producer);
        let json = module_index::write(&Table::open(&table).unwrap(), &module.name).unwrap().json;
        for file in &mut module.files {
            let bytes = match file.role {
                FileRole::SymbolTable => table.clone(),
                FileRole::ModuleIndex => json.clone(),
                _ => bundle.read(file).unwrap(),
            };
            let measured = pages::measure(&bytes, file.page_size);
            layout.write_blob(&bytes).unwrap();
            (file.size, file.sha256, file.page_root) = (measured.size, measured.digest, measured.root);
            file.piece_root = file.piece_root.map(|_| pieces::root(&bytes));
            if file.role == FileRole::ModuleIndex {
                file.derived_from = vec![Digest::of(&table)];
            }
            let page_size = file.page_size;
            let leaves = measured.leaves;
            all.push(FilePages { sha256: measured.digest, page_size, size: measured.size, leaves });
        }
        let bytes = page_hashes::write(&all).unwrap();
        layout.write_blob(&bytes).unwrap();
        let entry = &mut index.shards[0].page_hashes;
        let measured = pages::measure(&bytes, entry.page_size);
        (entry.size, entry.sha256, entry.page_root) = (measured.size, measured.digest, measured.root);
        assert_eq!(entry.media_type, compose::media_type(FileRole::PageHashes, FileFormat::Elf));
        index.statistics.bytes = index.files().map(|file| file.size).sum();
        let composed = compose::compose(&index).unwrap();
        layout.write_blob(oci::EMPTY_JSON).unwrap();
        layout.write_blob(&composed.symbol_index).unwrap();
        for manifest in &composed.manifests {
            layout.write_blob(manifest).unwrap();
        }
        layout.write_blob(&composed.image_index).unwrap();
        layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &composed.image_index), Some("1.0")).unwrap();
    }
}

/// A sound table of the module that names everything `harmless`.
fn other_table(
    id: &symseal_module::DebugId,
    image_base: symseal_module::Svma,
    source_sha256: [u8; 32],
    producer: &str,
) -> Vec<u8> {
    let mut strings = Strings::new();
    let name = strings.intern("harmless");
    let function = FunctionRecord {
        start: Rva(0x1000),
        size: 0x4000,
        name,
        symbol: name,
        aliases: Vec::new(),
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file: StrId(0),
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    let input =
        TableInput { debug_id: id, image_base, source_sha256, producer, strings: &strings, functions: &[function] };
    symseal_symx::write(&input).unwrap()
}

fn rederived(report: &Value) -> Vec<&Value> {
    report["checks"].as_array().unwrap().iter().filter(|check| check["id"] == "table.rederived").collect()
}

#[test]
fn the_tables_of_an_honest_bundle_come_out_again() {
    let Some(scene) = Scene::unsealed() else { return };
    scene.build("bundle", &["inputs/app"], "1.0", &[]);
    scene.seal("bundle");
    let (status, report) = scene.report("bundle", &["--rederive"]);
    assert_eq!((status, &report["verdict"]), (0, &"verified".into()), "{report:#}");
    let checks = rederived(&report);
    assert_eq!((checks.len(), &checks[0]["status"], &checks[0]["found"]), (1, &"passed".into(), &"3 tables".into()));
    assert_eq!(rederived(&scene.report("bundle", &[]).1).len(), 0, "it was not asked for");
    // The other command's face of the same.
    let (bundle, trust) = (scene.at("bundle"), scene.at("trust"));
    let ran = program::run("trace-verify", ["--bundle", &bundle, "--trust", &trust, "--rederive"]).ok();
    assert!(ran.stdout.contains("table.rederived"), "{}", ran.stdout);
}

#[test]
fn a_signed_but_wrong_table_is_refused_by_its_own_check() {
    let Some(scene) = Scene::unsealed() else { return };
    scene.build("bundle", &["inputs/app"], "1.0", &[]);
    scene.forge("bundle", "forged", symseal_builder::PRODUCER);
    scene.seal("forged");
    // The seal holds, and every digest: only making the table again tells.
    let (status, report) = scene.report("forged", &[]);
    assert_eq!((status, &report["verdict"]), (0, &"verified".into()), "{report:#}");
    let (status, report) = scene.report("forged", &["--rederive"]);
    assert_eq!((status, &report["verdict"]), (1, &"refused".into()), "{report:#}");
    let failed: Vec<&Value> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "failed").collect();
    assert!(failed.iter().all(|check| check["id"] == "table.rederived"), "{failed:#?}");
    let details: Vec<&str> = failed.iter().map(|check| check["detail"].as_str().unwrap()).collect();
    assert!(details.iter().any(|detail| detail.contains(".symx")), "{details:?}");
}

#[test]
fn a_table_by_another_version_is_said_to_be_not_comparable() {
    let Some(scene) = Scene::unsealed() else { return };
    scene.build("bundle", &["inputs/app"], "1.0", &[]);
    scene.forge("bundle", "older", "symseal 0.0.9");
    scene.seal("older");
    let (status, report) = scene.report("older", &["--rederive"]);
    let checks = rederived(&report);
    let skipped: Vec<&str> = checks
        .iter()
        .filter(|check| check["status"] == "skipped")
        .map(|check| check["detail"].as_str().unwrap())
        .collect();
    assert_eq!(skipped.len(), 1, "{report:#}");
    assert!(skipped[0].starts_with("not comparable: made by symseal 0.0.9, and this is symseal "), "{skipped:?}");
    assert!(report["not_checked"].as_array().unwrap().iter().any(|check| check["id"] == "table.rederived"));
    // The module's index comes from that table; the unwind table is ours, and was made again.
    assert!(skipped[0].contains(".symx") && skipped[0].contains("symbol_index/"), "{skipped:?}");
    assert_eq!((status, &report["verdict"]), (0, &"verified".into()));
    assert!(checks.iter().any(|check| check["found"] == "1 tables"), "{report:#}");
}

#[test]
fn a_file_that_the_bundle_does_not_hold_is_taken_from_the_inputs_or_missed_by_name() {
    let Some(scene) = Scene::unsealed() else { return };
    let Some(objcopy) = program::tool("objcopy") else { return };
    let run = |option: &str, to: &str| {
        let status =
            std::process::Command::new(&objcopy).arg(option).arg(scene.path("inputs/app")).arg(scene.path(to)).status();
        assert!(status.unwrap().success());
    };
    std::fs::create_dir_all(scene.path("release/deep")).unwrap();
    run("--only-keep-debug", "release/app.debug");
    run("--strip-all", "release/deep/app");
    let release = Options { name: "app".into(), version: "1.0".into(), progress: None };
    let builder = SymbolBundleBuilder::new(release).add_path(scene.path("release")).executables(false);
    builder.build_into(&scene.path("bundle")).unwrap();
    scene.seal("bundle");
    let (status, report) = scene.report("bundle", &["--rederive"]);
    let checks = rederived(&report);
    assert_eq!((status, checks.len(), &checks[0]["status"]), (0, 1, &"skipped".into()), "{report:#}");
    let why = checks[0]["detail"].as_str().unwrap();
    assert!(why.starts_with("not checked: app (sha256:") && why.contains("nor among the inputs"), "{why}");
    let release = scene.at("release");
    let (status, report) = scene.report("bundle", &["--rederive", "--inputs", &release]);
    let checks = rederived(&report);
    assert_eq!((status, checks.len(), &checks[0]["status"]), (0, 1, &"passed".into()), "{report:#}");
    symseal(["bundle", "verify", "x", "--inputs", "y"]).refused(2, &["--rederive"]);
}
