//! Unwind sections from outside: whatever they hold, the table that comes of them is sound.

use symseal_module::DebugId;
use symseal_module::Svma;
use symseal_unwind::compile::{Bases, Input, Orc, Plt, compile, coroutines, go_runtime, tasks};
use symseal_unwind::{Arch, Table};

/// Names that debug information has to have to be read for tasks and for coroutines.
const NAMES: &[u8] =
    b"\0WAKER_VTABLE\0_Coro_promise\0__promise\0frame_ptr\0__coro_frame\0coroutine_handle<void>\0_Coro_resume_index\0";

pub(super) fn run(bytes: &[u8]) {
    // The first byte chooses what the rest is taken for; its highest bit says that another one chooses the processor.
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let (arch, bytes) = match bytes.split_first() {
        Some((number, rest)) if choice & 0x80 != 0 => {
            (Arch::ALL.get(usize::from(*number) % Arch::ALL.len()).copied().unwrap_or(Arch::X86_64), rest)
        }
        _ => (Arch::X86_64, bytes),
    };
    let Ok(debug_id) = DebugId::from_build_id(&[1]) else { return };
    let half = bytes.len() / 2;
    let (front, back) = bytes.split_at(half);
    let text = [0x1000..0x9000, 0x2_0000..0x2_4000];
    let plt =
        [Plt { range: 0x1000..0x1000 + front.len() as u64, entry_size: u64::from(choice >> 4 & 7) * 4, bytes: front }];
    let input = Input {
        text: &text,
        eh_frame: (choice & 1 != 0).then_some((0x10_0000, if choice & 2 != 0 { front } else { bytes })),
        eh_frame_hdr: (choice & 2 != 0).then_some((0x11_0000, back)),
        debug_frame: (choice & 4 != 0).then_some((0, bytes)),
        pdr: (choice & 1 == 0).then_some(back),
        // Its entries lead into themselves, and into what is loaded.
        exidx: (choice & 1 == 0).then_some((0x8000, back)),
        pclntab: (choice & 4 == 0).then_some((0x7000, bytes)),
        has_sframe: choice & 1 == 0,
        // Their places are distances from the first section.
        orc: (choice & 2 == 0).then_some(Orc { places: (0x1000, front), entries: back }),
        loaded: &[(0x8000, back), (0x1_0000, front)],
        functions: &[0x1000, 0x1011, 0x2000],
        plt: if choice & 8 != 0 { &plt } else { &[] },
        code: &[(0x1000, bytes)],
        is_jit: choice & 16 != 0,
        producer: "fuzz",
        bases: Bases { text: Some(0x1000), got: Some(0x12_0000) },
        ..Input::of(arch, &debug_id)
    };
    // What may be a table of functions comes with what may be debug information.
    let section = |name: &str| match name {
        ".debug_info" => front,
        ".debug_abbrev" => back,
        _ => bytes,
    };
    let go = go_runtime(&input, section);
    // Whose names are there: without them nothing is read.
    let strings: Vec<u8> = [back, NAMES].concat();
    let section = |name: &str| if name == ".debug_str" { strings.as_slice() } else { section(name) };
    let symbols = [(&b"f.actor"[..], 0x1000), (b"f.destroy", 0x1100), (b"g.resume", 0x1200), (b"g.cleanup", 0x1300)];
    let symbols = symbols.map(|(name, start)| (name, Svma(start), 0x100));
    let (tasks, coroutines) = (tasks(&input, section), coroutines(&input, symbols, section));
    let input = Input { tasks: tasks.as_deref(), coroutines: coroutines.as_deref(), ..input };
    let Ok(compiled) = compile(&Input { go_runtime: go.as_ref(), ..input }) else { return };
    let table = Table::open(&compiled.bytes).expect("our own table opens");
    table.verify().expect("our own table is sound");
    assert!(compiled.report.covered_bytes <= compiled.report.text_bytes);
}
