//! Kits: a bundle with everything that a site without a network needs, as one directory or one tar file.
//!
//! A kit is an OCI layout with the bundle and what refers to it, and a folder `kit/` beside the blobs: the log's checkpoints
//! and proofs, a program that verifies, and the kit's own seal over every other file. [`export`](export()) packs one;
//! [`Kit`] reads one, verifies its seal and its files, and lays its blobs into another layout. A kit is never written to.
//! `docs/formats/kit.md` describes the form.

mod content;
mod error;
mod export;
mod open;
mod output;

pub use error::KitError;
pub use export::{KitContent, KitLog, KitReport, export};
pub use open::Kit;

/// The kit's seal: the one file that its list does not name.
pub const KIT_SEAL: &str = "kit/seal.dsse.json";
/// What the kit is and how it is used, for people.
const README: &str = "kit/README.txt";
/// Consistency proofs.
const CONSISTENCY: &str = "kit/log/consistency.json";
/// The folder of the program that verifies.
const PROGRAMS: &str = "kit/bin";
/// Files of a layout's root.
const LAYOUT_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";
const LAYOUT_JSON: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// Where a layout has its blobs.
const BLOBS: &str = "blobs/sha256";
/// The largest small file of a kit (checkpoints, proofs), in bytes.
const MAX_SMALL_FILE: u64 = 4 << 20;
