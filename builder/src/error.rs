//! Why a bundle was not built.

use std::io;
use std::path::{Path, PathBuf};

use symseal_artifact::{ArchiveError, ArtifactError};
use symseal_bundle::compose::ComposeError;
use symseal_bundle::seal::StatementError;
use symseal_bundle::{IndexError, LayoutError};

use crate::inputs::ParseExcludeError;
use crate::report::{BuildReport, Conflict};
use crate::sources::GatherError;

/// Why a bundle was not built. Nothing became visible in the layout.
///
/// A `place` is a path, or `archive!/member` for what lies in an archive.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An input cannot be read.
    #[error("cannot {action} {}: {source}{}", beginning_and_end(&place_of(path)), advice_on_io(action, source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file that was named is no release file, or a release file is damaged.
    #[error("{place}: {source} (--exclude leaves out what is no part of the release)")]
    Artifact {
        /// The file.
        place: String,
        /// What is wrong.
        source: ArtifactError,
    },
    /// Several release files are damaged.
    #[error("{first}; {} more {} damaged too: {}", others.len(), if others.len() == 1 { "file is" } else { "files are" }, first_of(others))]
    Damaged {
        /// What is wrong with the one that comes first by its place.
        first: Box<Self>,
        /// The places of the others.
        others: Vec<String>,
    },
    /// An archive is damaged, or asks for more than the limits allow; then with the option that allows more.
    #[error("{source}{}", option(*limit))]
    Archive {
        /// What is wrong, with archive and member.
        source: ArchiveError,
        /// The limit that can be set higher, by its name, where it is one.
        limit: Option<&'static str>,
    },
    /// A file that was named is of a kind that bundles do not hold.
    #[error("{place}: expected {expected}, found {found}")]
    Unsuitable {
        /// The file.
        place: String,
        /// What a bundle holds.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Different files for one role of one module, and no rule says which is the better one.
    #[error("{}", contradictory(conflicts))]
    Conflict {
        /// All such pairs of the build, at least one.
        conflicts: Vec<Conflict>,
        /// What was found, as far as the inputs do not contradict each other; none where tables were to be made again.
        report: Option<Box<BuildReport>>,
    },
    /// A file that a debugger would run, or that holds text that it would run.
    #[error("{place} is refused: {problem}")]
    DebuggerScript {
        /// The file.
        place: String,
        /// What it holds.
        problem: &'static str,
    },
    /// What is to be left out is said in no pattern.
    #[error(transparent)]
    Exclude(#[from] ParseExcludeError),
    /// The file was written to while the bundle was built.
    #[error("{place} changed while the bundle was built; build again when it is finished")]
    Changed {
        /// The file.
        place: String,
    },
    /// The inputs hold no module.
    #[error(
        "expected at least one executable, library or debug file (ELF, PE, PDB, Mach-O), found none in {paths}{}{}",
        match files {
            // What was not looked into is told behind.
            0 => String::new(),
            1 => " (1 other file)".to_owned(),
            files => format!(" ({files} other files)"),
        },
        hints.iter().map(|hint| format!("; {hint}")).collect::<String>()
    )]
    NoModules {
        /// What was looked at.
        paths: String,
        /// Files that are something else.
        files: u64,
        /// What was found instead, and what to do about it.
        hints: Vec<String>,
        /// The same as a report without modules; none where it is a bundle that has none.
        report: Option<Box<BuildReport>>,
    },
    /// A strict build with modules that are not paired, with debug files or sources that do not match, or with inputs that could not be
    /// read as a whole.
    #[error(
        "{}, which --strict does not let pass; the report names them{}",
        counted([
            (*unpaired, "unpaired file", ""),
            (*mismatches, "mismatched file", ""),
            (*damaged, "damaged file", ""),
            (*not_looked_into, "archive", " not looked into"),
            (*sources, "source file", " of another checksum"),
        ]),
        match unpaired + mismatches + damaged + not_looked_into {
            0 => " (--sources: those that this release was compiled of)",
            _ => " (--exclude leaves files out)",
        }
    )]
    Strict {
        /// Binaries and debug files without their counterpart.
        unpaired: u64,
        /// Debug files that look like a binary's and have another id.
        mismatches: u64,
        /// Files that begin like release files and cannot be read, and modules with damaged units of debug information.
        damaged: u64,
        /// Archives, and members of archives, that may hold modules and were not looked into.
        not_looked_into: u64,
        /// Source files whose checksum is not the one in the debug information.
        sources: u64,
        /// What was found.
        report: Box<BuildReport>,
    },
    /// A file has more symbols than a symbol table can hold.
    #[error("{place}: {source}")]
    SymbolTable {
        /// The file.
        place: String,
        /// What the writer says.
        source: symseal_symx::WriteError,
    },
    /// The sources cannot be gathered.
    #[error(transparent)]
    Sources(#[from] GatherError),
    /// The release's name or version.
    #[error(transparent)]
    Release(#[from] StatementError),
    /// The layout cannot be written.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The manifests cannot be made.
    #[error("{}{}", .0, advice(.0))]
    Compose(#[from] ComposeError),
    /// The index cannot be written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A module's index cannot be written.
    #[error("the index of {module} cannot be written: {problem}")]
    ModuleIndex {
        /// The module.
        module: String,
        /// What the JSON writer says.
        problem: String,
    },
}

impl BuildError {
    /// What was found, where everything was looked at before the build was given up.
    pub fn report(&self) -> Option<&BuildReport> {
        match self {
            Self::Strict { report, .. } => Some(report),
            Self::Conflict { report, .. } | Self::NoModules { report, .. } => report.as_deref(),
            _ => None,
        }
    }
}

/// How the limit is raised, where it can be.
fn option(limit: Option<&str>) -> String {
    limit.map(|limit| format!(" (--archive-limit {limit}=NUMBER allows more)")).unwrap_or_default()
}

/// The first pair, and how many more there are.
fn contradictory(conflicts: &[Conflict]) -> String {
    match conflicts {
        [] => "files contradict each other".to_owned(),
        [only] => format!("{only}; leave one out (--exclude, where it lies in an archive)"),
        [first, rest @ ..] => format!(
            "{first}; {} more {} each other, and the report names them: leave one of each pair out (--exclude, where it lies in an archive)",
            rest.len(),
            if rest.len() == 1 { "pair contradicts" } else { "pairs contradict" }
        ),
    }
}

/// What to do about an input that is there and cannot be read.
fn advice_on_io(action: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied if ["open", "read", "list", "look at"].contains(&action) => {
            "; make it readable, or leave it out (--exclude), where it is no part of the release"
        }
        io::ErrorKind::InvalidFilename => {
            "; its path is longer than the system takes: leave the directory out (--exclude), where it is no part of the release, or build from a place further up"
        }
        io::ErrorKind::OutOfMemory if action == "read" => {
            "; it is read as a whole: leave it out (--exclude), where it is no part of the release"
        }
        _ => "",
    }
}

/// The first places of many.
fn first_of(places: &[String]) -> String {
    const SHOWN: usize = 10;
    let more = if places.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", places.get(..SHOWN).unwrap_or(places).join(", "))
}

/// What to do about manifests that cannot be made.
fn advice(error: &ComposeError) -> &'static str {
    match error {
        ComposeError::TooManyFiles { .. } => {
            ": pack its .dwo files into one .dwp file (dwp or llvm-dwp does that) and give that one instead"
        }
        _ => "",
    }
}

/// A path as reports and errors have it: bytes that are no text, and control characters, are escaped.
pub(crate) fn place_of(path: &Path) -> String {
    symseal_artifact::escaped(path.as_os_str().as_encoded_bytes()).into_owned()
}

/// A path that fits into an error: of a long one its beginning and its end.
fn beginning_and_end(place: &str) -> String {
    const BEGINNING: usize = 256;
    const END: usize = 128;
    const LONGEST: usize = 1024;
    let count = place.chars().count();
    if count <= LONGEST {
        return place.to_owned();
    }
    let beginning: String = place.chars().take(BEGINNING).collect();
    let end: String = place.chars().skip(count.saturating_sub(END)).collect();
    format!("{beginning}…{end} ({} bytes)", place.len())
}

/// An error of the operating system about `path`.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { action, path, source }
}

/// What there is some of, each with its noun and what tells more of it: `2 damaged files, 1 archive not looked into`.
fn counted<const N: usize>(of: [(u64, &str, &str); N]) -> String {
    let some = of.into_iter().filter(|(count, ..)| *count > 0);
    let some = some.map(|(count, noun, more)| format!("{count} {noun}{}{more}", if count == 1 { "" } else { "s" }));
    some.collect::<Vec<_>>().join(", ")
}
