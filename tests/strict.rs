//! `--strict` by the command line: exit status 1, the report printed, and no bundle.

use std::path::Path;
use std::process::Command;

use crate::program::{Ran, compile_c, symseal, tool};

const SOURCE: &str = "int main(int argc, char **argv) { (void)argv; return argc * 3; }\n";

fn build(paths: &[&Path], output: &Path, more: &[&str]) -> Ran {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    let arguments = ["--name", "app", "--version", "1.0", "--output", output.to_str().unwrap(), "--strict"];
    symseal(["bundle", "build"].into_iter().chain(paths).chain(arguments).chain(more.iter().copied()))
}

/// A binary of this build-id, stripped, and its debug file.
fn pair(dir: &Path, name: &str, id: &str) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    let (objcopy, strip) = (tool("objcopy")?, tool("strip")?);
    let binary = compile_c(dir, name, SOURCE, &["-g", &format!("-Wl,--build-id=0x{id}")])?;
    let debug = dir.join(format!("{name}.debug"));
    let run = |command: &mut Command| assert!(command.status().expect("it starts").success());
    run(Command::new(objcopy).arg("--only-keep-debug").args([&binary, &debug]));
    run(Command::new(strip).arg(&binary));
    Some((binary, debug))
}

#[test]
fn a_module_without_its_counterpart_fails_with_status_1_and_the_report() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some((binary, debug)) = pair(dir.path(), "app", "aa01020304") else { return };
    let output = dir.path().join("bundle");
    let told = build(&[&binary], &output, &["--json"]).refused(1, &["1 unpaired file, which", "--strict"]);
    let report = told.json();
    assert_eq!(report["binaries_without_debug_files"][0]["debug_id"], "aa01020304", "{report}");
    assert_eq!(report["bundle"], serde_json::Value::Null);
    let told = build(&[&debug], &output, &[]).refused(1, &["1 unpaired file"]);
    assert!(told.stdout.contains("unpaired: debug file"), "{}", told.stdout);
    assert!(!output.exists());
    build(&[&binary, &debug], &output, &[]).ok();
    // The same without writing.
    build(&[&binary], &output, &["--dry-run"]).refused(1, &["1 unpaired file"]);
}

#[test]
fn a_debug_file_of_another_build_fails_with_status_1_and_both_ids() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    std::fs::create_dir_all(&first).unwrap();
    std::fs::create_dir_all(&second).unwrap();
    let Some((binary, _)) = pair(&first, "app", "aa01020304") else { return };
    let Some((_, debug)) = pair(&second, "app", "bb01020304") else { return };
    let output = dir.path().join("bundle");
    let told = build(&[&binary, &debug], &output, &["--json"]).refused(1, &["1 mismatched file", "--strict"]);
    let mismatch = &told.json()["mismatches"][0];
    assert_eq!((&mismatch["expected"], &mismatch["found"]), (&"aa01020304".into(), &"bb01020304".into()));
    let shown = build(&[&binary, &debug], &output, &[]).refused(1, &["1 mismatched file"]).stdout;
    assert!(shown.contains("expected aa01020304, found bb01020304"), "{shown}");
    assert!(!output.exists());
}

#[test]
fn inputs_without_a_module_fail_with_status_2_and_as_json_with_a_report_of_what_is_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("notes.txt"), "no release file").unwrap();
    let output = dir.path().join("bundle");
    let said = &["expected at least one executable", "(1 other file)"];
    for more in [&["--json"][..], &["--json", "--dry-run"]] {
        let report = build(&[dir.path()], &output, more).refused(2, said).json();
        assert_eq!((&report["inputs"]["files"], &report["modules"]), (&1.into(), &serde_json::json!([])), "{report}");
    }
    assert_eq!(build(&[dir.path()], &output, &[]).refused(2, said).stdout, "");
    assert!(!output.exists());
}

#[test]
fn inputs_that_contradict_each_other_fail_with_status_2_and_a_report_of_all_of_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut binaries = Vec::new();
    for (number, id) in ["aa01020304", "aa01020304", "bb01020304", "bb01020304"].into_iter().enumerate() {
        let source = format!("int main(void) {{ return {number}; }}\n");
        let flags = ["-g", &format!("-Wl,--build-id=0x{id}")];
        let Some(binary) = compile_c(dir.path(), &format!("app{number}"), &source, &flags) else { return };
        binaries.push(binary);
    }
    let paths: Vec<&Path> = binaries.iter().map(std::path::PathBuf::as_path).collect();
    let output = dir.path().join("bundle");
    let told = ["both claim to be the executable file of", "1 more pair contradicts each other", "--exclude"];
    for more in [&["--json"][..], &["--json", "--dry-run"]] {
        let report = build(&paths, &output, more).refused(2, &told).json();
        let places = report["conflicts"].as_array().unwrap().iter().flat_map(|one| [&one["first"], &one["second"]]);
        let mut places: Vec<&str> = places.map(|place| place.as_str().unwrap()).collect();
        places.sort_unstable();
        assert!(places.iter().eq(binaries.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>().iter()));
        assert_eq!(report["bundle"], serde_json::Value::Null);
    }
    let shown = build(&paths, &output, &["--dry-run"]).refused(2, &told).stdout;
    assert_eq!(shown.lines().filter(|line| line.contains("both claim to be the executable file of")).count(), 2);
    assert!(!output.exists());
}

#[test]
fn a_pattern_that_left_out_nothing_is_warned_of() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some((binary, debug)) = pair(dir.path(), "app", "aa01020304") else { return };
    let patterns = ["--exclude", "/nowhere/sub/", "--exclude", "*.debug"];
    let told = build(&[&binary, &debug], &dir.path().join("bundle"), &[&patterns[..], &["--dry-run"]].concat());
    let shown = told.refused(1, &["1 unpaired file"]).stdout;
    assert!(shown.contains("warning: --exclude /nowhere/sub/ matched nothing"), "{shown}");
    assert!(!shown.contains("*.debug matched nothing"), "{shown}");
}
