//! `--rederive`: tables are made again from the files that they came from.

use serde_json::Value;
use symseal_builder::{Options, SymbolBundleBuilder};

use crate::forged::forge;
use crate::program::{self, symseal};
use crate::scene::Scene;

impl Scene {
    /// The bundle `from` with another table, in `to`.
    fn forge(&self, from: &str, to: &str, producer: &str) {
        forge(&self.path(from), &self.path(to), producer);
    }
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
    let (_, report) = scene.report("bundle", &[]);
    let checks = rederived(&report);
    let not_asked = (1, &"skipped".into(), &"not asked for (--rederive)".into());
    assert_eq!((checks.len(), &checks[0]["status"], &checks[0]["detail"]), not_asked);
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
