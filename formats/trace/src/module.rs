//! `trace.module`: one module that was mapped when the trace was taken.

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId, MappedModule, Svma};

use crate::forms;

/// One mapped module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceModule {
    /// The path as the process named it (escaped, `symseal_module::escape`), or a name in brackets such as `[vdso]`.
    pub path: String,
    /// The module's identity: what its memory says where that could be read, otherwise what its file says.
    #[serde(default)]
    pub debug_id: Option<DebugId>,
    /// First address of the module's image.
    pub start: Avma,
    /// First address after it.
    pub end: Avma,
    /// Actual minus stated address, wrapping: `svma = avma - bias`.
    #[serde(with = "forms::hex_u64")]
    pub bias: u64,
    /// The svma of the lowest loaded segment.
    pub image_base: Svma,
    /// Where `debug_id` was read.
    #[serde(default)]
    pub identified_by: IdentifiedBy,
    /// What the file at the module's place says, where that is not `debug_id`: it was replaced since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_debug_id: Option<DebugId>,
    /// Whether the file had been unlinked when the trace was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The image itself, for what no release artifact holds: the vDSO.
    #[serde(default, with = "forms::base64_option", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
}

impl TraceModule {
    /// The module as the module map has it.
    pub fn to_mapped(&self) -> MappedModule {
        MappedModule {
            path: self.path.clone(),
            debug_id: self.debug_id.clone(),
            start: self.start,
            end: self.end,
            bias: self.bias,
            image_base: self.image_base,
        }
    }
}

/// Where a module's debug id was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum IdentifiedBy {
    /// `memory-note`: the build-id note in the process's memory. Nothing speaks louder.
    MemoryNote,
    /// `file-note`: the note in the mapped file, because memory had none that could be read.
    FileNote,
    /// `file-code`: an id made of the code in the mapped file, which has no build-id.
    FileCode,
    /// `none`: the module has no debug id.
    #[default]
    None,
    /// A way that this version does not know.
    Other(String),
}

impl IdentifiedBy {
    /// The text in JSON.
    pub fn code(&self) -> &str {
        match self {
            Self::MemoryNote => "memory-note",
            Self::FileNote => "file-note",
            Self::FileCode => "file-code",
            Self::None => "none",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for IdentifiedBy {
    fn from(text: String) -> Self {
        match text.as_str() {
            "memory-note" => Self::MemoryNote,
            "file-note" => Self::FileNote,
            "file-code" => Self::FileCode,
            "none" => Self::None,
            _ => Self::Other(text),
        }
    }
}

impl From<IdentifiedBy> for String {
    fn from(by: IdentifiedBy) -> Self {
        by.code().to_owned()
    }
}
