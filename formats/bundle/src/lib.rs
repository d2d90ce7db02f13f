//! What is in a bundle, and is it what its digest says?
//!
//! * [`SymbolIndex`]: `symbol_index.json`, the bundle's root; [`module_index`]: its part per module.
//! * [`pages`], [`page_hashes`]: page trees, so that one page of a file can be verified alone.
//! * [`frame_proof`], [`module_tree`], [`pieces`]: one name's whole chain in a file of a few KiB.
//! * [`oci`], [`compose`](mod@compose): the manifests around the files. Every byte of them follows from the index.
//! * [`sources`]: the source files of a release, an artifact of its own.
//! * [`join`](mod@join): one bundle out of the parts of several platform jobs; [`subject`]: a bundle that refers to an image.
//! * [`disclosure`](mod@disclosure): what a reader of a bundle learns.
//! * [`LayoutDir`]: an OCI layout on disk, written so that a crash shows nothing half-written; [`Staging`]: a bundle in the
//!   making beside one.
//! * [`stored_modules`]: the modules of a bundle in a store of our own, found without reading JSON.
//! * [`Bundle`]: an opened bundle, whose files are checked as they are read.
//! * [`workers`]: threads that share a budget of memory, for whoever reads many files of bundles.
//!
//! Nothing here fetches, and nothing is believed that was not checked against a digest. `docs/formats/bundle.md` and
//! `docs/formats/symbol_index.md` describe the formats.
#![forbid(unsafe_code)]

mod bundle;
pub mod canonical;
pub mod compose;
mod digest;
pub mod disclosure;
mod durable;
pub mod frame_proof;
pub mod index;
mod ingest;
pub mod join;
mod layout;
pub mod loose;
mod module_facts;
pub mod module_index;
pub mod module_tree;
pub mod oci;
pub mod page_hashes;
pub mod pages;
pub mod pieces;
mod plain_file;
mod scratch;
mod seals;
pub mod sources;
mod staging;
pub mod stored_modules;
pub mod subject;
pub mod title;
pub mod verify;
pub mod workers;

pub use bundle::{Bundle, BundleError};
pub use digest::{Digest, Hasher, ParseDigestError};
pub use index::{
    DebugInfo, FileEntry, FileRole, IndexError, IndexStatistics, InputEntry, LinesOfOthers, ModuleEntry,
    ModuleStatistics, PdbEntry, Producer, ShardEntry, SymbolIndex,
};
pub use layout::{BlobWriter, LayoutDir, LayoutError, is_tag};
pub use module_facts::{ModuleFacts, TableFacts};
pub use plain_file::open_plain_file;
pub use scratch::Scratch;
pub use seals::{FoundSeals, MAX_SEAL_BYTES};
pub use staging::Staging;

/// The seal's types, for rooms that build or show verifications.
pub use symseal_seal as seal;
