//! The steps "binary's own debug information" and "binary's own symbols": the module's file where the
//! process had it, or an image that the trace carries.

use std::fs::File;
use std::io::{self, Read};

use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile};
use symseal_bundle::Digest;
use symseal_module::{DebugId, MappedModule, MissReason, Svma};
use symseal_symx::TableInput;

use crate::ModuleFiles;
use crate::bundles::io_reason;
use crate::table::{LoadedTable, TableBytes};

/// The largest binary that is read, in bytes.
const MAX_BINARY_BYTES: u64 = 4 << 30;

/// Why a binary gave no table: the reason and, for people, a word about it.
type NoTable = (MissReason, String);

/// A binary's names.
#[derive(Debug)]
pub(crate) struct BinaryTable {
    pub(crate) table: LoadedTable,
    /// Whether it has debug information, as opposed to symbols alone.
    pub(crate) has_debug_info: bool,
    /// The digest of the binary.
    pub(crate) digest: Digest,
}

/// Reads the module's file, which must be of the module `id`.
pub(crate) fn open_file(files: &dyn ModuleFiles, module: &MappedModule, id: &DebugId) -> Result<BinaryTable, NoTable> {
    let file = files.open(module).map_err(|error| (io_reason(&error), format!("{}: {error}", module.path)))?;
    open_image(&read_file(file, &module.path)?, id)
}

/// Makes the table of an image in memory, which must be of the module `id`.
pub(crate) fn open_image(bytes: &[u8], id: &DebugId) -> Result<BinaryTable, NoTable> {
    let object = ObjectFile::parse(bytes).map_err(|error| (MissReason::Malformed, error.to_string()))?;
    match object.debug_id() {
        Some(found) if found == id => {}
        Some(found) => return Err((MissReason::DebugIdMismatch, format!("the file is of {found}"))),
        None => return Err((MissReason::DebugIdMismatch, "the file has no debug id".to_string())),
    }
    let stream = symseal_artifact::functions(&object, &DebugFiles::default())
        .map_err(|error| (MissReason::Malformed, error.to_string()))?;
    if stream.functions.is_empty() {
        return Err((MissReason::NoDebugInfo, String::new()));
    }
    let table = write_table(&stream, object.image_base(), id, bytes).map_err(|error| (MissReason::Malformed, error))?;
    Ok(BinaryTable {
        table: LoadedTable::open(TableBytes::Owned(table), Some(id), None, Vec::new())?,
        has_debug_info: object.has_debug_info(),
        digest: Digest::of(bytes),
    })
}

/// The `.symx` table of a function stream: binaries and bundles are then read by the same code.
pub(crate) fn write_table(
    stream: &FunctionStream,
    image_base: Svma,
    id: &DebugId,
    source: &[u8],
) -> Result<Vec<u8>, String> {
    symseal_symx::write(&TableInput {
        debug_id: id,
        image_base,
        source_sha256: *Digest::of(source).as_bytes(),
        producer: concat!("symseal ", env!("CARGO_PKG_VERSION")),
        strings: &stream.strings,
        functions: &stream.functions,
    })
    .map_err(|error| error.to_string())
}

fn read_file(file: File, path: &str) -> Result<Vec<u8>, NoTable> {
    let unreadable = |error: io::Error| (io_reason(&error), format!("{path}: {error}"));
    let size = file.metadata().map_err(unreadable)?.len();
    if size > MAX_BINARY_BYTES {
        let detail = format!("{path}: {size} bytes, at most {MAX_BINARY_BYTES} are read");
        return Err((MissReason::FileUnreadable, detail));
    }
    let mut bytes = Vec::new();
    // The file may have grown since; the bound holds all the same.
    file.take(MAX_BINARY_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
