//! The unwind information of Windows and Mach-O images from outside: whatever it holds, the table that comes of it is sound.

use symseal_module::{DebugId, Svma};
use symseal_unwind::compile::{Input, Plt, compile};
use symseal_unwind::{Arch, Table};

/// Where an image's parts lie, relative to its base.
const BASE: u64 = 0x1_4000_0000;
const CODE: u64 = BASE + 0x1000;
const INFO: u64 = BASE + 0x4000;
const DIRECTORY: u64 = BASE + 0x8000;

pub(super) fn run(bytes: &[u8]) {
    // Processor and kind; then how long the code and the directory are, in 16ths; what is left is what they lead to.
    let Some(([choice, lengths], bytes)) = bytes.split_first_chunk::<2>() else { return };
    let Ok(debug_id) = DebugId::from_build_id(&[1]) else { return };
    let arch = if choice & 1 != 0 { Arch::Aarch64 } else { Arch::X86_64 };
    let is_macho = choice & 2 != 0;
    let part = |sixteenths: u8| bytes.len() * usize::from(sixteenths) / 16;
    let (code, rest) = bytes.split_at(part(lengths >> 4));
    let (directory, info) = rest.split_at(rest.len().min(part(lengths & 15)));
    let text = [CODE..CODE + code.len() as u64];
    let loaded = [(CODE, code), (INFO, info), (DIRECTORY, directory)];
    let stubs = [Plt { range: CODE..CODE + 12, entry_size: 6, bytes: code.get(..12).unwrap_or_default() }];
    let input = Input {
        image_base: Svma(BASE),
        text: &text,
        eh_frame: (choice & 4 != 0).then_some((INFO, info)),
        pdata: (!is_macho).then_some((DIRECTORY, directory)),
        unwind_info: is_macho.then_some((DIRECTORY, directory)),
        loaded: &loaded,
        plt: if choice & 8 != 0 { &stubs } else { &[] },
        code: &loaded[..1],
        producer: "fuzz",
        ..Input::of(arch, &debug_id)
    };
    let Ok(compiled) = compile(&input) else { return };
    let table = Table::open(&compiled.bytes).expect("our own table opens");
    table.verify().expect("our own table is sound");
    let _ = (table.rows().count(), table.sources().count());
    assert!(compiled.report.covered_bytes <= compiled.report.text_bytes);
}
