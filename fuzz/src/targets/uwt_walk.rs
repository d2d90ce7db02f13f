//! A table from outside, walked with registers and a stack from outside.

use libfuzzer_sys::arbitrary::{Arbitrary as _, Unstructured};
use symseal_module::{Avma, Svma};
use symseal_unwind::{
    Arch, Cache, CodeBytes, Frame, GoRuntime, GoroutineFields, Module, Modules, Options, Registers, StackBytes, Table,
    unwind_with,
};

/// Both are addresses of 32-bit processors too.
const BASE: u64 = 0x1000_0000;
const STACK: u64 = 0x7fff_0000;

/// Size of the cache, registers, stack and table.
type Input<'a> = (u8, u64, u64, u64, [u64; 6], &'a [u8], &'a [u8]);

/// The table with the size and the checksum of its header that it has, and for another processor where that is not 0, so that every processor's
/// engine comes to look at what is in it.
fn made_good(bytes: &[u8], processor: u8) -> Vec<u8> {
    const HEADER: usize = 96;
    const ENTRY: usize = 24;
    let mut table = bytes.to_vec();
    let size = table.len() as u64;
    let Some(header) = table.first_chunk_mut::<HEADER>() else { return table };
    if processor != 0 {
        header[6] = processor;
    }
    header[16..24].copy_from_slice(&size.to_le_bytes());
    header[8..12].fill(0);
    let sections = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
    let directory_end = HEADER.saturating_add(sections.saturating_mul(ENTRY));
    if let Some(checksum) = table.get(..directory_end).map(crc32fast::hash) {
        table[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    table
}

pub(super) fn run(bytes: &[u8]) {
    let Ok((capacity, pc, sp, fp, general, stack, bytes)) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return;
    };
    let bytes = if capacity & 0x80 == 0 { bytes.to_vec() } else { made_good(bytes, capacity >> 4 & 7) };
    let table = Table::open(&bytes).ok();
    if let Some(table) = &table {
        let _ = (table.verify(), table.rows().count(), table.sources().count(), table.counts(), table.debug_id());
    }
    let arch = table.as_ref().map_or(Arch::X86_64, Table::arch);
    let base = table.as_ref().map_or(0, |table| table.image_base().0);
    let module = Module {
        start: Avma(BASE),
        end: Avma(BASE + (1 << 30)),
        bias: BASE.wrapping_sub(base),
        image_base: Svma(base),
        table,
        code: Some(CodeBytes { start: Avma(BASE), bytes: stack }),
    };
    // A runtime of Go whose functions are half of the code, and whose structures are where a register points to.
    let g = GoroutineFields { stack_lo: 0, stack_hi: 8, m: 16, sched_sp: 24, sched_pc: 32, sched_bp: 40 };
    let switches = vec![Avma(BASE)..Avma(BASE + (1 << 28))];
    let c_calls = vec![Avma(BASE + (1 << 28))..Avma(BASE + (1 << 29))];
    let go = GoRuntime { switches, c_calls, g, curg: 48 };
    let modules = Modules::new(arch, vec![module]);
    let modules = if capacity & 1 == 0 { modules } else { modules.with_go_runtime(go) };
    let none = [None; Registers::GENERAL];
    // Mostly in the code and on the stack; else anywhere, and the first registers in the place of later ones.
    let is_wild = capacity & 2 != 0;
    let (pc, sp) = if is_wild { (pc, sp) } else { (BASE + (pc & 0x3fff_ffff), STACK + (sp & 0xfff8)) };
    let mut registers = Registers { pc, sp, fp, general: none };
    let (first, step) = if is_wild { (0, 1) } else { (10, 4) };
    for (to, from) in registers.general.iter_mut().skip(first).step_by(step).zip(general) {
        *to = Some(from);
    }
    let memory = StackBytes { start: Avma(STACK), bytes: stack };
    let mut cache = Cache::with_capacity(usize::from(capacity));
    let mut frames = [Frame::EMPTY; 128];
    for scan in [false, true] {
        let options = Options { scan, continuations: scan, ..Options::default() };
        let walk = unwind_with(&modules, &registers, &memory, &mut cache, &mut frames, options);
        for frame in frames.iter().take(walk.frames) {
            let rule = modules.rule(frame).map(|(rule, _)| rule.display(arch).to_string());
            let _ = (modules.source(frame), rule);
        }
    }
}
