//! The CLI header of a .NET assembly: whether its code is methods in the runtime's own instructions alone. (ECMA-335, II.25.3.3)

use super::Pe;
use super::pdata::u32_at;

/// `Flags`, and `COMIMAGE_FLAGS_ILONLY` in them.
const FLAGS: usize = 16;
const IL_ONLY: u32 = 1;
/// `ManagedNativeHeader`, zeros in the standard: where code that was compiled ahead of time is (ReadyToRun), and its size.
const NATIVE: usize = 64;
const HEADER_BYTES: usize = 72;

/// Whether no section holds instructions of a processor. The jump to the runtime that assemblies for 32 bits begin with (II.25.4) is none that anybody
/// wrote, and 64-bit Windows does without.
pub(super) fn is_il_alone(pe: &Pe<'_>) -> bool {
    let header = pe.cli_header.and_then(|directory| pe.bytes_at(directory.rva)?.get(..HEADER_BYTES));
    let Some(header) = header else { return false };
    let field = |at: usize| u32_at(header, at).unwrap_or_default();
    field(FLAGS) & IL_ONLY != 0 && field(NATIVE) == 0 && field(NATIVE + 4) == 0
}
