//! Where the code of a table of functions begins. Since Go 1.26 the table leaves that to the program's own data. It is the beginning of `.text`, if Go's linker
//! has made the program; with C code in it another one did, which put start-up code first. What the table says of functions shows where they
//! are: right before the stack pointer has moved, there is the instruction that moved it.

use alloc::vec::Vec;

use super::super::Input;
use super::PUSH_FRAME_POINTER;
use super::table::Table;
use crate::arch::Arch;

/// How far behind the beginning of `.text` code is looked for, in bytes.
const FARTHEST: u64 = 1 << 20;
/// Go's code begins at a multiple of this.
const ALIGNMENT: usize = 16;
/// How many functions are looked through for places to look at, and how many such places are enough.
const MOST_FUNCTIONS: usize = 4096;
const MOST_SAMPLES: usize = 64;
/// With fewer nothing is shown.
const LEAST_SAMPLES: usize = 4;

/// The table of `input`, with its functions where they are; `None` if that is not known, or there is none that can be read.
pub(in super::super) fn open<'i>(input: &Input<'i>) -> Option<Table<'i>> {
    let (_, bytes) = input.pclntab?;
    let is_code = |svma| svma != 0 && (input.text.is_empty() || input.text.iter().any(|range| range.contains(&svma)));
    let table = Table::open(bytes, input.arch, input.bases.text, is_code)?;
    // In a Windows module no section is called after the table.
    if input.code.is_empty() || (table.is_placed() && !input.has_exception_directory()) {
        return Some(table);
    }
    let samples = samples(&table, input.arch);
    if table.is_placed() {
        return is_of(input, &samples).then_some(table);
    }
    // In that section alone, for others may be many.
    let text = input.bases.text?;
    let (start, code) = input.code.iter().find(|(start, _)| *start == text)?;
    let fits = |by: u64| {
        let (mut known, mut right) = (0, 0);
        for sample in &samples {
            known += 1;
            let at = sample.checked_sub(*start).and_then(|at| usize::try_from(at.checked_add(by)?).ok());
            let before = at.and_then(|at| code.get(..at)).unwrap_or_default();
            right += usize::from(moves_stack_pointer(input.arch, before));
            // Nearly all: assembler code moves it in other ways.
            if (known - right) * 10 > samples.len() {
                return false;
            }
        }
        samples.len() >= LEAST_SAMPLES
    };
    let by = (0..FARTHEST).step_by(ALIGNMENT).find(|by| fits(*by))?;
    table.moved(by)
}

/// Whether a table that says where its code is speaks of this module's: one that holds the file of another program holds its table, too.
fn is_of(input: &Input<'_>, samples: &[u64]) -> bool {
    let code_before = |address: u64| {
        input.code.iter().find_map(|(start, bytes)| bytes.get(..usize::try_from(address.checked_sub(*start)?).ok()?))
    };
    // Of older releases the smallest frame of amd64 is made so.
    let is_made = |code: &[u8]| {
        moves_stack_pointer(input.arch, code) || (input.arch == Arch::X86_64 && code.ends_with(&[0x48, 0x83, 0xec, 8]))
    };
    let right = samples.iter().filter(|sample| code_before(**sample).is_some_and(is_made)).count();
    samples.len() < LEAST_SAMPLES || right * 2 >= samples.len()
}

/// Addresses where functions have just made their frames, as compilers have them do that.
fn samples(table: &Table<'_>, arch: Arch) -> Vec<u64> {
    let is_usual = |moved: i64| match arch {
        Arch::X86_64 => moved == 8,
        Arch::I686 => (4..=124).contains(&moved),
        // Larger frames take more instructions.
        _ => (16..=240).contains(&moved),
    };
    let made = table.functions().take(MOST_FUNCTIONS).filter_map(|function| {
        let mut steps = table.distances(&function);
        let (_, first) = steps.next()??;
        let (range, moved) = steps.next()??;
        (first == 0 && is_usual(moved)).then_some(range.start)
    });
    made.take(MOST_SAMPLES).collect()
}

/// Whether `code` ends with an instruction that pushes the frame pointer, on 386 with `sub $n, %esp`, on arm64 and arm with one that pushes the link register
/// (`str x30, [sp, #-n]!`, `str lr, [sp, #-n]!`), or with `addiu $sp, $sp, -n` or `addi sp, sp, -n`, which stand behind
/// the one that stores it.
fn moves_stack_pointer(arch: Arch, code: &[u8]) -> bool {
    let word = code.last_chunk().map_or(0, |word| match arch.is_big_endian() {
        true => u32::from_be_bytes(*word),
        false => u32::from_le_bytes(*word),
    });
    match arch {
        Arch::X86_64 => code.last() == Some(&PUSH_FRAME_POINTER),
        Arch::I686 => matches!(code.last_chunk(), Some([0x83, 0xec, _])),
        Arch::Aarch64 => word & 0xffe0_0fff == 0xf800_0ffe,
        Arch::Arm => word & 0xffff_f000 == 0xe52d_e000,
        Arch::Mips32 | Arch::Mips32Little => word & 0xffff_8000 == 0x27bd_8000,
        // `c.addi` and `c.addi16sp` are the short forms, in the last two bytes.
        Arch::Riscv64 => word & 0x800f_ffff == 0x8001_0113 || matches!(word >> 16 & 0xff83, 0x1101 | 0x7101),
    }
}
