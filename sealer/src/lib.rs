//! Making seals: keys on disk, the transparency log on disk, the trust directory, and the seal itself.
//!
//! What a seal is and how it is verified is `symseal-seal`'s; this crate holds what signs and writes:
//!
//! * [`keys`]: ECDSA P-256 keys for artifacts and roots, an Ed25519 key for a log, as PKCS#8 PEM files
//!   of mode 0600 that are never overwritten.
//! * [`TileLog`]: a C2SP tile log in a directory, with one writer at a time.
//! * [`trust_init`] and [`load_trust`]: the three files of a trust directory.
//! * [`seal`]: statement → envelope → log entry → Sigstore bundle v0.3.
//!
//! A log that one machine runs without witnesses gives evidence of tampering only to those who saw an
//! earlier checkpoint; it does not stop the machine's owner from showing two histories.
#![forbid(unsafe_code)]

mod durable;
pub mod keys;
pub mod log;
mod seal;
pub mod trust;

/// The tile log, under the name of what it is made of.
pub mod tlog {
    pub use crate::log::{Appended, LogError, TileLog, mint_origin};
}

pub use keys::{ArtifactKey, KeyFileError, LogKey};
pub use log::{Appended, LogError, TileLog, mint_origin};
pub use seal::{SealError, seal, sign_statement};
pub use trust::{LoadTrustError, TrustInit, TrustInitError, load_trust, trust_init};
