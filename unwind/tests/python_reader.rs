//! A reader in another language, written from `docs/formats/uwt.md` alone, agrees with this crate on tables of every processor.

use crate::images::Image;
use crate::{cfi, elf, images, toolchains, traps_async, traps_coroutines};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::elf::{Binary, Random};
use serde_json::{Map, Value, json};
use symseal_module::Rva;
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Kind, ReturnAddress, Rule, Saved, Slots, Table};

/// Random addresses in each file, beside those around rows.
const ADDRESSES: u64 = 2000;
/// Every so many rows, the addresses on both sides of its beginning.
const STRIDE: usize = 17;

/// Runs the Python reader; `None` where there is no Python.
fn python(command: &str, table: &Path, input: &str) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/oracles/uwt_reader.py");
    let child = Command::new("python3")
        .arg(script)
        .arg(command)
        .arg(table)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        elf::skip("python3", "not found");
        return None;
    };
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("no panic");
    Some(output)
}

fn lines(output: &Output) -> Vec<Value> {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the Python reader refused the table: {errors}");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn place(saved: Saved) -> Value {
    match saved {
        Saved::Same => json!("same"),
        Saved::Unknown => json!("unknown"),
        Saved::At(words) => json!(words),
    }
}

/// What this crate says, as the Python reader prints it.
fn described(table: &Table<'_>, rva: Rva, rule: Rule, slots: Slots) -> Value {
    let kind = rule.kind().expect("a known kind");
    let mut said = Map::new();
    let name =
        if kind == Kind::MachineFrame { String::from("machine-frame") } else { format!("{kind:?}").to_lowercase() };
    said.insert("kind".into(), json!(name));
    said.insert("source".into(), json!(rule.source().expect("a known source") as u8));
    let source = table.source(rva).filter(|_| kind != Kind::Gap);
    said.insert("from".into(), source.map_or(Value::Null, |source| json!([source.kind as u8, source.offset])));
    if !matches!(kind, Kind::Gap | Kind::End | Kind::Unsupported) {
        said.insert("offset".into(), json!(rule.offset()));
        if kind != Kind::Signal {
            let return_address = match rule.return_address().expect("a known form") {
                ReturnAddress::AtCfa(words) => json!(["cfa", words]),
                ReturnAddress::InRegister(register) => json!(["register", register]),
            };
            said.insert("return_address".into(), return_address);
            said.insert("on_fp".into(), json!(rule.slots_on_fp()));
            said.insert("from_base".into(), json!(rule.has_places_from_base()));
            said.insert("signed".into(), json!(rule.is_signed()));
            said.insert("frame_pointer".into(), place(rule.frame_pointer()));
            if matches!(kind, Kind::Register | Kind::Deref | Kind::MachineFrame) {
                said.insert("register".into(), json!(rule.register()));
            }
            let registers = table.arch().slot_registers().iter().chain(table.arch().convention_registers());
            let of = |register: &u8| place(slots.of(table.arch(), *register).expect("it has a slot"));
            said.insert("slots".into(), registers.map(|register| (register.to_string(), of(register))).collect());
        }
    }
    Value::Object(said)
}

/// Without the operations of a program, which this crate shows to nobody: the Python reader has checked them.
fn without_program(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("program");
    }
    value
}

/// Files of each processor, with their packages: the C library of this machine and those of Debian's cross compilers.
fn files() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let own = [elf::LIBC, elf::LOADER].map(|path| ("libc6", PathBuf::from(path)));
    let others = toolchains::ALL.iter().map(|toolchain| (toolchain.package, toolchain.library("libc.so.6")));
    own.into_iter().chain(others)
}

/// A Go program, whose table has a section that others have not; `None` where there is no Go.
fn go_program(directory: &Path) -> Option<PathBuf> {
    let (source, output) = (directory.join("main.go"), directory.join("go"));
    std::fs::write(&source, "package main\n\nfunc main() { println(1) }\n").expect("a file");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&output, &source])
        .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
        .current_dir(directory)
        .output();
    match built {
        Ok(built) => assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => {
            elf::skip("go", &error.to_string());
            return None;
        }
    }
    Some(output)
}

/// What this crate says of Go's runtime, as the Python reader prints it.
fn go_runtime(table: &Table<'_>) -> Value {
    let Some(go) = table.go_runtime() else { return Value::Null };
    let of = |functions: &[Range<Rva>]| json!(functions.iter().map(|it| [it.start.0, it.end.0]).collect::<Vec<_>>());
    let (switches, c_calls, g) = (of(&go.switches), of(&go.c_calls), go.g);
    json!({"stack_lo": g.stack_lo, "stack_hi": g.stack_hi, "m": g.m, "sched_sp": g.sched_sp, "sched_pc": g.sched_pc,
        "sched_bp": g.sched_bp, "curg": go.curg, "switches": switches, "c_calls": c_calls})
}

/// Tables of programs for Windows and macOS, whose sources of rules and sections others have not.
fn image_tables(directory: &Path) -> impl Iterator<Item = (String, Vec<u8>)> {
    let platforms = [
        &images::WINDOWS_X64,
        &images::WINDOWS_X64_GCC,
        &images::WINDOWS_ARM64,
        &images::MACOS_ARM64,
        &images::MACOS_X86_64,
    ];
    platforms.into_iter().filter_map(move |platform| {
        let path = images::build(platform, &["-O2"], directory).map_err(|tool| elf::skip(tool, "not found")).ok()?;
        let bytes = std::fs::read(path).expect("what was linked");
        Some((platform.name.to_owned(), Image::read(&bytes).compile().bytes))
    })
}

fn tables(directory: &Path) -> impl Iterator<Item = (String, PathBuf, Vec<u8>)> {
    let file = directory.join("table.uwt");
    let go = go_program(directory).map(|path| ("go", path));
    let of_files = files().chain(go).filter_map(move |(package, path)| {
        let Some(binary) = Binary::read(&path) else {
            elf::skip(package, &format!("{} is not there", path.display()));
            return None;
        };
        Some((path.display().to_string(), binary.compile().bytes))
    });
    of_files.chain(image_tables(directory)).map(move |(name, bytes)| {
        std::fs::write(&file, &bytes).expect("a file");
        (name, file.clone(), bytes)
    })
}

#[test]
fn a_reader_made_from_the_documentation_gives_what_is_said_of_tasks() {
    let directory = tempfile::tempdir().expect("a directory");
    let (id, section) = (cfi::debug_id(), traps_async::tasks());
    let table = compile(&Input { tasks: Some(&section), ..cfi::empty_input(&id) }).expect("a table").bytes;
    let file = directory.path().join("table.uwt");
    std::fs::write(&file, table).expect("a file");
    let Some(dumped) = python("dump", &file, "") else { return };
    let expected = json!({"wakers": 0x2f00, "state": 0, "vtable": 16, "poll": 0, "trailer_offset": 56, "waker_data": 24,
        "waker_table": 16, "functions": [[0x1000, 0x1040, 0, false], [0x1100, 0x1110, 0, true], [0x1110, 0x1120, 1, true],
        [0x1120, 0x1130, 2, true]]});
    assert_eq!(lines(&dumped)[0]["tasks"], expected);
}

#[test]
fn a_reader_made_from_the_documentation_gives_what_is_said_of_coroutines() {
    let directory = tempfile::tempdir().expect("a directory");
    let (id, section) = (cfi::debug_id(), traps_coroutines::coroutines());
    let table = compile(&Input { coroutines: Some(&section), ..cfi::empty_input(&id) }).expect("a table").bytes;
    let file = directory.path().join("table.uwt");
    std::fs::write(&file, table).expect("a file");
    let Some(dumped) = python("dump", &file, "") else { return };
    let expected = json!({
        "coroutines": [{"index": 44, "handles": [24]}, {"index": 0, "handles": [24, 40]}, {"index": 0, "handles": [32]}],
        "functions": [[0x1000, 0x1040, 0, 1], [0x1040, 0x1060, 1, 0], [0x1100, 0x1110, 1, 1], [0x1110, 0x1120, 1, 2],
            [0x1120, 0x1130, 2, 1], [0x1130, 0x1138, 2, 2], [0x1138, 0x1140, 0, 2]],
        "locations": [[0x1010, 0x1020, [[1, 16], [2, -24], [3], [8]]]],
    });
    assert_eq!(lines(&dumped)[0]["coroutines"], expected);
}

#[test]
fn a_reader_made_from_the_documentation_gives_the_same_rule_at_every_row_and_address() {
    let directory = tempfile::tempdir().expect("a directory");
    for (path, file, bytes) in tables(directory.path()) {
        let table = Table::open(&bytes).expect("our own table");
        let rows: Vec<_> = table.rows().collect();

        let Some(dumped) = python("dump", &file, "") else { return };
        let dumped = lines(&dumped);
        let [header, dumped @ ..] = dumped.as_slice() else { panic!("{path}: nothing was dumped") };
        assert_eq!(header["processor"], table.arch().code());
        assert_eq!(header["debug_id"], table.debug_id().to_string());
        assert_eq!((&header["producer"], &header["rules"]), (&json!(table.producer()), &json!(table.counts().rules)));
        assert_eq!(header["image_base"], table.image_base().0);
        assert_eq!(header["go_runtime"], go_runtime(&table), "{path}");
        let reasons: Vec<_> = table.reasons().map(|it| json!([it.range.start.0, it.range.end.0, it.text])).collect();
        assert_eq!(header["reasons"], json!(reasons), "{path}");
        assert_eq!(header["go_runtime"].is_null(), !path.ends_with("/go"), "{path}");
        assert_eq!(dumped.len(), rows.len(), "{path}");
        // The section of convention slots is there to be read.
        let is_x86_64 = header["processor"] == "x86_64";
        let has_saved_rsi = is_x86_64 && dumped.iter().any(|row| row["slots"]["4"].is_number());
        assert_eq!(has_saved_rsi, path.starts_with("Windows x64"), "{path}");
        for (found, (rva, rule, slots)) in dumped.iter().zip(&rows) {
            let mut expected = described(&table, *rva, *rule, *slots);
            expected.as_object_mut().expect("fields").insert("rva".into(), json!(rva.0));
            assert_eq!(without_program(found.clone()), expected, "{path} {rva:?}");
        }

        let (start, end) = (table.text_start().0, table.text_end().0);
        let mut random = Random(start ^ rows.len() as u64);
        let mut addresses: Vec<u64> = (0..ADDRESSES).map(|_| start + random.below(end - start)).collect();
        addresses.extend([start, end - 1, end, end + 1, 0, u64::MAX >> 1, start.saturating_sub(1)]);
        addresses.extend(rows.iter().step_by(STRIDE).flat_map(|(rva, ..)| [rva.0.saturating_sub(1), rva.0]));
        let input: String = addresses.iter().map(|address| format!("{address:x}\n")).collect();
        let found = lines(&python("lookup", &file, &input).expect("it was there before"));
        assert_eq!(found.len(), addresses.len());
        for (found, address) in found.into_iter().zip(&addresses) {
            let rva = Rva(*address);
            let expected = table.rule(rva).zip(table.slots(rva));
            let expected = expected.map_or(Value::Null, |(rule, slots)| described(&table, rva, rule, slots));
            assert_eq!(without_program(found), expected, "{path} {address:#x}");
        }
        println!("{path}: {} rows and {} addresses of {}", rows.len(), addresses.len(), table.arch());
    }
}

#[test]
fn a_reader_made_from_the_documentation_refuses_damaged_tables_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((path, file, bytes)) = tables(directory.path()).next() else { return };
    let mut random = Random(9);
    for _ in 0..12 {
        let mut damaged = bytes.clone();
        let at = random.below(bytes.len() as u64) as usize;
        damaged[at] ^= 1 << random.below(8);
        std::fs::write(&file, &damaged).expect("a file");
        let refused = Table::open(&damaged).map_or(true, |table| table.verify().is_err());
        let Some(output) = python("dump", &file, "") else { return };
        assert_eq!(!output.status.success(), refused, "{path}: byte {at}");
    }
}
