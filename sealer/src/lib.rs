//! Making seals: signers, transparency logs, the trust directory, and the seal itself.
//!
//! What a seal is and how it is verified is `symseal-seal`'s; this crate holds what signs and writes:
//!
//! * [`keys`]: ECDSA P-256 keys for artifacts and roots, an Ed25519 key for a log, as PKCS#8 PEM files
//!   of mode 0600 that are never overwritten, plain or encrypted.
//! * [`signer`]: what signs artifacts: such a file, a PKCS#11 token (feature `pkcs11`), a program.
//! * [`TileLog`]: a C2SP tile log in a directory, with one writer at a time.
//! * [`anchor`]: one face for all transparency logs: the tile log, and Rekor v2 and v1 over HTTP (feature
//!   `online`, the one part of the crate with a network, on a runtime of its own).
//! * [`witness`]: cosignatures of witnesses for what such a log gives (feature `online`).
//! * [`trust_init`], [`load_trust`] and [`TrustChange`]: the three files of a trust directory; [`StateDir`]: what a
//!   verifier saw last.
//! * [`foreign`] (feature `foreign`): Sigstore bundles that others made, verified as Sigstore's client specification says.
//! * [`keyless`] (feature `keyless`): seals by a certificate of Fulcio, for those who are online.
//! * [`seal`]: statement → envelope → log entry → Sigstore bundle v0.3.
//!
//! A log that one machine runs without witnesses gives evidence of tampering only to those who saw an
//! earlier checkpoint; it does not stop the machine's owner from showing two histories.
#![forbid(unsafe_code)]

pub mod anchor;
mod durable;
#[cfg(feature = "foreign")]
pub mod foreign;
#[cfg(feature = "keyless")]
pub mod keyless;
pub mod keys;
pub mod log;
#[cfg(feature = "online")]
mod online;
mod seal;
pub mod signer;
pub mod state;
pub mod trust;
pub mod witness;

/// The tile log, under the name of what it is made of.
pub mod tlog {
    pub use crate::log::{Appended, LogError, TileLog, mint_origin};
}

pub use anchor::{AnchorError, LogLocation, RekorVersion, TransparencyLog, anchor_verified};
#[cfg(feature = "online")]
pub use anchor::{RekorLog, RekorLogError};
pub use keys::{ArtifactKey, AskPassphrase, KeyFileError, LogKey, Passphrase, PassphraseError, no_passphrase};
pub use log::{Appended, LogError, PublishedLog, TileLog, mint_origin};
pub use seal::{SealError, seal, sign_statement};
pub use signer::{KeySource, OpenSignerError, SignError, Signer, sign_verified};
pub use state::{StateDir, StateError};
pub use trust::{
    LoadTrustError, RootChange, TrustChange, TrustChangeError, TrustFiles, TrustImportError, TrustInit, TrustInitError,
    load_trust, load_trust_files, trust_init,
};
pub use witness::WitnessUrl;
#[cfg(feature = "online")]
pub use witness::{NoWitnesses, WitnessedLog, Witnesses};
