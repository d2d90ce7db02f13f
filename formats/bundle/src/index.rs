//! `symbol_index.json`, the root of a bundle. Described in `docs/formats/symbol_index.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_module::{DebugId, Svma};
use symseal_seal::Release;

use crate::canonical;
use crate::digest::Digest;
use crate::pages::{self, Hash};
use crate::title::{self, Titles};

/// The one schema that this build writes and reads.
pub const SCHEMA: &str = "symseal.symbol_index.v1";

/// The largest `symbol_index.json` that is read, in bytes: about 100,000 modules.
pub const MAX_INDEX_BYTES: u64 = 256 << 20;

/// The largest file that a bundle may list, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 30;

/// What a release is called, which modules it has, and every other file of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolIndex {
    /// [`SCHEMA`].
    pub schema: String,
    /// The release's name.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// The program that wrote the bundle.
    pub producer: Producer,
    /// ELF modules by build-id.
    pub linux: BTreeMap<String, ModuleEntry>,
    /// PE modules by PDB GUID and age.
    pub windows: BTreeMap<String, ModuleEntry>,
    /// Mach-O modules by UUID.
    pub macos: BTreeMap<String, ModuleEntry>,
    /// The manifests that hold the modules' files, each with its file of page hashes.
    pub shards: Vec<ShardEntry>,
    /// Digest of the manifest of the release's sources, an artifact of its own, or of an image index over several such manifests
    /// where parts were joined; none where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Digest>,
    /// Counts over the whole bundle.
    pub statistics: IndexStatistics,
}

/// A program and its version. The bundle's bytes depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// `symseal`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// One module: a loadable binary with its debug companions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleEntry {
    /// File name of the binary (or, without it, of the debug file), without directories.
    pub name: String,
    /// `elf`, `pe` or `macho`.
    pub format: String,
    /// Architecture code, such as `x86_64`.
    pub arch: String,
    /// What kind of id the module has, such as `gnu-build-id`.
    pub id_kind: String,
    /// The code id of a PE file: time stamp and size of the image, as symbol servers write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_id: Option<String>,
    /// Go's own build id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_build_id: Option<String>,
    /// The program database of a PE file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbEntry>,
    /// Debug id of the supplementary file (dwz) that the debug information refers to; a module of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplementary: Option<DebugId>,
    /// The lowest loaded svma; rva = svma − image base.
    pub image_base: Svma,
    /// The best debug information that the bundle holds of the module.
    pub debug_info: DebugInfo,
    /// Whose code its lines tell of, where that is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_of: Option<LinesOfOthers>,
    /// Whether the binary itself carries neither debug information nor a symbol table.
    pub stripped: bool,
    /// The module's files, by role and path.
    pub files: Vec<FileEntry>,
    /// The files that it was made from, stored or not, by name and digest.
    pub inputs: Vec<InputEntry>,
    /// Counts over the module.
    pub statistics: ModuleStatistics,
}

/// What identifies a program database. A PE file holds its GUID and DBI age; tools that change a database raise its
/// own age only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PdbEntry {
    /// Its file name, as the PE file has it, without directories; else its own.
    pub name: String,
    /// GUID in 32 upper-case hex digits.
    pub guid: String,
    /// Age of the DBI stream, which is the PE file's.
    pub age: u32,
    /// Age of the database itself, where the bundle holds it and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_age: Option<u32>,
}

/// How much debug information there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DebugInfo {
    /// Functions, types, variables and lines (`.debug_info`).
    Full,
    /// Lines without types and variables.
    LineTables,
    /// A symbol table alone.
    Symbols,
    /// None: the module is stripped.
    None,
}

/// Whose code the lines of a module tell of that has none of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinesOfOthers {
    /// That of start-up code, or of some of the libraries that were linked into it.
    Parts,
    /// That of Rust's own library.
    RustLibrary,
}

/// One file of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// What the file is for.
    pub role: FileRole,
    /// Its title: where it lies in a directory that the bundle was pulled into.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of its bytes; at the same time its blob's digest.
    pub sha256: Digest,
    /// Media type of its layer.
    pub media_type: String,
    /// Bytes a page of its page tree.
    pub page_size: u32,
    /// Root of its page tree.
    pub page_root: Hash,
    /// Root of the tree over its pieces ([`pieces`](crate::pieces)): symbol tables alone have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece_root: Option<Hash>,
    /// What it was made from: first the file that a table's header names, then others. Empty for files taken as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived_from: Vec<Digest>,
}

/// What a file of a bundle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileRole {
    /// What a debugger reads symbols from: an ELF or PE file with debug information, a PDB, a dSYM's DWARF file.
    Debuginfo,
    /// A file with code.
    Executable,
    /// Split DWARF: a `.dwp` or `.dwo` file.
    SplitDwarf,
    /// A file of a dSYM bundle that is not its DWARF file, such as `Info.plist`.
    DsymMember,
    /// A `.symx` symbol table.
    SymbolTable,
    /// A `.uwt` unwind table.
    UnwindTable,
    /// The per-module index, JSON.
    ModuleIndex,
    /// The page hashes of one shard's files.
    PageHashes,
}

/// A file that was given to the builder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputEntry {
    /// Base name: never a build path.
    pub name: String,
    /// Its digest.
    pub sha256: Digest,
}

/// One OCI manifest of modules of one platform and architecture, whose ids lie in a range of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// `linux`, `macos` or `windows`.
    pub platform: String,
    /// Architecture code of its modules.
    pub arch: String,
    /// The first debug id in it.
    pub first: DebugId,
    /// The last debug id in it.
    pub last: DebugId,
    /// The page hashes of its files.
    pub page_hashes: FileEntry,
}

/// Counts over one module. Bytes and counts; below 2^53.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleStatistics {
    /// Records of functions (one a contiguous range).
    pub functions: u64,
    /// Rows of the line table.
    pub rows: u64,
    /// Inlined call sites.
    pub inline_sites: u64,
    /// Bytes of code.
    pub text_bytes: u64,
    /// Bytes of code that a function with a name covers.
    pub covered_bytes: u64,
    /// Rows of the unwind table.
    pub unwind_rows: u64,
}

/// Counts over the bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexStatistics {
    /// Modules of all platforms.
    pub modules: u64,
    /// Files, the root index apart.
    pub files: u64,
    /// Bytes of distinct files, the root index apart.
    pub bytes: u64,
}

/// Why some bytes are no symbol index of this version.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Not JSON, or not of the schema's shape.
    #[error("not a symbol index: {0}")]
    Json(#[from] serde_json::Error),
    /// Another schema.
    #[error("expected schema {SCHEMA}, found {found:?}: a newer symseal may read it")]
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// Larger than [`MAX_INDEX_BYTES`].
    #[error("the symbol index is {bytes} bytes, more than the {MAX_INDEX_BYTES} that are accepted")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Not the RFC 8785 form of its own value.
    #[error("the symbol index is not canonical JSON (RFC 8785)")]
    NotCanonical,
    /// A value that the schema's prose rules out.
    #[error("{place}: {problem}")]
    Value {
        /// Where in the index.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl SymbolIndex {
    /// Reads and checks an index: schema, canonical form, ids, titles, sizes, page sizes.
    ///
    /// Fields that this build does not know are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        if bytes.len() as u64 > MAX_INDEX_BYTES {
            return Err(IndexError::TooLarge { bytes: bytes.len() as u64 });
        }
        let index: Self = serde_json::from_slice(bytes).map_err(|error| other_schema(bytes).unwrap_or(error.into()))?;
        if index.schema != SCHEMA {
            return Err(IndexError::schema(&index.schema));
        }
        if !canonical::is_canonical(bytes) {
            return Err(IndexError::NotCanonical);
        }
        index.check()?;
        Ok(index)
    }

    /// The bytes of `symbol_index.json`: RFC 8785 canonical JSON.
    pub fn to_canonical_json(&self) -> Result<Vec<u8>, IndexError> {
        Ok(canonical::to_vec(self)?)
    }

    /// The id maps by platform name.
    pub fn platforms(&self) -> [(&'static str, &BTreeMap<String, ModuleEntry>); 3] {
        [("linux", &self.linux), ("macos", &self.macos), ("windows", &self.windows)]
    }

    /// Every module with its platform and id text, platforms and ids in order.
    pub fn modules(&self) -> impl Iterator<Item = (&'static str, &str, &ModuleEntry)> {
        self.platforms()
            .into_iter()
            .flat_map(|(platform, map)| map.iter().map(move |(id, module)| (platform, id.as_str(), module)))
    }

    /// The module with this id.
    pub fn module(&self, id: &DebugId) -> Option<&ModuleEntry> {
        let map = match id {
            DebugId::BuildId(_) => &self.linux,
            DebugId::Pdb { .. } => &self.windows,
            DebugId::MachoUuid(_) => &self.macos,
        };
        map.get(&id.to_string())
    }

    /// Every file that the index lists: the modules' files, then the page hashes.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.modules()
            .flat_map(|(_, _, module)| &module.files)
            .chain(self.shards.iter().map(|shard| &shard.page_hashes))
    }

    /// Checks what the types cannot say. `parse` calls it; a writer may.
    pub fn check(&self) -> Result<(), IndexError> {
        let fail = |place: String, problem: String| Err(IndexError::Value { place, problem });
        if let Err(error) = Release::new(&self.name, &self.version).check() {
            return fail("name and version".to_owned(), error.to_string());
        }
        let mut titles = Titles::default();
        for (platform, text, module) in self.modules() {
            let place = || format!("{platform}/{}", text.chars().take(140).collect::<String>());
            let Ok(id) = text.parse::<DebugId>() else {
                return fail(place(), "not a debug id".to_owned());
            };
            if id.to_string() != text || platform_of(&id) != platform {
                return fail(place(), format!("expected the id of a {platform} module in its canonical text"));
            }
            for name in std::iter::once(&module.name).chain(module.inputs.iter().map(|input| &input.name)) {
                if !is_base_name(name) {
                    return fail(place(), format!("expected a file name without directories, found {name:?}"));
                }
            }
            for file in &module.files {
                if let Err(problem) = file.check() {
                    return fail(format!("{}: {}", place(), file.role), problem);
                }
                if let Err(problem) = titles.add(&file.path) {
                    return fail(place(), problem);
                }
            }
        }
        for shard in &self.shards {
            if let Err(problem) = shard.page_hashes.check() {
                return fail("shards".to_owned(), problem);
            }
            if let Err(problem) = titles.add(&shard.page_hashes.path) {
                return fail("shards".to_owned(), problem);
            }
            if shard.first > shard.last || platform_of(&shard.first) != shard.platform {
                return fail("shards".to_owned(), format!("{}–{} is no range of ids", shard.first, shard.last));
            }
        }
        titles.check_directories().or_else(|problem| fail("titles".to_owned(), problem))
    }
}

impl IndexError {
    fn schema(found: &str) -> Self {
        Self::Schema { found: found.chars().take(80).collect() }
    }
}

impl FileEntry {
    fn check(&self) -> Result<(), String> {
        title::check_title(&self.path).map_err(|error| error.to_string())?;
        if self.size > MAX_FILE_BYTES {
            return Err(format!(
                "{:?} has {} bytes, more than the {MAX_FILE_BYTES} that are accepted",
                self.path, self.size
            ));
        }
        if self.page_size != pages::page_size_of(self.role) {
            let expected = pages::page_size_of(self.role);
            return Err(format!("expected pages of {expected} bytes for a {}, found {}", self.role, self.page_size));
        }
        Ok(())
    }
}

impl ModuleEntry {
    /// The module's file of this role.
    pub fn file(&self, role: FileRole) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.role == role)
    }
}

impl FileRole {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Debuginfo => "debuginfo",
            Self::Executable => "executable",
            Self::SplitDwarf => "split-dwarf",
            Self::DsymMember => "dsym-member",
            Self::SymbolTable => "symbol-table",
            Self::UnwindTable => "unwind-table",
            Self::ModuleIndex => "module-index",
            Self::PageHashes => "page-hashes",
        }
    }
}

impl std::fmt::Display for FileRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.code())
    }
}

impl DebugInfo {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::LineTables => "line-tables",
            Self::Symbols => "symbols",
            Self::None => "none",
        }
    }
}

impl LinesOfOthers {
    /// What is said of them behind how much debug information there is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Parts => "lines of parts alone",
            Self::RustLibrary => "lines of Rust's library alone",
        }
    }
}

impl std::fmt::Display for DebugInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.code())
    }
}

/// The platform whose map an id belongs to.
pub fn platform_of(id: &DebugId) -> &'static str {
    match id {
        DebugId::BuildId(_) => "linux",
        DebugId::Pdb { .. } => "windows",
        DebugId::MachoUuid(_) => "macos",
    }
}

/// The error for an index of another schema, so that a version is named and not a missing field.
fn other_schema(bytes: &[u8]) -> Option<IndexError> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_slice(bytes).ok()?;
    (head.schema != SCHEMA).then(|| IndexError::schema(&head.schema))
}

/// Whether `name` can be the last part of a path.
fn is_base_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/') && !name.chars().any(char::is_control)
}
