//! `symseal symbolize` as other programs drive it: addresses of any modules on standard input, any number of them.

use crate::program;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::program::symseal;
use serde_json::Value;

const SOURCE: &str = "__attribute__((noinline)) int FUNCTION(int x) { return x * 3 + 1; }
int main(int argc, char **argv) { (void)argv; return FUNCTION(argc); }
";

/// A bundle of two programs: its path, and of each program the debug id and the address of its own function.
struct Scene {
    root: tempfile::TempDir,
    modules: Vec<(String, String)>,
}

impl Scene {
    fn new() -> Option<Self> {
        let (nm, root) = (program::tool("nm")?, tempfile::tempdir().unwrap());
        let mut modules = Vec::new();
        let bundle = root.path().join("bundle").display().to_string();
        let mut build = vec!["bundle".to_owned(), "build".to_owned()];
        for name in ["first", "second"] {
            let source = SOURCE.replace("FUNCTION", name);
            let app =
                program::compile_c(root.path(), &format!("app_{name}"), &source, &["-g", "-O1", "-Wl,--build-id"])?;
            let symbols = String::from_utf8(Command::new(&nm).arg(&app).output().unwrap().stdout).unwrap();
            let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
            let address = format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'));
            modules.push((app.display().to_string(), address));
            build.push(app.display().to_string());
        }
        build.extend(["--name", "app", "--version", "1", "--output", &bundle].map(str::to_owned));
        symseal(&build).ok();
        let index = symseal(["bundle", "inspect", &bundle, "--json"]).ok().json();
        for (path, _) in &mut modules {
            let name = path.rsplit('/').next().unwrap().to_owned();
            let found = index["linux"].as_object().unwrap().iter().find(|(_, module)| module["name"] == name.as_str());
            *path = found.unwrap().0.clone();
        }
        Some(Self { root, modules })
    }

    fn bundle(&self) -> String {
        self.root.path().join("bundle").display().to_string()
    }
}

fn function(line: &str) -> (String, String) {
    let line: Value = serde_json::from_str(line).unwrap();
    (
        line["debug_id"].as_str().unwrap_or_default().to_owned(),
        line["frames"][0]["function"].as_str().unwrap_or("?").into(),
    )
}

#[test]
fn one_call_names_addresses_of_any_modules() {
    let Some(scene) = Scene::new() else { return };
    let asked: Vec<String> = scene.modules.iter().map(|(id, address)| format!("{id}@{address}")).collect();
    let bundle = scene.bundle();
    let found = symseal(["symbolize", "--bundle", &bundle, "--json", &asked[0], &asked[1]]).ok().stdout;
    let found: Vec<_> = found.lines().map(function).collect();
    assert_eq!(found, [(scene.modules[0].0.clone(), "first".into()), (scene.modules[1].0.clone(), "second".into())]);
    let told = symseal(["symbolize", "--bundle", &bundle, &asked[1]]).ok().stdout;
    assert!(told.starts_with(&scene.modules[1].0) && told.contains("  second at "), "{told}");
    // One of them stands for all that name none.
    let [(first, address), (_, other)] = &scene.modules[..] else { unreachable!() };
    let found =
        symseal(["symbolize", "--bundle", &bundle, "--json", "--debug-id", first, address, &asked[1]]).ok().stdout;
    assert_eq!(found.lines().map(|line| function(line).1).collect::<Vec<_>>(), ["first", "second"]);
    symseal(["symbolize", "--bundle", &bundle, other]).refused(2, &["DEBUG-ID@ADDRESS", "--debug-id"]);
}

#[test]
fn who_writes_a_line_and_waits_is_answered_and_a_million_lines_take_no_more_memory() {
    let Some(scene) = Scene::new() else { return };
    let mut child = Command::new(program::symseal_path())
        .args(["symbolize", "--bundle", &scene.bundle(), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut peak = Vec::new();
    let peak_of = |pid: u32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    for count in [1_usize, 50_000, 1_000_000] {
        let asked: Vec<String> = scene.modules.iter().map(|(id, address)| format!("{id} {address}\n")).collect();
        let writer = std::thread::spawn(move || {
            let mut portion = String::new();
            for number in 0..count {
                portion.push_str(&asked[number % asked.len()]);
                if portion.len() > 1 << 16 {
                    input.write_all(portion.as_bytes()).unwrap();
                    portion.clear();
                }
            }
            input.write_all(portion.as_bytes()).unwrap();
            input.flush().unwrap();
            input
        });
        // The input stays open: what comes, comes without its end.
        for number in 0..count {
            let line = answers.next().unwrap().unwrap();
            if number % 1000 < 2 {
                assert_eq!(function(&line).1, ["first", "second"][number % 2]);
            }
        }
        input = writer.join().unwrap();
        peak.push(peak_of(child.id()));
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(peak[2] < peak[1] + (16 << 10), "kB at the peak after 1, 50,000 and 1,000,000 addresses: {peak:?}");
}

#[test]
fn a_table_of_the_store_that_is_cut_under_a_running_lookup_ends_it_with_a_word() {
    let Some(scene) = Scene::new() else { return };
    let bundle = scene.bundle();
    let index = symseal(["bundle", "inspect", &bundle, "--json"]).ok().json();
    let digest = symseal(["bundle", "inspect", &bundle]).ok().stdout;
    let digest = digest.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap().to_owned();
    let (id, address) = &scene.modules[0];
    let files = index["linux"][id]["files"].as_array().unwrap();
    let table = files.iter().find(|file| file["role"] == "symbol-table").unwrap();
    let blob = table["sha256"].as_str().unwrap().trim_start_matches("sha256:");
    let mut child = Command::new(program::symseal_path())
        .args(["symbolize", "--store", &bundle, "--bundle", &digest, "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(input, "{id} {address}").unwrap();
    assert_eq!(function(&answers.next().unwrap().unwrap()).1, "first");
    std::fs::OpenOptions::new()
        .write(true)
        .open(std::path::Path::new(&bundle).join("blobs/sha256").join(blob))
        .and_then(|file| file.set_len(0))
        .unwrap();
    // Another address, as the last one is remembered.
    let next = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap() + 1;
    writeln!(input, "{id} {next:#x}").unwrap();
    drop(input);
    let ended = program::Ran::from(child.wait_with_output().unwrap());
    ended.refused(2, &["cut short", "bundle verify", &format!("/blobs/sha256/{blob} was")]);
}

/// One bad line of many costs one name: the others are answered, each in its place.
#[test]
fn a_line_that_is_no_address_is_told_in_its_place_and_those_behind_it_are_named() {
    let Some(scene) = Scene::new() else { return };
    let [(first, address), (second, other)] = &scene.modules[..] else { unreachable!() };
    let long = "f".repeat(10_000);
    let input = format!("{first} {address}\nno address\n\n{address}\n{long}\n{second} {other}\n\u{7}\u{1b}[31m\n");
    let input = [input.as_bytes(), b"\xff\xfe\n", format!("{second} {other}").as_bytes()].concat();
    let ask = |json: &[&str]| {
        let mut child = Command::new(program::symseal_path())
            .args(["symbolize", "--bundle", &scene.bundle()])
            .args(json)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&input).unwrap();
        program::Ran::from(child.wait_with_output().unwrap())
    };
    let told = ask(&["--json"]);
    let stdout = told.stdout.clone();
    told.refused(2, &["standard input, line 2: ", "(the first of 5 such lines)"]);
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<&str> = lines
        .iter()
        .map(|line| line["input"].as_str().or_else(|| line["frames"][0]["function"].as_str()).unwrap())
        .collect();
    assert_eq!(
        seen,
        ["first", "no address", "", address, &long[..256], "second", "\u{7}\u{1b}[31m", "\\xff\\xfe", "second"]
    );
    assert!(lines[1]["error"].as_str().unwrap().starts_with("no: expected a debug id"), "{}", lines[1]);
    assert_eq!(lines[2]["error"], "expected an address, found an empty line");
    assert!(lines[3]["error"].as_str().unwrap().contains("expected DEBUG-ID@ADDRESS"), "{}", lines[3]);
    // For people as well; a terminal is given no control characters.
    let told = ask(&[]);
    assert_eq!(told.stdout.lines().filter(|line| line.contains("  ??  ")).count(), 6, "{}", told.stdout);
    assert!(!told.stdout.contains(|c: char| c.is_control() && c != '\n'), "{:?}", told.stdout);
}

#[test]
fn a_damaged_unit_costs_lines_and_is_told() {
    let (Some(objcopy), Some(nm)) = (program::tool("objcopy"), program::tool("nm")) else { return };
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).display().to_string();
    let source = SOURCE.replace("FUNCTION", "first");
    let Some(app) = program::compile_c(root.path(), "app", &source, &["-g", "-O1", "-Wl,--build-id"]) else { return };
    let symbols = String::from_utf8(Command::new(nm).arg(&app).output().unwrap().stdout).unwrap();
    let line = symbols.lines().find(|line| line.ends_with(" first")).unwrap();
    let address = format!("0x{}", line.split(' ').next().unwrap());
    let whole = symseal(["symbolize", "--json", "--file", &at("app"), &address]).ok();
    assert!(!whole.stderr.contains("warning"), "{}", whole.stderr);
    assert_eq!(whole.json()["quality"], "full");
    // The unit says that it is longer than its section.
    let dumped = format!("--dump-section=.debug_info={}", at("info"));
    assert!(Command::new(&objcopy).args([&dumped, &at("app")]).status().unwrap().success());
    let mut info = std::fs::read(at("info")).unwrap();
    info[..4].copy_from_slice(&0x7fff_0000_u32.to_le_bytes());
    std::fs::write(at("info"), info).unwrap();
    let update = format!("--update-section=.debug_info={}", at("info"));
    assert!(Command::new(&objcopy).args([&update, &at("app"), &at("hurt")]).status().unwrap().success());
    let hurt = symseal(["symbolize", "--json", "--explain", "--file", &at("hurt"), &address, &address]).ok();
    let answer: Value = serde_json::from_str(hurt.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&answer["quality"], &answer["frames"][0]["function"]), (&"function".into(), &"first".into()));
    let lacks: Vec<&str> = answer["tried"].as_array().unwrap().iter().filter_map(|it| it["lacks"].as_str()).collect();
    assert!(!lacks.is_empty() && lacks.iter().all(|told| told.contains("damaged")), "{answer:#}");
    // Whoever does not ask for the trail is warned, and once.
    let plain = symseal(["symbolize", "--file", &at("hurt"), &address, &address]).ok();
    let warnings: Vec<&str> = plain.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains(&at("hurt")) && warnings[0].contains("damaged"),
        "{warnings:?}"
    );
}
