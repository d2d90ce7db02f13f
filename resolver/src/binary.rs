//! The steps "binary's own debug information" and "binary's own symbols": the module's file where the
//! process had it, or an image that the trace carries.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile};
use symseal_bundle::Digest;
use symseal_module::escape::unescape;
use symseal_module::{DebugId, MissReason, Svma};
use symseal_symx::TableInput;

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

/// Reads the file at `path` (escaped, as traces have it), which must be of the module `id`.
pub(crate) fn open_file(path: &str, id: &DebugId) -> Result<BinaryTable, NoTable> {
    let bytes = read_file(&path_of(path))?;
    open_image(&bytes, id)
}

/// The path that a trace's text means; a text that means none is taken as it is.
fn path_of(text: &str) -> PathBuf {
    let Some(bytes) = unescape(text) else { return PathBuf::from(text) };
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }
    #[cfg(not(unix))]
    PathBuf::from(String::from_utf8(bytes).unwrap_or_else(|_| text.to_string()))
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

fn read_file(path: &Path) -> Result<Vec<u8>, NoTable> {
    let unreadable = |error: std::io::Error| (io_reason(&error), format!("{}: {error}", path.display()));
    // A device or a pipe could block for ever or never end, so the kind of file is asked before it is opened.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err((MissReason::FileUnreadable, format!("{}: not a regular file", path.display())));
    }
    if metadata.len() > MAX_BINARY_BYTES {
        let detail = format!("{}: {} bytes, at most {MAX_BINARY_BYTES} are read", path.display(), metadata.len());
        return Err((MissReason::FileUnreadable, detail));
    }
    let mut bytes = Vec::new();
    // The file may have grown since; the bound holds all the same.
    File::open(path).and_then(|file| file.take(MAX_BINARY_BYTES).read_to_end(&mut bytes)).map_err(unreadable)?;
    Ok(bytes)
}
