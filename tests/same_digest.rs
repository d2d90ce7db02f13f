//! One release, one digest: of ELF, PE with PDB and Mach-O with its dSYM, loose and in archives, whoever builds it and how.

use std::path::Path;
use std::process::Command;

use crate::program::{command, tool};
use crate::three_systems;

/// The bundle's digest, built in a shell with this environment and umask.
fn digest(inputs: &Path, layout: &Path, jobs: &str, (zone, locale, umask): (&str, &str, &str)) -> String {
    let symseal = command("symseal");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(symseal.get_program());
    shell.args(["bundle", "build"]).arg(inputs).args(["--name", "app", "--version", "1.0", "--jobs", jobs, "--json"]);
    shell.arg("--output").arg(layout).env("TZ", zone).env("LC_ALL", locale);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["bundle"].as_str().unwrap().to_owned()
}

#[test]
fn programs_of_three_systems_give_one_digest_wherever_and_however_they_are_built() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    std::fs::create_dir(at("inputs")).unwrap();
    let (Some(()), Some(tar), Some(zip)) = (three_systems::make(&at("inputs")), tool("tar"), tool("zip")) else {
        return;
    };
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).current_dir(at("inputs")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let expected = digest(&at("inputs"), &at("first"), "2", ("UTC", "C", "022"));
    // A copy elsewhere, at another time, in other folders; by one thread and by many.
    std::fs::create_dir_all(at("copy/deep/er")).unwrap();
    run(Path::new("cp"), &["-r", ".", at("copy/deep/er").to_str().unwrap()]);
    for (number, jobs, told) in
        [("a", "1", ("Asia/Kathmandu", "tr_TR.UTF-8", "077")), ("b", "7", ("Pacific/Apia", "C.UTF-8", "000"))]
    {
        assert_eq!(digest(&at("copy"), &at(number), jobs, told), expected, "{told:?}");
    }
    // In archives, whose members come in other orders.
    std::fs::create_dir(at("packed")).unwrap();
    run(&tar, &["-caf", at("packed/windows.tar.gz").to_str().unwrap(), "app.pdb", "app.dll"]);
    run(&zip, &["-qr", at("packed/rest.zip").to_str().unwrap(), "app.dylib.dSYM", "app.dylib", "app.debug", "app"]);
    assert_eq!(digest(&at("packed"), &at("c"), "2", ("UTC", "C", "027")), expected, "from archives");
}
