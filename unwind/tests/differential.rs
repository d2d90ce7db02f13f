//! The table of a binary against gimli's own reading of the same sections, at many random addresses: CFA, return address and
//! every saved register must come out the same from the same registers and memory.

use crate::elf;
use std::collections::BTreeMap;

use crate::elf::{Binary, Random};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location,
    Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use symseal_module::{Avma, Rva, StopReason};
use symseal_unwind::{
    Arch, Cache, Frame, Kind, Memory, Module, Modules, Registers, RuleSource, Saved, SourceKind, Table, unwind,
};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Every word is known, looks random, and is aligned; words that could be read as addresses lie above any stack of the test.
struct HashedMemory;

impl Memory for HashedMemory {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        Some(Random(address.0).next() & 0x0fff_ffff_fff8 | 0x1000_0000_0000)
    }
}

/// What gimli says of one address.
#[derive(Debug, PartialEq)]
enum Expected {
    NoInformation,
    End,
    Caller { cfa: u64, pc: u64, saved: [Option<u64>; 6] },
    Unevaluated(String),
}

struct Oracle<'a> {
    section: EhFrame<Reader<'a>>,
    header: gimli::ParsedEhFrameHdr<Reader<'a>>,
    bases: BaseAddresses,
    context: UnwindContext<usize>,
}

const REGISTERS_COMPARED: [u8; 6] = [6, 3, 12, 13, 14, 15];

impl<'a> Oracle<'a> {
    fn new(parts: &elf::Parts<'a>) -> Self {
        let (address, bytes) = parts.eh_frame.expect(".eh_frame");
        let (header_address, header) = parts.eh_frame_hdr.expect(".eh_frame_hdr");
        let bases = BaseAddresses::default().set_eh_frame(address).set_eh_frame_hdr(header_address);
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).expect("a header");
        Self { section, header, bases, context: UnwindContext::new() }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        registers: &Registers,
        initial: Option<u64>,
    ) -> Option<u64> {
        let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 4, address_size: 8 };
        let expression = expression.get(&self.section).ok()?;
        let mut evaluation: Evaluation<Reader<'a>> = expression.evaluation(encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(HashedMemory.read_u64(Avma(address))?)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = value_of(registers, register.0)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result().first()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }

    fn at(&mut self, svma: u64, registers: &Registers) -> Expected {
        let table = self.header.table().expect("a table");
        let found = table.fde_for_address(&self.section, &self.bases, svma, EhFrame::cie_from_offset);
        let Ok(fde) = found else { return Expected::NoInformation };
        let mut context = std::mem::take(&mut self.context);
        let row = match fde.unwind_info_for_address(&self.section, &self.bases, &mut context, svma) {
            Ok(row) => row.clone(),
            Err(error) => return Expected::Unevaluated(error.to_string()),
        };
        self.context = context;
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                value_of(registers, register.0).map(|base| base.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate(expression, registers, None),
        };
        let Some(cfa) = cfa else { return Expected::Unevaluated("CFA".into()) };
        let word = |address| HashedMemory.read_u64(Avma(address));
        // An epilogue may leave the rule of a slot that is no longer part of the frame.
        let is_signal = fde.is_signal_trampoline();
        let in_frame = |address: &u64| is_signal || (registers.sp..cfa).contains(address);
        let saved = |number: u8| match row.register(Register(number.into())) {
            None | Some(RegisterRule::SameValue) => value_of(registers, number.into()),
            // In another register: the table says that it does not know.
            Some(RegisterRule::Undefined | RegisterRule::Register(_)) => None,
            Some(RegisterRule::Offset(offset)) => {
                let live = value_of(registers, number.into());
                Some(cfa.wrapping_add_signed(offset)).filter(in_frame).map_or(live, word)
            }
            Some(RegisterRule::Expression(expression)) => {
                let live = value_of(registers, number.into());
                self.evaluate(&expression, registers, Some(cfa)).filter(in_frame).map_or(live, word)
            }
            Some(other) => panic!("{svma:#x}: register {number}: {other:?}"),
        };
        match row.register(Register(7)) {
            None => {}
            Some(RegisterRule::Expression(_)) if is_signal => {}
            Some(other) => return Expected::Unevaluated(format!("stack pointer {other:?}")),
        }
        let pc = match row.register(Register(16)) {
            Some(RegisterRule::Undefined) => return Expected::End,
            Some(RegisterRule::Offset(offset)) => word(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(register)) => value_of(registers, register.0),
            Some(RegisterRule::Expression(expression)) => {
                self.evaluate(&expression, registers, Some(cfa)).and_then(word)
            }
            other => return Expected::Unevaluated(format!("{other:?}")),
        };
        let Some(pc) = pc else { return Expected::Unevaluated("return address".into()) };
        Expected::Caller { cfa, pc, saved: REGISTERS_COMPARED.map(saved) }
    }
}

fn value_of(registers: &Registers, number: u16) -> Option<u64> {
    match number {
        16 => Some(registers.pc),
        7 => Some(registers.sp),
        6 => Some(registers.fp),
        _ => registers.general.get(usize::from(number)).copied().flatten(),
    }
}

/// What `nop` of any length and `int3` are made of.
const PADDING_BYTES: [u8; 11] = [0x66, 0x2e, 0x90, 0xcc, 0x0f, 0x1f, 0x00, 0x40, 0x44, 0x80, 0x84];

fn byte_at(parts: &elf::Parts<'_>, svma: u64) -> Option<u8> {
    parts.code.iter().find_map(|(start, bytes)| bytes.get(usize::try_from(svma.checked_sub(*start)?).ok()?).copied())
}

/// Compares at `samples` random addresses; gives how often each kind of answer was seen.
fn compare(binary: &Binary, samples: usize) -> BTreeMap<&'static str, usize> {
    let parts = binary.parts();
    let compiled = binary.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let mut oracle = Oracle::new(&parts);
    let bias = 0x5555_0000_0000;
    let base = bias + parts.image_base.0;
    let end = base + table.text_end().0;
    let module = Module {
        start: Avma(base),
        end: Avma(end),
        bias,
        image_base: parts.image_base,
        table: Some(table.clone()),
        code: None,
    };
    let modules = Modules::new(Arch::X86_64, vec![module]);
    let mut random = Random(42);
    let mut cache = Cache::new();
    let mut seen = BTreeMap::new();
    let mut differing = Vec::new();
    let lengths: Vec<u64> = parts.text.iter().map(|range| range.end - range.start).collect();
    let total: u64 = lengths.iter().sum();
    for _ in 0..samples {
        let mut at = random.below(total);
        let range = parts.text.iter().zip(&lengths).find_map(|(range, length)| {
            let here = (at < *length).then_some(range);
            at = at.wrapping_sub(*length);
            here.map(|range| range.start + at.wrapping_add(*length))
        });
        let svma = range.expect("within the code");
        let sp = 0x1000_0000 + random.below(1 << 20) * 8;
        let mut registers =
            Registers { pc: bias + svma, sp, fp: sp + random.below(64) * 8, general: [None; Registers::GENERAL] };
        for value in &mut registers.general {
            *value = Some(sp + 8 + random.below(64) * 8);
        }
        let expected = oracle.at(svma, &registers);
        let mut frames = [Frame::EMPTY; 2];
        let walk = unwind(&modules, &registers, &HashedMemory, &mut cache, &mut frames);
        let rule = table.rule(Rva(svma - parts.image_base.0)).expect("within the code");
        // What the section headers tell goes beyond call frame information.
        let from_headers = parts.plt.iter().any(|plt| plt.range.contains(&svma));
        let (kind, same) = match &expected {
            Expected::NoInformation if from_headers => ("plt without cfi", true),
            Expected::NoInformation if rule.kind() == Some(Kind::Gap) => ("gap", true),
            // Where the kernel begins, by the file's header; single-stepped elsewhere.
            Expected::NoInformation if rule.kind() == Some(Kind::End) => {
                let entry = binary.bytes.get(24..32).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes);
                let source = table.source(Rva(svma - parts.image_base.0));
                let is_entry = source.is_some_and(|source| source.start.0 == entry - parts.image_base.0);
                ("start of the loader", is_entry && svma - entry < 128 && walk.stop == StopReason::EndOfStack)
            }
            // _init and _fini, and functions that were followed: single-stepped elsewhere.
            Expected::NoInformation if rule.source() == Some(RuleSource::Instructions) => {
                let source = table.source(Rva(svma - parts.image_base.0));
                let is_followed = source.is_some_and(|source| source.kind == SourceKind::Instructions);
                ("code that nothing describes", is_followed)
            }
            // Up to the next function that gimli knows of there is nothing but padding.
            Expected::NoInformation => {
                let padded = (svma..svma + 16)
                    .take_while(|svma| oracle.at(*svma, &registers) == Expected::NoInformation)
                    .all(|svma| byte_at(&parts, svma).is_some_and(|byte| PADDING_BYTES.contains(&byte)));
                ("padding", padded)
            }
            // Its entry claims a caller that is not there; walked in `single_step`.
            Expected::Caller { .. }
                if rule.kind() == Some(Kind::End) && rule.source() == Some(RuleSource::Trampoline) =>
            {
                let end = (svma..svma + 26).find(|svma| byte_at(&parts, *svma) == Some(0xf4));
                ("beginning of a context", end.is_some() && walk.stop == StopReason::EndOfStack)
            }
            // So does that of what has taken another context's stack, up to where the return address is pushed there (`pushq %rcx`).
            Expected::Caller { .. }
                if rule.kind() == Some(Kind::Unsupported) && rule.source() == Some(RuleSource::Instructions) =>
            {
                let end = (svma..svma + 40).find(|svma| byte_at(&parts, *svma) == Some(0x51));
                ("the stack of another context", end.is_some() && walk.frames == 1)
            }
            Expected::End => ("end", walk.stop == StopReason::EndOfStack && walk.frames == 1),
            Expected::Unevaluated(_) => ("unsupported", rule.kind() == Some(Kind::Unsupported)),
            Expected::Caller { cfa, pc, saved } => {
                let slots = table.slots(Rva(svma - parts.image_base.0)).expect("within the code");
                let others = REGISTERS_COMPARED[1..].iter().zip(&saved[1..]).all(|(register, expected)| {
                    let live = value_of(&registers, u16::from(*register));
                    if rule.kind() == Some(Kind::Signal) {
                        return true;
                    }
                    let found = match slots.of(Arch::X86_64, *register).expect("has a slot") {
                        Saved::Same => live,
                        Saved::Unknown => None,
                        Saved::At(words) => {
                            let base = if rule.slots_on_fp() { registers.fp } else { *cfa };
                            let slot = base.wrapping_add_signed(i64::from(words) * 8);
                            if (sp..*cfa).contains(&slot) { HashedMemory.read_u64(Avma(slot)) } else { live }
                        }
                    };
                    found == *expected
                });
                // Rules that cannot hold for the made-up registers end the walk; then the CFA alone is compared.
                let held = frames[0].cfa.0 == *cfa || walk.stop == StopReason::StackNotRising;
                let caller = walk.frames < 2 || (frames[1].pc.0 == *pc && frames[1].fp == saved[0].unwrap_or(0));
                let stops =
                    [StopReason::MaxFrames, StopReason::NoModule, StopReason::StackNotRising, StopReason::Misaligned];
                ("caller", held && caller && others && stops.contains(&walk.stop))
            }
        };
        *seen.entry(kind).or_insert(0) += 1;
        if walk.frames == 2 {
            *seen.entry("walked").or_insert(0) += 1;
        }
        if !same && differing.len() < 10 {
            differing.push(format!(
                "{svma:#x}: {expected:?}, found {}, {walk:?} {frames:x?} from {registers:x?}",
                rule.display(Arch::X86_64)
            ));
        }
    }
    println!(
        "{}: {samples} addresses, {seen:?}; table / (.eh_frame + header) = {} / {} = {:.3}; {:?}",
        binary.path.display(),
        compiled.bytes.len(),
        parts.eh_frame.map_or(0, |(_, bytes)| bytes.len()) + parts.eh_frame_hdr.map_or(0, |(_, bytes)| bytes.len()),
        compiled.bytes.len() as f64
            / (parts.eh_frame.map_or(0, |(_, bytes)| bytes.len())
                + parts.eh_frame_hdr.map_or(0, |(_, bytes)| bytes.len())) as f64,
        compiled.report,
    );
    assert!(differing.is_empty(), "{}: {differing:#?}", binary.path.display());
    seen
}

fn check(path: impl AsRef<std::path::Path>) {
    let Some(binary) = Binary::read(path.as_ref()) else {
        elf::skip("libc", &format!("{} is not here", path.as_ref().display()));
        return;
    };
    let seen = compare(&binary, 60_000);
    assert!(seen["caller"] > 20_000 && seen["walked"] > 10_000, "{seen:?}");
}

#[test]
fn the_table_of_the_c_library_says_what_gimli_says() {
    check(elf::LIBC);
}

/// Assembler code with CFAs in memory, in one place at an index times 8.
#[test]
fn the_table_of_the_cryptography_library_says_what_gimli_says() {
    let path = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3";
    let Some(binary) = Binary::read(path) else { return elf::skip("libssl3", "no libcrypto.so.3") };
    check(path);
    let reasons = binary.compile().report.unsupported_reasons;
    assert!(!reasons.keys().any(|reason| reason.contains("expression")), "{reasons:?}");
}

#[test]
fn the_table_of_the_loader_says_what_gimli_says() {
    check(elf::LOADER);
}

#[test]
fn the_table_of_this_test_says_what_gimli_says() {
    check(std::env::current_exe().expect("a path"));
}

#[test]
fn the_table_stays_within_three_quarters_of_the_sections_it_replaces() {
    let Some(binary) = Binary::read(elf::LIBC) else { return elf::skip("libc", "not here") };
    let parts = binary.parts();
    let sections =
        parts.eh_frame.map_or(0, |(_, bytes)| bytes.len()) + parts.eh_frame_hdr.map_or(0, |(_, bytes)| bytes.len());
    let table = binary.compile().bytes.len();
    assert!(table * 4 <= sections * 3, "{table} bytes for {sections}");
}
