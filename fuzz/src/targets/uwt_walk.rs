//! A table from outside, walked with registers and a stack from outside.

use libfuzzer_sys::arbitrary::{Arbitrary as _, Unstructured};
use symseal_module::{Avma, Svma};
use symseal_unwind::{Cache, Frame, Module, Modules, Registers, StackBytes, Table, unwind};

const BASE: u64 = 0x5500_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// Size of the cache, registers, stack and table.
type Input<'a> = (u8, u64, u64, u64, [u64; 6], &'a [u8], &'a [u8]);

pub(super) fn run(bytes: &[u8]) {
    let Ok((capacity, pc, sp, fp, general, stack, bytes)) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return;
    };
    let table = Table::open(bytes).ok();
    if let Some(table) = &table {
        let _ = (table.verify(), table.rows().count(), table.sources().count(), table.counts(), table.debug_id());
    }
    let base = table.as_ref().map_or(0, |table| table.image_base().0);
    let module = Module {
        start: Avma(BASE),
        end: Avma(BASE + (1 << 32)),
        bias: BASE.wrapping_sub(base),
        image_base: Svma(base),
        table,
        code: None,
    };
    let modules = Modules::new(vec![module]);
    let mut registers = Registers { pc: BASE + (pc & 0xffff_ffff), sp: STACK + (sp & 0xfff8), fp, general: [None; 16] };
    for (to, from) in registers.general.iter_mut().skip(10).zip(general) {
        *to = Some(from);
    }
    let memory = StackBytes { start: Avma(STACK), bytes: stack };
    let mut cache = Cache::with_capacity(usize::from(capacity));
    let mut frames = [Frame::EMPTY; 128];
    for _ in 0..2 {
        let walk = unwind(&modules, &registers, &memory, &mut cache, &mut frames);
        for frame in frames.iter().take(walk.frames) {
            let _ = (modules.source(frame), modules.rule(frame).map(|(rule, _)| rule.to_string()));
        }
    }
}
