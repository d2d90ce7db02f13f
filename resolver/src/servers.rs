//! The step that asks the network, as a question: who answers it is up to the caller, or to the feature `online`.

use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason};

/// What is wanted of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WantedKind {
    /// Its debug file: ELF with debug information, a program database, the DWARF of a dSYM; also what dwz moved out.
    DebugFile,
    /// The program or library itself, for its symbols.
    Executable,
}

/// A file that servers are asked for.
#[derive(Debug, Clone, Copy)]
pub struct WantedFile<'w> {
    /// The module.
    pub id: &'w DebugId,
    /// What of it.
    pub kind: WantedKind,
    /// The module's file name, without a folder, where it is known: symbol servers for Windows and macOS are asked by it.
    pub name: Option<&'w str>,
}

/// A file that came.
#[derive(Debug, Clone)]
pub struct FetchedFile {
    /// Its bytes, which the check that was given let pass.
    pub bytes: Vec<u8>,
    /// Where it came from, without what is secret in that.
    pub from: String,
}

/// Why no file came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFetched {
    /// [`MissReason::ServerMiss`] where every server says that it has none; else the gravest of what went wrong.
    pub reason: MissReason,
    /// What each server said, for people.
    pub why: String,
    /// Whether another time may bring more: a server failed, whatever the others gave.
    pub passing: bool,
    /// Whether anybody was asked, in this run or in the one that is repeated. Where nobody was, the step is skipped.
    pub asked: bool,
}

impl NotFetched {
    /// What no other time will change.
    pub fn lasting(reason: MissReason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into(), passing: false, asked: true }
    }

    /// Nobody could be asked, or was allowed to be.
    pub fn unasked(reason: MissReason, why: impl Into<String>) -> Self {
        Self { asked: false, ..Self::lasting(reason, why) }
    }
}

/// Whether bytes are what was wanted; else why not.
pub type CheckFile<'c> = &'c dyn Fn(&[u8]) -> Result<(), (MissReason, String)>;

/// Servers that have debug files. They are asked in a fixed order, and the first file that the check lets pass is given.
pub trait SymbolServers: std::fmt::Debug + Send + Sync {
    /// Fetches a file. Blocks.
    ///
    /// # Errors
    /// [`NotFetched`].
    fn fetch(&self, wanted: &WantedFile<'_>, check: CheckFile<'_>) -> Result<FetchedFile, NotFetched>;
}

/// What is said where `--online` was asked for and no servers were given.
pub const NO_SERVERS: &str = "no server to ask: set DEBUGINFOD_URLS or _NT_SYMBOL_PATH";

/// The files that a bundle names for a module: bytes from a server count only if they are one of these.
#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) bundle: String,
    pub(crate) digests: Vec<Digest>,
    /// Whether the bundle has a symbol table of the module, which a server's file must not fall short of.
    pub(crate) has_table: bool,
}

impl Covered {
    /// Whether the bundle names these bytes.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), (MissReason, String)> {
        let found = Digest::of(bytes);
        if self.digests.contains(&found) {
            return Ok(());
        }
        let bundle = &self.bundle;
        Err((
            MissReason::DigestMismatch,
            format!("the bytes have the digest {found}, which the bundle {bundle} does not name"),
        ))
    }
}
