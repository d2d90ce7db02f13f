//! Tables of debug files that refer to other files: what dwz moved out, and split DWARF.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::foreign::text;
use crate::support::programs::{has, output, run};
use crate::support::upstreams::asking;
use crate::support::{Running, http};
use crate::trees::{looking_hourly, origins};

const ID: &str = "abcdef0123456789abcdef0123456789abcdef01";
/// The same as Breakpad writes it.
const BREAKPAD_ID: &str = "01EFCDAB45238967ABCDEF01234567890";
const PATIENCE: Duration = Duration::from_secs(20);

/// Its inlined functions are the same in each program, so dwz moves them out.
const SHARED: &str = "
struct pair { int first; long second; struct pair *next; };
static inline __attribute__((always_inline)) int innermost(struct pair *pair) { return pair->first * (int)pair->second; }
static inline __attribute__((always_inline)) int inlined(struct pair *pair) { return pair->next ? innermost(pair->next) + 3 : 7; }
";

fn compile(folder: &Path, compiler: &str, name: &str, id: &str, flags: &[&str]) {
    let source = format!(
        "{SHARED}int compute(struct pair *pair) {{ return inlined(pair) ^ {}; }}\nint main(int argc, char **argv) {{ struct pair pair = {{ argc, argc, 0 }}; return compute(&pair); }}\n",
        name.len()
    );
    std::fs::write(folder.join(format!("{name}.cc")), source).unwrap();
    let id = format!("-Wl,--build-id=0x{id}");
    let (source, out) = (format!("{name}.cc"), name);
    let built =
        Command::new(compiler).current_dir(folder).args(["-O2", "-g", &id, "-o", out, &source]).args(flags).status();
    assert!(built.unwrap().success());
}

/// Addresses in `compute`, with the functions there as LLVM reads them, the innermost first.
fn expected(program: &Path) -> BTreeMap<String, Vec<String>> {
    let symbols = output("nm", &["-S", text(program)]);
    let line = symbols.lines().find(|line| line.contains("compute")).unwrap();
    let mut numbers = line.split(' ').map(|number| u64::from_str_radix(number, 16).unwrap_or_default());
    let (start, size) = (numbers.next().unwrap(), numbers.next().unwrap());
    let addresses = start..start + size;
    let named = |address: u64| {
        let address = format!("{address:#x}");
        let told = output("llvm-symbolizer", &["--output-style=GNU", "-f", "-i", "-C", "-e", text(program), &address]);
        let functions = told.lines().step_by(2).map(|name| name.split('(').next().unwrap().to_owned());
        (address, functions.collect())
    };
    addresses.map(named).collect()
}

async fn resolve(server: &Running, addresses: &BTreeMap<String, Vec<String>>) -> Value {
    let addresses: Vec<&String> = addresses.keys().collect();
    let body = json!({ "platform": "linux", "debug_id": ID, "addresses": addresses });
    let answer = http().post(server.url("/api/v1/resolve")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.json().await.unwrap()
}

fn functions(answer: &Value) -> BTreeMap<String, Vec<String>> {
    let of = |frame: &Value| {
        let functions = frame["frames"].as_array().unwrap().iter();
        let functions = functions.map(|frame| {
            let name = frame["function"].as_str().unwrap_or_default();
            name.split('(').next().unwrap().to_owned()
        });
        (frame["address"].as_str().unwrap().to_owned(), functions.collect())
    };
    answer["frames"].as_array().unwrap().iter().map(of).collect()
}

/// Waits until the module has names.
async fn named(server: &Running, addresses: &BTreeMap<String, Vec<String>>) -> Value {
    let started = Instant::now();
    loop {
        let answer = resolve(server, addresses).await;
        if answer["reason"].is_null() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The Firefox Profiler has names in any case; what is missing stands beside what it reads.
async fn check_profiled(server: &Running, addresses: &BTreeMap<String, Vec<String>>, told: Option<&str>) {
    let number = |address: &String| u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
    let stack: Vec<(usize, u64)> = addresses.keys().map(|address| (0, number(address))).collect();
    let body = json!({ "memoryMap": [["app", BREAKPAD_ID]], "stacks": [stack] });
    let answer = http().post(server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let (result, key) = (&answer["results"][0], format!("app/{BREAKPAD_ID}"));
    assert_eq!((&result["found_modules"][&key], &result["module_errors"]), (&json!(true), &json!({})), "{answer}");
    for frame in result["stacks"][0].as_array().unwrap() {
        assert!(frame["function"].is_string(), "{frame}");
    }
    match told {
        Some(told) => assert!(result["module_lacks"][&key].as_str().unwrap().contains(told), "{answer}"),
        None => assert!(result.get("module_lacks").is_none(), "{answer}"),
    }
}

#[track_caller]
fn check_partial(answer: &Value, told: &str) {
    let lacks = answer["provenance"]["lacks"].as_str().unwrap_or_default();
    assert!(lacks.contains(told), "{answer}");
    assert_eq!(answer["provenance"]["made_with"], json!([]), "{answer}");
    for frame in answer["frames"].as_array().unwrap() {
        assert_eq!((&frame["quality"], &frame["reason"]), (&json!("function"), &json!("no-debug-file")), "{frame}");
    }
}

#[track_caller]
fn check_whole(answer: &Value, expected: &BTreeMap<String, Vec<String>>) {
    check_whole_with(answer, expected, 1);
}

#[track_caller]
fn check_whole_with(answer: &Value, expected: &BTreeMap<String, Vec<String>>, files: usize) {
    assert_eq!(&functions(answer), expected, "{answer}");
    assert_eq!(answer["provenance"]["lacks"], Value::Null);
    assert_eq!(answer["provenance"]["made_with"].as_array().unwrap().len(), files, "{answer}");
    for frame in answer["frames"].as_array().unwrap() {
        assert!(frame["reason"].is_null(), "{frame}");
    }
}

/// Programs from which dwz moved what they have in common to `common`; what LLVM says before that, as it reads dwz's files wrongly.
fn moved(folder: &Path) -> Option<BTreeMap<String, Vec<String>>> {
    if ["g++", "dwz", "llvm-symbolizer", "nm"].iter().any(|tool| !has(tool)) {
        return None;
    }
    for (name, id) in [("app", ID), ("other", "abcdef0123456789abcdef0123456789abcdef02")] {
        compile(folder, "g++", name, id, &["-gdwarf-4"]);
    }
    let expected = expected(&folder.join("app"));
    let moved = Command::new("dwz").current_dir(folder).args(["-m", "common", "-M", "common", "app", "other"]).status();
    assert!(moved.unwrap().success());
    Some(expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_dwz_moved_out_is_found_by_its_build_id_wherever_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some(expected) = moved(folder.path()) else { return };
    assert!(expected.values().any(|functions| functions.len() == 3), "{expected:?}");
    for name in ["with", "without"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::copy(at("app"), at(name).join("app")).unwrap();
    }
    std::fs::create_dir(at("with/elsewhere")).unwrap();
    std::fs::copy(at("common"), at("with/elsewhere/any name")).unwrap();

    let server = Running::start_with(&at("data"), &origins(&[&at("with")])).await;
    let started = Instant::now();
    let mut answer = named(&server, &expected).await;
    // The scan may show the one before the other.
    while answer["provenance"]["lacks"].is_string() && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        answer = named(&server, &expected).await;
    }
    check_whole(&answer, &expected);
    check_profiled(&server, &expected, None).await;

    // Not to be had: then that is said. Uploaded, it is there for the next who asks.
    let second = Running::start_with(&at("second"), &origins(&[&at("without")])).await;
    check_partial(&named(&second, &expected).await, "supplementary file common");
    check_profiled(&second, &expected, Some("supplementary file common")).await;
    let put = http().put(second.url("/api/v1/symbols?name=common")).body(std::fs::read(at("common")).unwrap());
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    check_whole(&named(&second, &expected).await, &expected);
    second.stop().await;

    // Both from another server.
    let third = Running::start_with(&at("third"), &asking(&[server.url("")])).await;
    check_whole(&named(&third, &expected).await, &expected);
    third.stop().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_of_split_dwarf_is_found_beside_its_program_and_a_skeleton_alone_says_so() {
    if ["g++", "dwp", "llvm-symbolizer", "nm"].iter().any(|tool| !has(tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The code is the same with and without.
    compile(folder.path(), "g++", "app", ID, &["-gdwarf-4"]);
    let expected = expected(&at("app"));
    compile(folder.path(), "g++", "app", ID, &["-gdwarf-4", "-gsplit-dwarf"]);
    assert!(expected.values().any(|functions| functions.len() == 3), "{expected:?}");
    let packed = Command::new("dwp").current_dir(folder.path()).args(["-e", "app", "-o", "packed"]).status();
    assert!(packed.unwrap().success());
    let tree = at("tree");
    std::fs::create_dir(&tree).unwrap();
    run("objcopy", &["--only-keep-debug", text(&at("app")), text(&tree.join("app.debug"))]);

    let server = Running::start_with(&at("data"), &origins(&[&tree])).await;
    check_partial(&named(&server, &expected).await, "skeleton-only");
    check_profiled(&server, &expected, Some("skeleton-only: the split DWARF of 1 units")).await;
    // Another build's is not taken.
    std::fs::copy(at("app"), tree.join("app.dwp")).unwrap();
    check_partial(&named(&server, &expected).await, "skeleton-only");
    std::fs::copy(at("packed"), tree.join("app.dwp")).unwrap();
    check_whole(&named(&server, &expected).await, &expected);
    server.stop().await;

    // In an archive, too; in one that is another there is another one.
    let (within, archive) = (at("within"), at("within/all.tar.gz"));
    std::fs::create_dir(&within).unwrap();
    let pack = |members: &[&str]| run("tar", &[&["-C", text(&tree), "-czf", text(&archive)], members].concat());
    pack(&["./app.debug"]);
    let server = Running::start_with(&at("second"), &origins(&[&within])).await;
    for _ in 0..2 {
        check_partial(&named(&server, &expected).await, "skeleton-only");
    }
    pack(&["./app.debug", "./app.dwp"]);
    let started = Instant::now();
    while named(&server, &expected).await["provenance"]["lacks"].is_string() && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    check_whole(&named(&server, &expected).await, &expected);
    server.stop().await;
}

/// A program of two units whose split DWARF lies where the compiler puts it, `obj/app.dwo` and `obj/other.dwo`, and `whole`, the same without that. `more`
/// is source that the first unit has beside.
fn split(folder: &Path, compiler: &str, flag: &str, more: &str) {
    let compute = |name: &str, number: u32| {
        format!(
            "{SHARED}__attribute__((noinline)) int {name}(struct pair *pair) {{ return inlined(pair) ^ {number}; }}\n"
        )
    };
    let main = "int main(int argc, char **argv) { struct pair pair = { argc, argc, 0 }; return compute(&pair) + compute_more(&pair); }";
    let app = format!("{}{more}int compute_more(struct pair *pair);\n{main}\n", compute("compute", 3));
    std::fs::create_dir_all(folder.join("obj")).unwrap();
    let compile = |arguments: &[&str]| {
        assert!(Command::new(compiler).current_dir(folder).args(arguments).status().unwrap().success());
    };
    let id = format!("-Wl,--build-id=0x{ID}");
    for (name, source) in [("app", app), ("other", compute("compute_more", 5))] {
        std::fs::write(folder.join(format!("{name}.cc")), source).unwrap();
        let (source, object) = (format!("{name}.cc"), format!("obj/{name}.o"));
        compile(&["-O2", "-g", flag, "-gsplit-dwarf", "-c", &source, "-o", &object]);
    }
    compile(&["obj/app.o", "obj/other.o", "-o", "app", &id]);
    compile(&["-O2", "-g", flag, "app.cc", "other.cc", "-o", "whole", &id]);
}

/// What LLVM says of it. Of the split DWARF of g++ it places the inlined calls of all units but the first wrongly: then the program that is whole tells.
fn expected_of_split(folder: &Path, compiler: &str) -> BTreeMap<String, Vec<String>> {
    let found = expected(&folder.join("whole"));
    if compiler != "g++" {
        assert_eq!(expected(&folder.join("app")), found);
    }
    assert!(found.values().any(|functions| functions.len() == 3), "{found:?}");
    found
}

/// Waits until nothing is missing, or until something is.
async fn until(server: &Running, addresses: &BTreeMap<String, Vec<String>>, lacks: Option<&str>) -> Value {
    let started = Instant::now();
    loop {
        let answer = named(server, addresses).await;
        let told = answer["provenance"]["lacks"].as_str();
        if lacks.map_or(told.is_none(), |lacks| told.is_some_and(|told| told.contains(lacks))) {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{lacks:?}: {answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn copy_all(from: &Path, to: &Path, names: &[&str]) {
    std::fs::create_dir_all(to).unwrap();
    for name in names {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn split_dwarf_that_no_package_gathers_is_found_by_the_ids_of_its_units() {
    if ["g++", "clang++", "dwp", "llvm-symbolizer", "nm", "tar"].iter().any(|tool| !has(tool)) {
        return;
    }
    for (compiler, flag) in [("g++", "-gdwarf-4"), ("g++", "-gdwarf-5"), ("clang++", "-gdwarf-5")] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (built, tree) = (at("built"), at("tree"));
        split(&built, compiler, flag, "");
        let expected = expected_of_split(&built, compiler);
        let both = ["app.dwo", "other.dwo"];
        copy_all(&built, &tree, &["app"]);
        let server = Running::start_with(&at("data"), &origins(&[&tree])).await;
        check_partial(&named(&server, &expected).await, "skeleton-only: the split DWARF of 2 units");
        copy_all(&built.join("obj"), &tree.join("obj"), &both);
        check_whole_with(&until(&server, &expected, None).await, &expected, 2);
        check_profiled(&server, &expected, None).await;
        let symbols = http().get(server.url(&format!("/symbols/app/{BREAKPAD_ID}/app.sym"))).send().await.unwrap();
        assert_eq!(symbols.status(), StatusCode::OK);
        let symbols = symbols.text().await.unwrap();
        assert!(symbols.contains("INLINE_ORIGIN") && symbols.contains(" innermost"), "{symbols}");

        // Another build's is not taken, nor what lies outside; of what is gone that is said.
        let dwo = tree.join("obj/app.dwo");
        split(&at("changed"), compiler, flag, "int another(int x) { return x + 7; }\n");
        std::fs::copy(at("changed/obj/app.dwo"), &dwo).unwrap();
        until(&server, &expected, Some("skeleton-only: the split DWARF of 1 units")).await;
        std::fs::remove_file(&dwo).unwrap();
        std::os::unix::fs::symlink(built.join("obj/app.dwo"), &dwo).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        until(&server, &expected, Some("skeleton-only: the split DWARF of 1 units")).await;
        std::fs::remove_file(&dwo).unwrap();
        std::fs::copy(built.join("obj/app.dwo"), &dwo).unwrap();
        check_whole_with(&until(&server, &expected, None).await, &expected, 2);
        // A package of it goes before them, wherever it lies and whatever it is called.
        let packed = Command::new("dwp").current_dir(&built).args(["-e", "app", "-o", "packed"]).status().unwrap();
        // Binutils' has none of DWARF 5.
        if packed.success() && flag == "-gdwarf-4" {
            std::fs::copy(built.join("packed"), tree.join("obj/any name")).unwrap();
            let started = Instant::now();
            while named(&server, &expected).await["provenance"]["made_with"].as_array().unwrap().len() != 1 {
                assert!(started.elapsed() < PATIENCE);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            check_whole(&named(&server, &expected).await, &expected);
        }
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn split_dwarf_in_archives_is_found_whether_or_not_its_members_are_reached_by_themselves() {
    if ["g++", "llvm-symbolizer", "nm", "tar", "gzip"].iter().any(|tool| !has(tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    split(&at("built"), "g++", "-gdwarf-5", "");
    let expected = expected_of_split(&at("built"), "g++");
    for (name, flags, members) in [
        ("plain", "-cf", &["./app", "./obj/app.dwo", "./obj/other.dwo"][..]),
        ("solid", "-czf", &["./app", "./obj/app.dwo", "./obj/other.dwo"]),
        // The program in the one, its split DWARF in the other.
        ("apart", "-czf", &["./obj/app.dwo", "./obj/other.dwo"]),
    ] {
        let (tree, archive) = (at(name), at(name).join("all.tar"));
        std::fs::create_dir(&tree).unwrap();
        run("tar", &[&["-C", text(&at("built")), flags, text(&archive)], members].concat());
        if name == "apart" {
            copy_all(&at("built"), &tree, &["app"]);
        }
        let server = Running::start_with(&at(&format!("data-{name}")), &origins(&[&tree])).await;
        check_whole_with(&until(&server, &expected, None).await, &expected, 2);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn split_dwarf_that_is_not_as_it_was_read_is_not_what_a_table_is_made_with() {
    if ["g++", "llvm-symbolizer", "nm"].iter().any(|tool| !has(tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    split(&at("built"), "g++", "-gdwarf-5", "");
    let expected = expected_of_split(&at("built"), "g++");
    let tree = at("tree");
    copy_all(&at("built"), &tree, &["app"]);
    copy_all(&at("built/obj"), &tree.join("obj"), &["app.dwo", "other.dwo"]);
    // It looks once: what is written after that it is not told of.
    let server = looking_hourly(&at("data"), &tree).await;
    let has_all = || async {
        let counts = http().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
        counts.lines().any(|line| line == "symseal_tree_files 3")
    };
    let started = Instant::now();
    while !has_all().await {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let dwo = tree.join("obj/other.dwo");
    let mut bytes = std::fs::read(&dwo).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&dwo, bytes).unwrap();
    let answer = named(&server, &expected).await;
    let lacks = answer["provenance"]["lacks"].as_str().unwrap_or_default();
    assert!(lacks.contains("skeleton-only: the split DWARF of 1 units"), "{answer}");
    assert_eq!(answer["provenance"]["made_with"].as_array().unwrap().len(), 1, "{answer}");
    server.stop().await;
}
