//! The separate debug file of a module: found where debuggers look for one, and used only if it is of this module.

use std::path::{Path, PathBuf};

use symseal_artifact::{FileKind, ObjectFile, PdbFile, sniff};
use symseal_module::{DebugId, MappedModule, MissReason, Rva, Svma};

use super::companions::{Around, FilesOf, describe};
use super::pair::Program;
use super::places::{self, shown};
use super::read::{object_of, pdb_of, read_whole};
use super::{Local, LocalTable, NoTable, table_of};
use crate::FileBytes;
use crate::files::path_of;

/// What makes a file at a place the one that is looked for, beside its debug id.
#[derive(Clone, Copy)]
enum Sought {
    /// The module's id.
    ById,
    /// The CRC-32 that the binary's link names, and the id where the file has one that a linker wrote.
    ByLink(u32),
}

impl Local {
    /// The table of the module's separate debug file; of its functions those at the `wanted` addresses do.
    pub(super) fn open_debug_file(
        &self,
        module: Option<&MappedModule>,
        id: &DebugId,
        wanted: &[Rva],
    ) -> Result<LocalTable, NoTable> {
        let path = module.map(|module| path_of(&module.path)).filter(|path| path.is_absolute());
        let program = path.as_deref();
        let places = self.places(module, program, id);
        let looked_at = places.len();
        let mut problem = None;
        // It has a say in the names, where it is there and is the module's.
        let mut own = None;
        for (place, sought) in places {
            for read in self.read_path(&place) {
                let opened = read.and_then(|bytes| {
                    let own = own.get_or_insert_with(|| module.and_then(|module| self.binary_once(module).ok()));
                    let beside = Beside { module, bytes: own.as_ref(), path: program };
                    self.debug_table_at(&bytes, &place, (id, sought), (beside, wanted))
                });
                match opened {
                    Ok(table) => return Ok(table),
                    // The first one says most: it is where the file should be.
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
        }
        if let (Some(module), Some(bytes)) = (module, own.flatten()) {
            self.last_binary.keep(module, bytes);
        }
        Err(problem.unwrap_or_else(|| {
            let places = if looked_at == 1 { "place" } else { "places" };
            (MissReason::NoDebugFile, format!("none at the {looked_at} {places} where debuggers look for one"))
        }))
    }

    /// Where it may be, the likelier places first.
    fn places(&self, module: Option<&MappedModule>, program: Option<&Path>, id: &DebugId) -> Vec<(PathBuf, Sought)> {
        let by_id = |places: Vec<PathBuf>| places.into_iter().map(|place| (place, Sought::ById)).collect::<Vec<_>>();
        match id {
            DebugId::BuildId(_) => {
                let mut places = by_id(places::by_build_id(&self.directories, id.build_id().unwrap_or_default()));
                let Some(program) = program else { return places };
                places.extend(self.linked(module, program, id));
                // Where the link leads its checksum counts, whatever the name.
                let beside = places::beside(program).into_iter();
                let beside: Vec<PathBuf> =
                    beside.filter(|place| places.iter().all(|(sought, _)| sought != place)).collect();
                places.extend(by_id(beside));
                places
            }
            DebugId::Pdb { .. } => {
                let Some(program) = program else { return Vec::new() };
                let written = module.and_then(|module| self.written_pdb(module, id));
                let mut places = by_id(places::program_database(program, written.as_deref()));
                // MinGW: what the linker wrote an id for is no program database, but a PE file with DWARF.
                places.extend(self.linked(module, program, id));
                places
            }
            DebugId::MachoUuid(_) => by_id(program.map(places::dsym).unwrap_or_default()),
        }
    }

    /// Where `.gnu_debuglink` of the program leads, if it has one.
    fn linked(&self, module: Option<&MappedModule>, program: &Path, id: &DebugId) -> Vec<(PathBuf, Sought)> {
        let Some((name, crc32)) = module.and_then(|module| self.debug_link(module, id)) else { return Vec::new() };
        let places = places::by_debug_link(&self.directories, program, &name).into_iter();
        places.map(|place| (place, Sought::ByLink(crc32))).collect()
    }

    /// Name and CRC-32 in the binary's `.gnu_debuglink`.
    fn debug_link(&self, module: &MappedModule, id: &DebugId) -> Option<(Vec<u8>, u32)> {
        let bytes = self.binary_once(module).ok()?;
        let binary = object_of(&bytes, id, &module.path).ok()?;
        let link = binary.debug_link().map(|link| (link.file_name.to_vec(), link.crc32));
        self.last_binary.keep(module, bytes);
        link
    }

    /// Where the linker wrote the program database.
    fn written_pdb(&self, module: &MappedModule, id: &DebugId) -> Option<Vec<u8>> {
        let bytes = self.binary_once(module).ok()?;
        let binary = object_of(&bytes, id, &module.path).ok()?;
        let path = binary.pdb_reference().map(|pdb| pdb.path.to_vec());
        self.last_binary.keep(module, bytes);
        path
    }

    /// The bytes of the module's own file.
    pub(crate) fn read_binary(&self, module: &MappedModule) -> Result<FileBytes, NoTable> {
        let unreadable =
            |error: std::io::Error| (crate::bundles::io_reason(&error), format!("{}: {error}", module.path));
        read_whole(self.files.open(module).map_err(unreadable)?, &module.path)
    }

    /// The same, or what was read of it just now.
    pub(super) fn binary_once(&self, module: &MappedModule) -> Result<FileBytes, NoTable> {
        self.last_binary.take(module).map_or_else(|| self.read_binary(module), Ok)
    }

    fn debug_table_at(
        &self,
        bytes: &FileBytes,
        place: &Path,
        (id, sought): (&DebugId, Sought),
        (beside, wanted): (Beside<'_>, &[Rva]),
    ) -> Result<LocalTable, NoTable> {
        let name = shown(place);
        if let Sought::ByLink(crc32) = sought
            && crc32fast::hash(bytes) != crc32
        {
            // Whose it is says more than that the sum differs.
            linked_object(bytes, id, &name)?;
            let found = crc32fast::hash(bytes);
            let detail = format!("{name}: expected the CRC-32 {crc32:#010x} of .gnu_debuglink, found {found:#010x}");
            return Err((MissReason::ChecksumMismatch, detail));
        }
        let pdb = pdb_in(bytes, id, &name)?;
        let debug = match (&pdb, sought) {
            (Some(_), _) => None,
            (None, Sought::ById) => Some(object_of(bytes, id, &name)?),
            (None, Sought::ByLink(_)) => Some(linked_object(bytes, id, &name)?),
        };
        let own = beside.bytes.and_then(|bytes| object_of(bytes, id, &name).ok());
        let files = FilesOf { program: own.as_ref(), debug: debug.as_ref(), pdb: pdb.as_ref() };
        let has_dwarf = debug.as_ref().is_some_and(ObjectFile::has_debug_info);
        // What debug information refers to is beside it.
        let path = beside.path.filter(|_| own.is_some() && !has_dwarf).unwrap_or(place);
        let described = describe(files, &name, &Around::new(self, path, beside.path), wanted)?;
        let image_base = files.binary().map_or(Svma(0), ObjectFile::image_base);
        let table = table_of(described, image_base, (id, bytes.digest(), name), has_dwarf || pdb.is_some())?;
        let own = own.as_ref().zip(beside.module).zip(beside.bytes);
        let program = own.map(|((own, module), bytes)| Program::new((module, bytes.digest(), own), files));
        Ok(LocalTable { program, ..table })
    }
}

/// The program that a debug file is of.
#[derive(Clone, Copy)]
struct Beside<'b> {
    module: Option<&'b MappedModule>,
    /// Its bytes, where they can be read.
    bytes: Option<&'b FileBytes>,
    path: Option<&'b Path>,
}

/// What a link led to, by its CRC-32: a file without an id of its own is the one that is meant.
fn linked_object<'d>(bytes: &'d [u8], id: &DebugId, name: &str) -> Result<ObjectFile<'d>, NoTable> {
    match ObjectFile::parse(bytes) {
        Ok(object) if object.debug_id().is_none() => Ok(object),
        _ => object_of(bytes, id, name),
    }
}

/// The program database of the module `id`; `None` where the bytes are none at all.
pub(crate) fn pdb_in<'d>(bytes: &'d [u8], id: &DebugId, name: &str) -> Result<Option<PdbFile<'d>>, NoTable> {
    (sniff(bytes) == FileKind::Pdb).then(|| pdb_of(bytes, id, name)).transpose()
}
