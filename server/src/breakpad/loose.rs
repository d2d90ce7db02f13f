//! The symbol file of a module that came without a bundle: of the table that is made of its debug file, and of its program where that is here too.
//!
//! Both are told apart by the debug id alone, so they may come from different places: a PDB that was uploaded and a PE file of a tree, say.

use std::io;
use std::sync::Arc;

use symseal_artifact::{FrameTable, ObjectFile, ReleaseFile};
use symseal_builder::loose_unwind_table;
use symseal_bundle::Digest;
use symseal_module::DebugId;
use symseal_symx::Table;
use tempfile::NamedTempFile;

use super::{Head, write_file};
use crate::app::App;
use crate::blobs::BlobDirectory;
use crate::debug_files::{FileKind, Key, Scope};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::made_tables::{MadeTable, made_table};
use crate::unbundled::{FileBytes, MappedFile, Unbundled};
use crate::upstream::Sought;

/// Counts the forms that were written so far: files of an older one are made again.
const FORM: u32 = 1;

/// What names of debug files end with that are not so in the names of their programs.
const ENDINGS: [&str; 3] = [".debug", ".dbg", ".dwarf"];

/// A file that a symbol file is made of.
struct Part {
    bytes: FileBytes,
    name: String,
    sha256: String,
}

/// The symbol file of the module with this id, which is written as `id` in it, and whether nothing is missing that its debug file refers to; none where no debug file of it is here that has functions.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] where none can be made of what is here; else another time may be better.
pub(crate) async fn loose_symbol_file(
    app: &App,
    scope: &Scope,
    (guid, age): ([u8; 16], u32),
    id: String,
    sought: &Sought<'_>,
) -> Option<io::Result<(CachedFile, bool)>> {
    let table = match made_table(app, scope, (guid, age), sought).await? {
        Ok(table) if table.has_functions() => table,
        Ok(_) => return None,
        Err(error) => return Some(Err(error)),
    };
    let is_whole = table.lacks.is_empty();
    Some(make(app, scope, table, id).await.map(|file| (file, is_whole)))
}

async fn make(app: &App, scope: &Scope, table: MadeTable, id: String) -> io::Result<CachedFile> {
    let debug_id = Table::open(&table).map_err(invalid)?.debug_id();
    let program = Unbundled::find(app, scope, &Key::Id(debug_id.clone()), FileKind::Executable);
    let program = match &program {
        Some(program) => Some(part(app, program).await?),
        None => None,
    };
    let of_program = program.as_ref().map(|part| format!("{} {}", part.sha256, part.name)).unwrap_or_default();
    let debug = part(app, &table.origin).await?;
    let key =
        CacheKey::of(&format!("loose sym {FORM} {} {} {} {id} {of_program}", table.sha256, table.arch, debug.name));
    let (blobs, limit) = (Arc::clone(&app.blobs), app.cache.capacity() / 2);
    let job = move |file: &mut NamedTempFile| write(&blobs, (&table, debug_id), (debug, program), id, (file, limit));
    app.cache.make((&app.pool, &app.making), key, job).await
}

async fn part(app: &App, file: &Unbundled) -> io::Result<Part> {
    Ok(Part { bytes: file.bytes(app).await?, name: file.name().to_owned(), sha256: file.sha256() })
}

fn write(
    blobs: &BlobDirectory,
    (table, debug_id): (&MadeTable, DebugId),
    (debug, program): (Part, Option<Part>),
    id: String,
    out: (&mut NamedTempFile, u64),
) -> io::Result<Note> {
    let Part { bytes, name: debug_name, .. } = debug;
    let debug_bytes = bytes.map(blobs)?;
    let program =
        program.map(|part| Ok::<_, io::Error>((part.bytes.map(blobs)?, part.name, part.sha256))).transpose()?;
    let debug = ReleaseFile::parse(&debug_bytes).map_err(invalid)?;
    let code = program.as_ref().and_then(|(bytes, name, sha256)| {
        let object = object_of(bytes, &debug_id)?;
        let digest = format!("sha256:{sha256}").parse::<Digest>().ok()?;
        Some((object, digest, name))
    });
    let (separate, frames) = match debug {
        ReleaseFile::Object(object) => (Some(object), FrameTable::default()),
        ReleaseFile::Fat(slices) => (slice_of(slices, &debug_id), FrameTable::default()),
        ReleaseFile::Pdb(pdb) if pdb.arch().code() == "x86" => (None, pdb.frame_data().map_err(invalid)?),
        ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => (None, FrameTable::default()),
    };
    let unwind = code.as_ref().and_then(|(object, digest, _)| {
        // The debug file says something that the program does not where it is another file.
        let separate = separate.as_ref().filter(|_| digest.hex() != table.source);
        loose_unwind_table(&debug_id, (object, *digest), separate)
    });
    let unwind = unwind.as_deref().map(symseal_unwind::Table::open).transpose().map_err(invalid)?;
    let is_windows = matches!(debug_id, DebugId::Pdb { .. });
    let name = match &code {
        // As bundles have it: a PE module's debug file is its PDB.
        Some((object, ..)) if is_windows && object.pdb_reference().is_some() => debug_name.as_str(),
        Some((_, _, name)) => name.as_str(),
        None => ENDINGS.iter().find_map(|ending| debug_name.strip_suffix(ending)).unwrap_or(&debug_name),
    };
    let head = Head {
        platform: platform(&debug_id).to_owned(),
        arch: table.arch.clone(),
        id,
        name: name.to_owned(),
        code_id: match &debug_id {
            DebugId::BuildId(_) => Some(debug_id.to_string()),
            _ => code.as_ref().and_then(|(object, ..)| object.code_id()),
        },
        code_file: code.as_ref().filter(|_| is_windows).map(|(.., name)| (*name).clone()),
    };
    let symbols = Table::open(table).map_err(invalid)?;
    write_file(&head, &symbols, unwind.as_ref(), &frames, out)
}

fn platform(id: &DebugId) -> &'static str {
    match id {
        DebugId::BuildId(_) => "linux",
        DebugId::Pdb { .. } => "windows",
        DebugId::MachoUuid(_) => "macos",
    }
}

/// The program of a file, of a universal one the slice with the id.
fn object_of<'d>(bytes: &'d MappedFile, id: &DebugId) -> Option<ObjectFile<'d>> {
    match ReleaseFile::parse(bytes).ok()? {
        ReleaseFile::Object(object) => Some(object),
        ReleaseFile::Fat(slices) => slice_of(slices, id),
        ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => None,
    }
}

fn slice_of<'d>(slices: Vec<ObjectFile<'d>>, id: &DebugId) -> Option<ObjectFile<'d>> {
    slices.into_iter().find(|slice| slice.debug_id() == Some(id))
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
