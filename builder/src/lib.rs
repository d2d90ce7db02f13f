//! How does a release become a sealed bundle?
//!
//! [`SymbolBundleBuilder`] takes release files and writes a bundle into an OCI layout: the files themselves, a symbol table
//! (`.symx`), an unwind table (`.uwt`) and an index a module, page hashes, `symbol_index.json` and the manifests.
//! [`seal_bundle`] signs a statement about it and attaches the seal.
//!
//! * `inputs/`: paths, directories and archives to identified files. Archives are read as streams; what a bundle holds is
//!   kept, and nothing else touches the disk but one large member at a time, until it is known whether it is kept.
//! * `pairing/`: identified files to modules, one file a platform.
//! * `module/`: one module to its tables and its entry in the index.
//! * [`kit`]: a bundle with all that a site without a network needs, in one directory or file.
//! * [`rederive`](rederive()): are a bundle's tables those that its files give?
//! * `report/`: what was found, what lacks its counterpart, what contradicts.
//!
//! The bundle's bytes depend on the files' bytes, their base names, the release's name and version, and the version of this
//! program; not on paths, times, their order, the archives that they came in or the number of threads. Files are read and
//! not mapped: a release directory may be written to while we look. What this wrote down itself, of a large member of an archive, is mapped.
#![deny(unsafe_code)]

mod assemble;
mod build;
mod error;
mod inputs;
pub mod kit;
mod module;
mod pairing;
mod progress;
mod rederive;
mod report;
mod seal;
mod sources;
mod unpaired;

pub use build::{Built, Options, SymbolBundleBuilder};
pub use error::BuildError;
pub use inputs::{Exclude, ParseExcludeError};
pub use module::loose_unwind_table;
pub use progress::{Progress, ProgressFn};
pub use rederive::{Rederived, RederivedTable, rederive};
pub use report::{
    ArchiveReport, BuildReport, Conflict, InputReport, LinesOf, Mismatch, ModuleReport, NamedBy, PairedBy, PairedFile,
    PairedRole, PassedOver, Refused, Side, SkippedPlaces, Superseded, Unpaired, UnsupportedRange, UnwindReport,
    UnwindTotals,
};
pub use seal::{SealError, SealOptions, attach_seal, seal_bundle, statement};
pub use sources::{
    GatherError, GatheredSources, LargeSource, MAX_SOURCES_BYTES, MismatchedSource, ParseSourceMapError, RefusedSource,
    SourceMap, SourceOptions, SourcesReport, WantedSources, gather_sources,
};

/// Name and version of this program, as tables and bundles name it.
pub const PRODUCER: &str = concat!("symseal ", env!("CARGO_PKG_VERSION"));
