//! What identifies a PDB.

use super::build_records::BuildRecords;
use super::header::{DbiHeader, is_fastlink, u32_at};
use super::pages::Pages;
use super::read::PdbReader;
use crate::budget::Budget;
use crate::error::{malformed, truncated};
use crate::symbols::FunctionSymbol;
use crate::work::Work;
use crate::{Arch, ArtifactError};
use pdb2::{PDB, StreamIndex};
use std::collections::BTreeSet;
use std::ops::Deref;
use symseal_module::DebugId;

/// Streams with fixed numbers. (LLVM, "The PDB File Format")
pub(crate) const INFO_STREAM: StreamIndex = StreamIndex(1);
pub(crate) const DBI_STREAM: StreamIndex = StreamIndex(3);

/// A program database, as far as what identifies it.
#[derive(Debug)]
pub struct PdbFile<'d> {
    data: &'d [u8],
    guid: [u8; 16],
    age: u32,
    stream_age: u32,
    machine: u16,
    is_stripped: bool,
}

impl<'d> PdbFile<'d> {
    /// Reads the streams that identify it. A PDB of `/DEBUG:FASTLINK` is refused: it has no lines and no private
    /// functions, which stay in the object files on the machine that linked.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        check_size(data)?;
        let mut pdb = open(data)?;
        let info = stream(&mut pdb, INFO_STREAM, "PDB info stream")?;
        let parts = || Some((u32_at(&info, 8)?, info.get(12..)?.first_chunk::<16>().copied()?));
        let (stream_age, guid) = parts().ok_or_else(|| {
            malformed("PDB info stream", "a version, an age and a GUID", format!("{} bytes", info.len()))
        })?;
        if is_fastlink(&info) {
            return Err(malformed(
                "PDB",
                "complete debug information",
                "a PDB of /DEBUG:FASTLINK, whose debug information is in the object files on the machine that linked: \
                 link with /DEBUG:FULL",
            ));
        }
        // PDBs that compilers write beside object files have an empty stream here.
        let dbi = match stream(&mut pdb, DBI_STREAM, "PDB DBI stream") {
            Ok(dbi) if !dbi.is_empty() => Some(DbiHeader::parse(&dbi).ok_or_else(|| {
                malformed(
                    "PDB DBI stream",
                    "a header of 64 bytes as written since 1997",
                    format!("{} bytes", dbi.len()),
                )
            })?),
            _ => None,
        };
        let age = dbi.map(|dbi| dbi.age).filter(|age| *age != 0).unwrap_or(stream_age);
        Ok(Self {
            data,
            guid: crate::pe::printed(guid),
            age,
            stream_age,
            machine: dbi.map_or(0, |dbi| dbi.machine),
            is_stripped: dbi.is_some_and(|dbi| dbi.is_stripped),
        })
    }

    /// GUID and age as the PE file has them: the age is the DBI stream's, which the linker wrote to both.
    pub fn debug_id(&self) -> DebugId {
        DebugId::Pdb { guid: self.guid, age: self.age }
    }

    /// As printed, most significant byte first.
    pub fn guid(&self) -> [u8; 16] {
        self.guid
    }

    /// The age of the DBI stream, which the PE file has too; that of the info stream where it is missing.
    pub fn age(&self) -> u32 {
        self.age
    }

    /// The age of the info stream: tools that add to a PDB raise it.
    pub fn stream_age(&self) -> u32 {
        self.stream_age
    }

    /// The processor.
    pub fn arch(&self) -> Arch {
        Arch::from_coff(self.machine)
    }

    /// Whether private symbols were taken out (`/PDBSTRIPPED`): functions have names, but no lines.
    pub fn is_stripped(&self) -> bool {
        self.is_stripped
    }

    /// The named streams, the source files among them, and the paths of all source files.
    pub fn build_texts(&self) -> crate::BuildTexts {
        let mut gathering = crate::told::Gathering::of(self.bytes());
        super::streams::named_streams(self, &mut gathering);
        let mut work = Work::new();
        work.budget = Budget::for_bytes(self.bytes());
        PdbReader::source_files(self, &mut |path, _| gathering.debug_path(path), &mut work);
        gathering.texts
    }

    /// What it tells of the machines that compiled and linked: directories, paths and command lines.
    pub fn build_records(&self) -> BuildRecords {
        BuildRecords::of(self)
    }

    /// The functions among its public symbols, which a stripped one has as well as the one that it was made from, by their addresses.
    ///
    /// # Errors
    /// [`ArtifactError`] where the streams that they are found by cannot be read.
    pub fn public_functions(&self) -> Result<Vec<FunctionSymbol<'static>>, ArtifactError> {
        PdbReader::public_functions(self)
    }

    /// What its list of modules calls the object files that were linked, each name once.
    ///
    /// # Errors
    /// [`ArtifactError`] where the streams that they are found by cannot be read.
    pub fn module_names(&self) -> Result<BTreeSet<String>, ArtifactError> {
        PdbReader::module_names(self)
    }

    pub(crate) fn open(&self) -> Result<PDB<'d, Pages<'d>>, ArtifactError> {
        open(self.data)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64
    }
}

fn open(data: &[u8]) -> Result<PDB<'_, Pages<'_>>, ArtifactError> {
    PDB::open(Pages::new(data)).map_err(|error| malformed("PDB", "a container of streams (MSF 7.00)", error))
}

pub(super) fn stream<'d>(
    pdb: &mut PDB<'d, Pages<'d>>,
    number: StreamIndex,
    name: &str,
) -> Result<impl Deref<Target = [u8]> + use<'d>, ArtifactError> {
    let found = pdb.raw_stream(number).map_err(|error| malformed(name, "a stream within the file", error))?;
    found.ok_or_else(|| malformed(name, "a stream", "none"))
}

/// Every page that the file has by its header must be there. (LLVM, "The MSF File Format")
fn check_size(data: &[u8]) -> Result<(), ArtifactError> {
    let size = || {
        let (page_size, pages) = (u32_at(data, 32)?, u32_at(data, 40)?);
        u64::from(page_size).checked_mul(u64::from(pages))
    };
    let expected = size().unwrap_or(56).max(56);
    if expected > data.len() as u64 {
        return Err(truncated(data, "the pages of the PDB", 0, expected));
    }
    Ok(())
}
