//! Cases from an emulator: registers and stack at each instruction of a small program, with the return addresses that its calls
//! pushed. Needs `$SYMSEAL_FIXTURES`.

use std::io::Read;
use std::path::Path;

use crate::elf::Binary;
use serde_json::Value;
use symseal_module::Avma;
use symseal_unwind::{Cache, CodeBytes, Frame, Module, Modules, Registers, StackBytes, Table, unwind};

/// What the emulator put where the outermost function returns to.
const SENTINEL: u64 = 0x6f00_0000_0000;
const DWARF_NAMES_OF_X86_64: [&str; 16] =
    ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

fn hex(value: &Value) -> u64 {
    let text = value.as_str().expect("a string");
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex digits")
}

/// The registers of a case, whose general ones are named so, by their DWARF numbers.
fn registers(case: &Value, names: &[String], fp: &str) -> Registers {
    let (pc, named) = (hex(&case["pc"]), &case["regs"]);
    let mut registers = Registers { pc, sp: hex(&named[sp_of(names)]), fp: hex(&named[fp]), ..Registers::default() };
    for (general, name) in registers.general.iter_mut().zip(names) {
        *general = Some(hex(&named[name.as_str()]));
    }
    registers
}

/// The stack pointer's name among those of the general registers, or beside them.
fn sp_of(names: &[String]) -> &'static str {
    if names.iter().any(|name| name == "rsp") { "rsp" } else { "sp" }
}

#[test]
fn every_emulated_instruction_gives_the_return_addresses_of_its_calls() {
    let names = DWARF_NAMES_OF_X86_64.map(str::to_owned);
    check("emu/elf-x86_64", &names, "rbp");
    let names: Vec<String> = (0..31).map(|number| format!("x{number}")).collect();
    check("emu/elf-arm64", &names, "x29");
}

fn check(folder: &str, names: &[String], fp: &str) {
    let Some(fixtures) = std::env::var_os("SYMSEAL_FIXTURES") else {
        return println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
    };
    let folder = Path::new(&fixtures).join(folder);
    let binary = Binary::read(folder.join("fix")).expect("the program");
    let parts = binary.parts();
    let compiled = binary.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    let code = parts.code.iter().max_by_key(|(_, bytes)| bytes.len()).expect("code");
    let module = Module {
        start: Avma(parts.image_base.0),
        end: Avma(parts.text.iter().map(|text| text.end).max().expect("code")),
        bias: 0,
        image_base: parts.image_base,
        table: Some(table),
        code: Some(CodeBytes { start: Avma(code.0), bytes: code.1 }),
    };
    let modules = Modules::new(parts.arch, vec![module]);

    let mut text = String::new();
    let file = std::fs::File::open(folder.join("fix.cases.json.gz")).expect("the cases");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let cases = document["cases"].as_array().expect("a list");
    let mut wrong = Vec::new();
    for case in cases {
        let registers = registers(case, names, fp);
        let digits = case["stack_hex"].as_str().expect("a string");
        let stack: Vec<u8> = (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hex digits"))
            .collect();
        let memory = StackBytes { start: Avma(hex(&case["stack_lo"])), bytes: &stack };
        let mut frames = [Frame::EMPTY; 64];
        let walk = unwind(&modules, &registers, &memory, &mut Cache::new(), &mut frames);
        let found: Vec<u64> = frames.iter().take(walk.frames).skip(1).map(|frame| frame.pc.0).collect();
        let expected: Vec<u64> = case["expected_return_addresses_innermost_first"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|address| if address == "END" { SENTINEL } else { hex(address) })
            .collect();
        if found != expected {
            wrong.push(format!("{} {}: {found:x?}, expected {expected:x?}, {walk:?}", case["pc"], case["asm"]));
        }
    }
    println!("{} of {} cases right; {:?}", cases.len() - wrong.len(), cases.len(), compiled.report);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
