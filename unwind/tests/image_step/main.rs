//! The absolute oracle for Windows and macOS: programs of theirs, one instruction at a time in an emulator, with the stack of calls that they
//! make. At every instruction all return addresses, CFAs and frame pointers must come out of the unwinder, and the registers that the running function keeps for its caller.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../elf/mod.rs"]
mod elf;
#[path = "../framehop_peer/mod.rs"]
mod framehop_peer;
#[path = "../images/mod.rs"]
mod image;
mod peer;
mod trace;

use std::collections::BTreeMap;
use std::time::Instant as Time;

use image::{Image, Platform};
use peer::Peer;
use symseal_module::{Avma, Rva, Svma};
use symseal_unwind::{Cache, CodeBytes, Frame, Kind, Module, Modules, Registers, Saved, StackBytes, Table, unwind};
use trace::{Instant, STACK_BYTES, STACK_TOP};

/// What the runs of one platform gave.
#[derive(Default)]
struct Score {
    instructions: usize,
    return_addresses: usize,
    with_cfas: usize,
    with_fps: usize,
    /// Instructions at which framehop finds all return addresses; `None` where it does not read such files.
    by_framehop: Option<usize>,
    deepest: usize,
    methods: BTreeMap<String, usize>,
    stops: BTreeMap<String, usize>,
    wrong: BTreeMap<String, usize>,
}

struct Walker<'m> {
    modules: Modules<'m>,
    cache: Cache,
    frames: Vec<Frame>,
    arch: symseal_unwind::Arch,
    is_windows: bool,
    peer: Option<Peer>,
}

impl Walker<'_> {
    fn check(&mut self, now: &Instant<'_>, score: &mut Score) {
        let sp = now.general.get(usize::from(self.arch.stack_pointer())).copied().expect("sp");
        let fp = now.general.get(usize::from(self.arch.frame_pointer())).copied().expect("fp");
        let mut registers = Registers { pc: now.pc, sp, fp, ..Registers::default() };
        for (to, from) in registers.general.iter_mut().zip(&now.general) {
            *to = Some(*from);
        }
        // As a capture has it: from the stack pointer on.
        let from = (sp - (STACK_TOP - STACK_BYTES as u64)) as usize;
        let memory = StackBytes { start: Avma(sp), bytes: now.stack.get(from..).unwrap_or_default() };
        let walk = unwind(&self.modules, &registers, &memory, &mut self.cache, &mut self.frames);
        let found = self.frames.get(..walk.frames).unwrap_or_default();
        let callers: Vec<_> = now.above.iter().filter(|above| above.pc != 0).collect();
        let pcs = found.len() == callers.len() + 1
            && found
                .iter()
                .skip(1)
                .zip(&callers)
                .all(|(frame, above)| (frame.pc.0, frame.exact) == (above.pc, above.exact));
        let cfas = pcs && found.iter().zip(&now.above).all(|(frame, above)| frame.cfa.0 == above.cfa);
        let fps = cfas && found.iter().skip(1).zip(&callers).all(|(frame, above)| frame.fp == above.fp);
        score.instructions += 1;
        if let Some(peer) = &mut self.peer {
            *score.by_framehop.get_or_insert(0) += usize::from(peer.is_right(now, self.arch));
        }
        score.return_addresses += usize::from(pcs);
        score.with_cfas += usize::from(cfas);
        score.with_fps += usize::from(fps);
        if fps && let Some(wrong) = self.lost_register(now, sp) {
            *score.wrong.entry(wrong).or_default() += 1;
            score.with_fps -= 1;
        }
        score.deepest = score.deepest.max(callers.len());
        if pcs {
            *score.stops.entry(walk.stop.to_string()).or_default() += 1;
            for frame in found {
                *score.methods.entry(frame.method.to_string()).or_default() += 1;
            }
        }
        if fps {
            return;
        }
        let agreeing = found.iter().zip(&now.above).take_while(|(frame, above)| frame.cfa.0 == above.cfa).count();
        let (what, at) = match (pcs, cfas) {
            (true, true) => {
                let at = found.iter().skip(1).zip(&callers).take_while(|(frame, above)| frame.fp == above.fp).count();
                ("frame pointer", at)
            }
            (true, false) => ("CFA", agreeing),
            _ => ("return address", agreeing.min(found.len().saturating_sub(1))),
        };
        let frame = found.get(at).copied().unwrap_or_default();
        let rule = self.modules.rule(&frame);
        let rule = rule.map_or(String::from("no table"), |(rule, _)| rule.display(self.arch).to_string());
        *score.wrong.entry(format!("{what} at {:#x} ({rule}): {}", frame.pc.0, walk.stop.code())).or_default() += 1;
    }
}

impl Walker<'_> {
    /// A register that the running function keeps for its caller, and whose value there does not come out of the rule.
    fn lost_register(&self, now: &Instant<'_>, sp: u64) -> Option<String> {
        let frame = self.frames.first()?;
        let (rule, table) = self.modules.rule(frame)?;
        let slots = table.slots(Rva(frame.pc.0 - table.image_base().0))?;
        // What the processor pushed lies below the interrupted stack pointer.
        let base = if rule.kind() == Some(Kind::MachineFrame) { (frame.cfa.0 & !15) - 40 } else { frame.cfa.0 };
        let conventional = if self.is_windows { self.arch.convention_registers() } else { &[] };
        self.arch.slot_registers().iter().chain(conventional).find_map(|register| {
            let live = *now.general.get(usize::from(*register))?;
            let found = match slots.of(self.arch, *register)? {
                Saved::Same => Some(live),
                Saved::Unknown => None,
                Saved::At(words) => {
                    let slot = base.wrapping_add_signed(i64::from(words) * 8);
                    let at = (slot - (STACK_TOP - STACK_BYTES as u64)) as usize;
                    if slot < sp { Some(live) } else { Some(u64::from_le_bytes(*now.stack.get(at..)?.first_chunk()?)) }
                }
            };
            let name = self.arch.register_name(*register);
            (found != now.at_call.get(usize::from(*register)).copied()).then(|| format!("{name} at {:#x}", now.pc))
        })
    }
}

/// Steps one program; `Err` names what is missing.
fn step(platform: &Platform, options: &[&str], score: &mut Score) -> Result<(), &'static str> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = image::build(platform, options, directory.path())?;
    let bytes = std::fs::read(&path).expect("what was linked");
    let image = Image::read(&bytes);
    let compiled = image.compile();
    let report = &compiled.report;
    assert_eq!((report.unsupported_count, report.entries_outside_text), (0, 0), "{:?}", report.unsupported_reasons);
    let trace = trace::record(&image, directory.path()).ok_or("python3-unicorn")?;
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let code = image.code.first().copied().expect("code");
    let end = image.ranges.iter().map(|(start, size)| start + size).max().expect("sections");
    let module = Module {
        start: Avma(image.base),
        end: Avma(end),
        bias: 0,
        image_base: Svma(image.base),
        table: Some(table),
        code: Some(CodeBytes { start: Avma(code.0), bytes: code.1 }),
    };
    let mut walker = Walker {
        modules: Modules::new(image.arch, vec![module]),
        cache: Cache::new(),
        frames: vec![Frame::EMPTY; 128],
        arch: image.arch,
        is_windows: image.pdata.is_some(),
        peer: Peer::of(&image, &bytes, image.base..end),
    };
    let before = score.wrong.len();
    trace::replay(&trace, image.arch.registers(), |now| walker.check(now, score));
    if score.wrong.len() > before && std::env::var_os("SYMSEAL_KEEP_IMAGES").is_some() {
        println!("  kept {}", directory.keep().display());
    }
    Ok(())
}

fn check(platform: &Platform, variants: &[&[&str]]) {
    let mut score = Score::default();
    let began = Time::now();
    for options in variants {
        let before = (score.instructions, score.with_fps);
        if let Err(tool) = step(platform, options, &mut score) {
            return elf::skip(tool, "not found");
        }
        println!(
            "{} {options:?}: {} of {} right",
            platform.name,
            score.with_fps - before.1,
            score.instructions - before.0
        );
    }
    let share = |count: usize| 100.0 * count as f64 / score.instructions as f64;
    println!(
        "{}: {} instructions, {} frames deep, {:.1} s: return addresses {:.3} %, with CFAs {:.3} %, with frame pointers and kept registers {:.3} %{}",
        platform.name,
        score.instructions,
        score.deepest,
        began.elapsed().as_secs_f64(),
        share(score.return_addresses),
        share(score.with_cfas),
        share(score.with_fps),
        score
            .by_framehop
            .map_or_else(String::new, |right| format!("; return addresses by framehop {:.3} %", share(right))),
    );
    println!("  frames by {:?}; ends {:?}", score.methods, score.stops);
    for (kind, count) in &score.wrong {
        println!("  {count:6} {kind}");
    }
    assert!(score.instructions >= 30_000, "{} instructions", score.instructions);
    assert!(score.with_fps * 10_000 >= score.instructions * 9_999, "{} wrong", score.instructions - score.with_fps);
}

/// The instructions that sign return addresses, with the key that Windows takes.
const SIGNED: &str = "-mbranch-protection=pac-ret+b-key";
/// Without a frame pointer, much is described by DWARF; with it and asynchronous tables, all of it.
const MACOS_LEVELS: [&[&str]; 6] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-Os"],
    &["-O2", "-fomit-frame-pointer"],
    &["-O1", "-fasynchronous-unwind-tables"],
];
const LEVELS: [&[&str]; 4] = [&["-O0"], &["-O1"], &["-O2"], &["-Os"]];

#[test]
fn every_instruction_of_windows_x64_programs_gives_the_whole_stack() {
    check(&image::WINDOWS_X64, &LEVELS);
}

#[test]
fn every_instruction_of_windows_x64_programs_of_gcc_gives_the_whole_stack() {
    check(&image::WINDOWS_X64_GCC, &LEVELS);
}

#[test]
fn every_instruction_of_macos_arm64_programs_gives_the_whole_stack() {
    check(&image::MACOS_ARM64, &MACOS_LEVELS);
    // All of it is described by DWARF; for a processor without the return that authenticates, and for one with it.
    const OLD: &str = "-mcpu=cortex-a72";
    check(
        &image::MACOS_ARM64,
        &[&["-O0", SIGNED, OLD], &["-Os", SIGNED, OLD], &["-O2", SIGNED, OLD], &["-O2", SIGNED]],
    );
}

#[test]
fn every_instruction_of_macos_x86_64_programs_gives_the_whole_stack() {
    check(&image::MACOS_X86_64, &MACOS_LEVELS);
}

#[test]
fn every_instruction_of_windows_arm64_programs_gives_the_whole_stack() {
    check(&image::WINDOWS_ARM64, &[&["-O0"], &["-O1"], &["-O2"], &["-Os", SIGNED]]);
}
