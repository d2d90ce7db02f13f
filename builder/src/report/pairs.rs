//! Which files belong together, which lack their counterpart, and which contradict each other.

use std::fmt;

use serde::Serialize;
use symseal_bundle::FileRole;
use symseal_module::DebugId;

/// How a file was found to belong to a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairedBy {
    /// ELF build-id.
    BuildId,
    /// The hash of their code, where no linker wrote an id; their data is equal too.
    TextHash,
    /// `.gnu_debuglink`: file name and CRC-32 of the whole debug file, where there is no build-id.
    #[serde(rename = "debuglink-crc")]
    DebuglinkCrc,
    /// `.gnu_debugaltlink`: build-id of the supplementary file.
    #[serde(rename = "altlink-build-id")]
    AltlinkBuildId,
    /// GUID and age of a program database.
    GuidAge,
    /// Mach-O UUID.
    Uuid,
    /// Ids of split DWARF units.
    DwoId,
}

impl PairedBy {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::BuildId => "build-id",
            Self::TextHash => "text-hash",
            Self::DebuglinkCrc => "debuglink-crc",
            Self::AltlinkBuildId => "altlink-build-id",
            Self::GuidAge => "guid-age",
            Self::Uuid => "uuid",
            Self::DwoId => "dwo-id",
        }
    }
}

/// What makes a debug file look like the one of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedBy {
    /// `.gnu_debuglink` names it.
    Debuglink,
    /// `.gnu_debugaltlink` names it.
    Altlink,
    /// The PE file's CodeView record names it.
    #[serde(rename = "codeview")]
    CodeView,
    /// A skeleton unit names it, or it is a package of the binary's name.
    DwoName,
    /// It has a unit of the id that a skeleton unit asks for.
    DwoId,
    /// The dSYM bundle, or the file in it, has the binary's name.
    DsymName,
    /// It has the binary's name.
    FileName,
    /// It has the binary's id.
    DebugId,
    /// It is another program with the same code, of which their ids are made; no debug file.
    TextHash,
}

impl NamedBy {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Debuglink => "debuglink",
            Self::Altlink => "altlink",
            Self::CodeView => "codeview",
            Self::DwoName => "dwo-name",
            Self::DwoId => "dwo-id",
            Self::DsymName => "dsym-name",
            Self::FileName => "file-name",
            Self::DebugId => "debug-id",
            Self::TextHash => "text-hash",
        }
    }
}

/// One of the two files of a mismatch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Side {
    /// The file: a path, or `archive!/member`.
    pub place: String,
    /// Its id, where it has one.
    pub debug_id: Option<DebugId>,
}

/// A debug file that looks like a binary's and is of another build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mismatch {
    /// The binary, or the debug file that refers to the other.
    pub binary: Side,
    /// The debug file.
    pub debug_file: Side,
    /// What makes it look like the binary's.
    pub named_by: NamedBy,
    /// What the binary asks for: a debug id, a CRC-32, a unit; of a debug file with its id, a section as the binary has it.
    pub expected: String,
    /// What the debug file is or has.
    pub found: String,
}

impl Mismatch {
    pub(crate) fn of_ids(named_by: NamedBy, binary: Side, debug_file: Side, expected: String) -> Self {
        let found = debug_file.debug_id.as_ref().map_or_else(|| "none".to_owned(), DebugId::to_string);
        Self { binary, debug_file, named_by, expected, found }
    }
}

/// A file without its counterpart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unpaired {
    /// Its id; a debug file may have none.
    pub debug_id: Option<DebugId>,
    /// Its file name.
    pub name: String,
    /// The file: a path, or `archive!/member`.
    pub place: String,
    /// What is missing, and what to do about it.
    pub advice: String,
}

/// A file that was left out because another one of the same id is better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Superseded {
    /// The file.
    pub place: String,
    /// Its id, which tells the slices of a fat file apart; split DWARF has none.
    pub debug_id: Option<DebugId>,
    /// The better one.
    pub by: String,
    /// In which way it is better.
    pub rule: &'static str,
}

/// Two different files for one role of one module, and no rule says which is the better one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    /// The debug id, or the unit of split DWARF.
    pub id: String,
    /// The role.
    pub role: FileRole,
    /// The one file: a path, or `archive!/member`.
    pub first: String,
    /// The other file.
    pub second: String,
    /// The first thing in which they differ: what `first` has, then `second`.
    pub difference: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, role, first, second, difference } = self;
        write!(f, "{first} and {second} both claim to be the {role} file of {id}, and differ: {difference}")
    }
}
