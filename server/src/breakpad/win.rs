//! `STACK WIN`: the frame data of a PDB of 32-bit x86.

use std::io::{self, Write};

use symseal_artifact::{FrameData, FrameRule};

/// Types of records: without a program (`FPO_DATA`), and with one.
const FPO: u32 = 0;
const FRAME_DATA: u32 = 4;

/// `STACK WIN type address size prolog epilog parameters saved locals stack has-program (program | uses-base-pointer)`.
pub(super) fn write(frames: &[FrameData], out: &mut impl Write) -> io::Result<()> {
    for frame in frames {
        let FrameData { rva, code_size, prolog_size, params_size, saved_size, locals_size, max_stack_size, rule } =
            frame;
        let kind = if matches!(rule, FrameRule::Program(_)) { FRAME_DATA } else { FPO };
        write!(
            out,
            "STACK WIN {kind:x} {rva:x} {code_size:x} {prolog_size:x} 0 {params_size:x} {saved_size:x} {locals_size:x} {max_stack_size:x} "
        )?;
        match rule {
            FrameRule::Program(program) => writeln!(out, "1 {program}")?,
            FrameRule::Sizes { uses_base_pointer } => writeln!(out, "0 {}", u8::from(*uses_base_pointer))?,
        }
    }
    Ok(())
}
