//! `symseal explain`: the trail of one name, and the rule and record by which a caller is found, in words and as JSON.

use crate::program;
use std::process::Command;

use crate::program::{symseal, tool};
use serde_json::Value;

const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
__attribute__((noinline)) int seen(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int also_seen(int x, volatile int *y) __attribute__((alias(\"seen\")));
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return seen(argc, &y); }
";

struct Scene {
    root: tempfile::TempDir,
    id: String,
    /// The address of `seen`, as nm has it.
    address: String,
}

impl Scene {
    fn new() -> Option<Self> {
        let (nm, root) = (tool("nm")?, tempfile::tempdir().unwrap());
        let app = program::compile_c(root.path(), "app", SOURCE, &["-g", "-O1", "-Wl,--build-id"])?;
        let symbols = Command::new(nm).arg(&app).output().unwrap().stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        let line = symbols.lines().find(|line| line.ends_with(" seen")).expect("the function");
        let address = format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'));
        let mut scene = Self { root, id: String::new(), address };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        let (key, log) = (scene.at("keys/artifact.pub.pem"), scene.at("log"));
        symseal(["trust", "init", "--trust", &scene.at("trust"), "--key", &key, "--name", "app", "--log", &log]).ok();
        let named = ["--name", "app", "--version", "1", "--output"];
        symseal(["bundle", "build", &scene.at("app")].into_iter().chain(named).chain([scene.at("bundle").as_str()]))
            .ok();
        let (key, log_key) = (scene.at("keys/artifact.key.pem"), scene.at("keys/log.key.pem"));
        symseal(["bundle", "seal", &scene.at("bundle"), "--key", &key, "--log", &log, "--log-key", &log_key]).ok();
        let index = symseal(["bundle", "inspect", &scene.at("bundle"), "--json"]).ok().json();
        scene.id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    fn explain(&self, address: &str, more: &[&str]) -> program::Ran {
        let bundle = self.at("bundle");
        symseal(["explain", "symbol", &bundle, &self.id, address].iter().chain(more))
    }
}

fn steps(found: &Value) -> Vec<(String, String)> {
    let tried = found["tried"].as_array().unwrap().iter();
    tried.map(|one| (one["step"].as_str().unwrap().to_owned(), one["outcome"].to_string())).collect()
}

#[test]
fn the_other_names_of_a_function_are_told() {
    let Some(scene) = Scene::new() else { return };
    let found = scene.explain(&scene.address, &["--json"]).ok().json();
    let names = |found: &Value| {
        let symbol = &found["frames"].as_array().unwrap().last().unwrap()["symbol"];
        let mut names = vec![symbol.as_str().unwrap().to_owned()];
        names.extend(found["aliases"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()));
        names.sort();
        names
    };
    assert_eq!(names(&found), ["also_seen", "seen"]);
    let told = scene.explain(&scene.address, &[]).ok().stdout;
    assert!(told.contains("also called "), "{told}");
    // As the index lists them, and wherever the module is read.
    let asked = ["symbolize", "--json", "--bundle", &scene.at("bundle"), "--debug-id", &scene.id, &scene.address];
    assert_eq!(names(&symseal(asked).ok().json()), ["also_seen", "seen"]);
    let file = symseal(["symbolize", "--json", "--file", &scene.at("app"), &scene.address]).ok().json();
    assert_eq!(names(&file), ["also_seen", "seen"]);
}

#[test]
fn a_sealed_name_rests_on_the_bundle_and_says_so() {
    let Some(scene) = Scene::new() else { return };
    let trust = scene.at("trust");
    let found = scene.explain(&scene.address, &["--trust", &trust, "--json"]).ok().json();
    assert_eq!(
        (&found["resolver"], &found["proof"], &found["quality"]),
        (&"local-bundle".into(), &"sealed".into(), &"full".into())
    );
    let expected = [("debuginfod", r#"{"skipped":"offline"}"#), ("local-bundle", r#""hit""#)];
    assert_eq!(steps(&found), expected.map(|(step, outcome)| (step.to_owned(), outcome.to_owned())));
    let of: Vec<&str> = found["digests"].as_array().unwrap().iter().map(|one| one["of"].as_str().unwrap()).collect();
    assert_eq!(of, ["bundle", "symbol-index", "symbol-table", "source"]);
    let told = scene.explain(&scene.address, &["--trust", &trust]).ok().stdout;
    for part in ["seen at ", "local-bundle  answered", "skipped: offline", "proof    sealed", "symbol-table   sha256:"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Nobody's word but the index's.
    let unsealed = scene.explain(&scene.address, &["--json"]).ok().json();
    assert_eq!(unsealed["proof"], "digest-known");
    // A trust directory that trusts nobody here.
    symseal(["key", "generate", "--output", &scene.at("others")]).ok();
    let (key, log, other) = (scene.at("others/artifact.pub.pem"), scene.at("other-log"), scene.at("other-trust"));
    symseal(["trust", "init", "--trust", &other, "--key", &key, "--name", "app", "--log", &log]).ok();
    scene.explain(&scene.address, &["--trust", &other]).refused(1, &["refused"]);
}

#[test]
fn the_files_of_this_machine_come_after_the_bundle_and_prove_nothing() {
    let Some(scene) = Scene::new() else { return };
    let app = scene.at("app");
    // Where no function is, every step says why.
    let nowhere = scene.explain("0x10", &["--file", &app, "--json"]);
    assert_eq!(nowhere.status, 1, "{nowhere:?}");
    let found = nowhere.json();
    let asked: Vec<String> = steps(&found).into_iter().map(|(step, _)| step).collect();
    assert_eq!(
        asked,
        ["debuginfod", "local-bundle", "debug-file", "binary-debug-info", "binary-symbols", "module-offset"]
    );
    assert_eq!((&found["reason"], &found["proof"]), (&"no-symbol-at-address".into(), &"none".into()));
    let told = scene.explain("0x10", &["--file", &app]);
    assert!(told.stdout.contains("0x10  has no name: The table has no function at this address."), "{told:?}");
    // A module that the bundle does not have, in a file that is of it.
    let other =
        program::compile_c(&scene.root.path().join("."), "other", SOURCE, &["-g", "-O2", "-Wl,--build-id"]).unwrap();
    let id = {
        let named = ["--name", "other", "--version", "1", "--output"];
        let layout = scene.at("other-bundle");
        symseal(["bundle", "build", other.to_str().unwrap()].into_iter().chain(named).chain([layout.as_str()])).ok();
        let index = symseal(["bundle", "inspect", &layout, "--json"]).ok().json();
        index["linux"].as_object().unwrap().keys().next().unwrap().clone()
    };
    let symbols = Command::new("nm").arg(&other).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let main = symbols.lines().find(|line| line.ends_with(" main")).unwrap().split(' ').next().unwrap().to_owned();
    let (bundle, file) = (scene.at("bundle"), other.to_str().unwrap());
    let found = symseal(["explain", "symbol", &bundle, &id, &main, "--file", file, "--json"]).ok().json();
    assert_eq!((&found["resolver"], &found["proof"]), (&"binary-debug-info".into(), &"none".into()), "{found:#}");
    assert_eq!(found["frames"][0]["function"], "main");
    // The file must be of the module that was asked for.
    let wrong = symseal(["explain", "symbol", &bundle, &id, &main, "--file", &app, "--json"]);
    assert_eq!((wrong.status, &wrong.json()["reason"]), (1, &"debug-id-mismatch".into()));
}

/// A row of readelf's interpreted call frame information.
struct Interpreted {
    /// The offset of the FDE.
    record: u64,
    address: u64,
    /// Column and text: `CFA` `rsp+16`, `rbx` `c-24`, `ra` `c-8`.
    columns: Vec<(String, String)>,
}

/// Every row of every FDE of `.eh_frame`, as readelf reads it.
fn interpreted(file: &str) -> Vec<Interpreted> {
    let output = Command::new("readelf").args(["--wide", "-wF", file]).output().unwrap().stdout;
    let text = String::from_utf8(output).unwrap();
    let (mut record, mut names, mut rows) = (None, Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [offset, _, _, kind @ ("FDE" | "CIE"), ..] => {
                record = u64::from_str_radix(offset, 16).ok().filter(|_| *kind == "FDE");
            }
            [_, "ZERO", "terminator"] => record = None,
            ["LOC", columns @ ..] => names = columns.iter().map(|name| (*name).to_owned()).collect(),
            [address, texts @ ..] if texts.len() == names.len() => {
                let Some(record) = record else { continue };
                let columns = names.iter().cloned().zip(texts.iter().map(|text| (*text).to_owned())).collect();
                rows.push(Interpreted { record, address: u64::from_str_radix(address, 16).unwrap(), columns });
            }
            _ => {}
        }
    }
    rows
}

#[test]
fn a_rule_and_its_record_are_those_that_readelf_reads() {
    let Some(_) = tool("readelf") else { return };
    let root = tempfile::tempdir().unwrap();
    let source = "
        int other(int *);
        int work(int a, int b, int c) {
            int z[40]; z[0] = a;
            int first = other(z), second = other(z + b), third = other(z + c);
            return first * a + second * b + third * c;
        }
        int other(int *p) { return __builtin_printf(\"%d\", *p); }
        int main(int argc, char **argv) { (void)argv; return work(argc, 2, 3); }";
    let Some(app) = program::compile_c(root.path(), "app", source, &["-g", "-O1", "-fno-inline", "-Wl,--build-id"])
    else {
        return;
    };
    let (app, layout) = (app.to_str().unwrap(), root.path().join("bundle").display().to_string());
    symseal(["bundle", "build", app, "--name", "app", "--version", "1", "--output", &layout]).ok();
    let index = symseal(["bundle", "inspect", &layout, "--json"]).ok().json();
    let id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
    let explain = |address: u64, more: &[&str]| {
        symseal(["explain", "unwind", &layout, &id, &format!("{address:#x}")].iter().chain(more))
    };
    let (rows, mut compared, mut saved) = (interpreted(app), 0, 0);
    for row in &rows {
        // Linkage tables have a rule of their own, and where the return address is undefined the stack ends.
        let cfa = &row.columns[0].1;
        if cfa == "exp" || row.columns.iter().any(|(_, text)| text == "exp" || text == "u") {
            continue;
        }
        let found = explain(row.address, &["--json"]).ok().json();
        if found["source"]["kind"] == "plt" {
            continue;
        }
        assert!(found["source"].is_object(), "{:#x} {:?}: {found:#}", row.address, row.columns);
        let source = (found["source"]["kind"].as_str().unwrap(), found["source"]["offset"].as_str().unwrap());
        assert_eq!(source, ("eh-frame", format!("{:#x}", row.record).as_str()), "{found:#}");
        let equations = found["row"]["equations"].as_str().unwrap();
        assert!(equations.starts_with(&format!("CFA = {cfa}; RA = [CFA-8]")), "{cfa}: {found:#}");
        for (register, text) in row.columns.iter().skip(1).filter(|(register, _)| register != "ra") {
            let expected = text.strip_prefix('c').map_or("unchanged".to_owned(), |at| format!("[CFA{at}]"));
            assert_eq!(found["row"]["registers"][register], expected, "{register}: {found:#}");
            saved += u32::from(expected != "unchanged");
        }
        compared += 1;
    }
    assert!(compared > 12 && saved > 8, "{compared} rows, {saved} saved registers");

    // The function's rules, one after the other.
    let work = rows.iter().max_by_key(|row| rows.iter().filter(|other| other.record == row.record).count()).unwrap();
    let of_record: Vec<String> =
        rows.iter().filter(|row| row.record == work.record).map(|row| format!("{:#x}", row.address)).collect();
    let found = explain(work.address, &["--record", "--json"]).ok().json();
    let starts: Vec<&str> =
        found["record"].as_array().unwrap().iter().map(|row| row["start"].as_str().unwrap()).collect();
    assert_eq!(starts, of_record, "{found:#}");
    let told = explain(work.address, &["--record"]).ok().stdout;
    for part in ["work at ", "CFA", "the FDE at .eh_frame+", "in force", "rbx", "proof    digest-known", "unwind-table"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Where nothing is said, that is said.
    let nowhere = explain(0x10, &[]);
    assert!(nowhere.status == 1 && nowhere.stdout.contains("no code at this address"), "{nowhere:?}");
    symseal(["explain", "unwind", &layout, "0011", "0x10"]).refused(1, &["has no module 0011"]);
}

#[test]
fn a_seal_that_is_asked_for_stands_behind_every_name_that_symbolize_gives() {
    let Some(scene) = Scene::new() else { return };
    let (bundle, trust, asked) = (scene.at("bundle"), scene.at("trust"), format!("{}@{}", scene.id, scene.address));
    let found = symseal(["symbolize", "--bundle", &bundle, "--trust", &trust, "--json", &asked]).ok().json();
    assert_eq!(found["proof"], "sealed", "{found}");
    let without = symseal(["symbolize", "--bundle", &bundle, "--json", &asked]).ok().json();
    assert_eq!((&without["proof"], &without["frames"]), (&"digest-known".into(), &found["frames"]));
    // Nothing is named from a bundle whose seal was asked for and is not there.
    let other = scene.at("other");
    symseal(["bundle", "build", &scene.at("app"), "--name", "app", "--version", "2", "--output", &other]).ok();
    let refused = symseal(["symbolize", "--bundle", &other, "--trust", &trust, "--json", &asked]);
    assert_eq!(refused.stdout, "");
    refused.refused(1, &["refused"]);
    symseal(["symbolize", "--trust", &trust, "--pid", "1", "0x1"]).refused(2, &["--trust", "--bundle"]);
}

/// A CFA that only a program gives, one of a form that no table has, and code of which nothing speaks and which returns to what it pushes, so that it is not followed.
const SHAPES: &str = "
__asm__(\".text\\n.type shaped,@function\\nshaped: .cfi_startproc\\n.cfi_escape 0x0f,5,0x77,0,0x06,0x23,8\\nnop\\nret\\n.cfi_endproc\\n.size shaped,.-shaped\\n\"
        \".type exclusive,@function\\nexclusive: .cfi_startproc\\n.cfi_escape 0x0f,5,0x77,0,0x77,0,0x27\\nnop\\nret\\n.cfi_endproc\\n.size exclusive,.-exclusive\\n\"
        \".type silent,@function\\nsilent: inc %eax\\njs 1f\\nret\\n1: push %rax\\nret\\n.size silent,.-silent\\n\");
extern int shaped(void), exclusive(void), silent(void);
int main(void) { return shaped() + exclusive() + silent(); }
";

#[test]
fn code_without_a_rule_says_why_and_a_program_tells_its_operations() {
    let (Some(nm), root) = (tool("nm"), tempfile::tempdir().unwrap()) else { return };
    let Some(app) = program::compile_c(root.path(), "shapes", SHAPES, &["-O1", "-Wl,--build-id"]) else { return };
    let layout = root.path().join("bundle").display().to_string();
    let named = ["--name", "shapes", "--version", "1", "--output", &layout];
    symseal(["bundle", "build", app.to_str().unwrap()].into_iter().chain(named)).ok();
    let index = symseal(["bundle", "inspect", &layout, "--json"]).ok().json();
    let id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
    let symbols = String::from_utf8(Command::new(nm).arg(&app).output().unwrap().stdout).unwrap();
    let at = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("the function");
        format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'))
    };
    let ask = |name: &str, more: &[&str]| {
        let address = at(name);
        symseal(["explain", "unwind", &layout, &id, &address].iter().chain(more))
    };
    let found = ask("shaped", &["--json"]).ok().json();
    let operations = ["push rsp", "read the word there", "push 8", "add"];
    assert_eq!((&found["program"], &found["reason"]), (&operations.to_vec().into(), &Value::Null), "{found:#}");
    let told = ask("shaped", &[]).ok().stdout;
    assert!(told.contains("push rsp; read the word there; push 8; add; the CFA is on top"), "{told}");
    for (name, kind, part) in [("exclusive", "unsupported", "DW_OP_xor"), ("silent", "gap", "another stack")] {
        let (found, told) = (ask(name, &["--json"]), ask(name, &[]));
        assert_eq!((found.status, told.status), (1, 1), "{found:?}");
        let found = found.json();
        assert_eq!(found["row"]["kind"], kind, "{found:#}");
        assert!(found["reason"].as_str().is_some_and(|reason| reason.contains(part)), "{found:#}");
        assert!(told.stdout.contains("because    ") && told.stdout.contains(part), "{told:?}");
    }
}
