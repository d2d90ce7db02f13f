//! The seal of a bundle: what makes it trustworthy, and how that is checked.
//!
//! A seal is a Sigstore bundle v0.3: a DSSE envelope over an in-toto statement ([`Statement`]), an
//! entry in a transparency log, its inclusion proof and the log's checkpoint. The caller brings the
//! bytes of the seal and of the three files of a trust directory ([`Trust`]) and the time;
//! [`verify_seal`] gives one [`Check`] for each thing that must hold.
//!
//! The crate does no IO, asks no network and no clock, and takes no key, name or log identity from
//! what it verifies. It judges symseal's own seals, strictly: in an embedded log, a Rekor v2 or a Rekor
//! v1. Foreign Sigstore bundles (certificates, timestamps) are another room's work.
//!
//! The formats are described in `docs/formats/seal.md`.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod checks;
pub mod consistency;
pub mod cosignature;
pub mod dsse;
pub mod encoding;
pub mod entry;
pub mod fingerprint;
pub mod fragment;
pub mod keys;
pub mod kit;
pub mod log_entry;
pub mod note;
pub mod origin;
pub mod seen;
pub mod sigstore;
pub mod statement;
mod text;
pub mod tiles;
pub mod time;
pub mod tlog;
pub mod trust;
mod verify;

pub use checkpoint::{Checkpoint, CheckpointError, LogIdentity, SignedCheckpoint};
pub use checks::{CATALOGUE, Check, CheckGroup, CheckInfo, CheckStatus, Parts};
pub use consistency::ConsistencyProof;
pub use cosignature::Witness;
pub use dsse::{Envelope, EnvelopeError, IN_TOTO_PAYLOAD_TYPE, pae};
pub use encoding::Hash;
pub use entry::EntryKind;
pub use fingerprint::{fingerprint, is_fingerprint_of};
pub use fragment::TileFragment;
pub use keys::{ArtifactPublicKey, KeyError, KeyId, LogId, LogPublicKey, key_id};
pub use kit::{KIT_PREDICATE_TYPE, KitPredicate, KitStatement, SealedKit, verify_kit};
pub use log_entry::{LogEntry, LogEntryError};
pub use origin::{Origin, OriginError};
pub use seen::Seen;
pub use sigstore::{SEAL_LIMIT, SIGSTORE_BUNDLE_MEDIA_TYPE, SigstoreBundle, SigstoreBundleError};
pub use statement::{PREDICATE_TYPE, Release, STATEMENT_LIMIT, Statement, StatementError, StatementParts};
pub use text::is_invisible;
pub use time::{UtcSeconds, Validity};
pub use trust::{Trust, TrustError};
pub use verify::{
    Expectation, ModuleList, SealFacts, SealVerification, SubjectDigests, examine_seal, examine_seals, verify_entry,
    verify_seal,
};

/// RFC 8785 canonical JSON. The values that come here have neither floats nor non-string keys, so
/// that writing cannot fail; an empty text would fail every comparison that follows.
pub(crate) fn canonical_json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).unwrap_or_default()
}
