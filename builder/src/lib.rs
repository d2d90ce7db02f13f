//! How does a release become a sealed bundle?
//!
//! [`SymbolBundleBuilder`] takes release files and writes a bundle into an OCI layout: the files themselves, a symbol table
//! (`.symx`), an unwind table (`.uwt`) and an index a module, page hashes, `symbol_index.json` and the manifests.
//! [`seal_bundle`] signs a statement about it and attaches the seal.
//!
//! The bundle's bytes depend on the files' bytes, their base names, the release's name and version, and the version of this
//! program; not on paths, times, their order or the number of threads. Files are read, never mapped: a release
//! directory may be written to while we look.
#![forbid(unsafe_code)]

mod build;
mod error;
mod inputs;
mod module;
mod pairing;
mod report;
mod seal;

pub use build::{Built, Options, Progress, ProgressFn, SymbolBundleBuilder};
pub use error::BuildError;
pub use report::{BuildReport, InputReport, ModuleReport, UnsupportedRange, UnwindReport};
pub use seal::{SealError, SealOptions, attach_seal, seal_bundle, statement};

/// Name and version of this program, as tables and bundles name it.
pub const PRODUCER: &str = concat!("symseal ", env!("CARGO_PKG_VERSION"));
