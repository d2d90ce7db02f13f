//! The source files that a module's line tables name.

use crate::budget::Budget;
use crate::dwarf::{self, Named};
use crate::pdb::PdbReader;
use crate::stream::load_dwarf;
use crate::work::Work;
use crate::{ArtifactError, Checksum, DebugFiles, ObjectFile, PdbFile, escaped};
use std::num::NonZeroUsize;

/// Gives every file that the line tables of a module name to `take`, whether or not code comes of it: headers with types alone, what stands
/// before `#line`. Paths are as [`FunctionStream::sources`](crate::FunctionStream::sources) has them, with what the compiler noted of the content; one comes as often as tables
/// name it. Nothing is kept of them here. Damaged tables give fewer.
///
/// # Errors
/// [`ArtifactError`] says that two files do not belong together.
pub fn source_files(
    binary: &ObjectFile<'_>,
    with: &DebugFiles<'_, '_>,
    take: &mut dyn FnMut(&str, Option<Checksum>),
) -> Result<(), ArtifactError> {
    let mut work = Work::new();
    let dwarf = load_dwarf(binary, with, NonZeroUsize::MIN, &mut work)?;
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let mut files = |path: &[u8], named: Named| {
        if let Named::File(checksum) = named
            && !is_no_file(path)
        {
            take(&escaped(path), checksum);
        }
    };
    dwarf::each_line_file(&dwarf, &mut files, &mut work);
    if let Some(pdb) = with.pdb {
        pdb_source_files(pdb, take);
    }
    Ok(())
}

/// What compilers call text of their own: `<built-in>`, `<command-line>`, `<stdin>`.
fn is_no_file(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
    name.starts_with(b"<") && name.ends_with(b">")
}

/// The same of a program database whose PE file is not at hand: every file of its modules.
pub fn pdb_source_files(file: &PdbFile<'_>, take: &mut dyn FnMut(&str, Option<Checksum>)) {
    let mut work = Work::new();
    work.budget = Budget::for_bytes(file.bytes());
    PdbReader::source_files(file, &mut |path, checksum| take(&escaped(path), checksum), &mut work);
}
