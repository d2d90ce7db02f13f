//! `STACK WIN`: the frame data of a PDB of 32-bit x86.

use std::io::{self, Write};

use symseal_artifact::{FrameKind, FrameRule, FrameTable};

/// The type of records with a program. Readers take a program in no other, and in this one nothing else.
const FRAME_DATA: u32 = 4;

/// `STACK WIN type address size prolog epilog parameters saved locals stack has-program (program | uses-base-pointer)`.
pub(super) fn write(table: &FrameTable, out: &mut impl Write) -> io::Result<()> {
    for frame in table.frames() {
        let kind = match frame.rule {
            FrameRule::Program(_) => FRAME_DATA,
            FrameRule::Sizes { kind, .. } => type_of(kind),
        };
        write!(
            out,
            "STACK WIN {kind:x} {:x} {:x} {:x} 0 {:x} {:x} {:x} {:x} ",
            frame.rva,
            frame.code_size,
            frame.prolog_size,
            frame.params_size,
            frame.saved_size,
            frame.locals_size,
            frame.max_stack_size
        )?;
        match frame.rule {
            FrameRule::Program(program) => writeln!(out, "1 {}", table.program(program))?,
            FrameRule::Sizes { uses_base_pointer, .. } => writeln!(out, "0 {}", u8::from(uses_base_pointer))?,
        }
    }
    Ok(())
}

/// The type of a record without a program. Readers walk by the sizes of the first one alone: taken for that one, a function with a frame pointer would
/// give a wrong caller. (Microsoft, `StackFrameTypeEnum`)
fn type_of(kind: FrameKind) -> u32 {
    match kind {
        FrameKind::Fpo => 0,
        FrameKind::Trap => 1,
        FrameKind::Tss => 2,
        FrameKind::Standard => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_types_that_readers_of_symbol_files_know() {
        let kinds = [FrameKind::Fpo, FrameKind::Trap, FrameKind::Tss, FrameKind::Standard];
        assert_eq!(kinds.map(type_of), [0, 1, 2, 3]);
        assert_eq!(FRAME_DATA, 4);
    }
}
