//! What is recorded, in the types of the domain.

use serde_json::Value;
use symseal_seal::UtcSeconds;
use uuid::Uuid;

/// What an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlertRow {
    pub(crate) id: Uuid,
    pub(crate) at: UtcSeconds,
    /// An object in JSON.
    pub(crate) json: String,
}

/// A published bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BundleRow {
    /// Digest of the image index, `sha256:…`.
    pub(crate) sha256: String,
    /// Platforms of its modules, joined by `,`.
    pub(crate) os: String,
    /// The release's name.
    pub(crate) name: String,
    /// The release's version.
    pub(crate) version: String,
    /// The image index's bytes.
    pub(crate) bundle_blob: Vec<u8>,
    /// The text of `symbol_index.json`.
    pub(crate) index_json: String,
    /// Its seal, once one has arrived.
    pub(crate) seal: Option<SealRow>,
}

/// What is recorded of a seal. It is read, not verified: trust is the reader's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealRow {
    /// Key id of the signer.
    pub(crate) signer: String,
    /// `<origin>/tile/entries/<N>#<index>`.
    pub(crate) rekor_tile_ref: String,
    /// Digest of the seal's blob.
    pub(crate) seal_digest: String,
    /// `dsse:` and the sha256 of the envelope.
    pub(crate) dsse_ref: String,
}

/// A trace with everything that its events say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceRows {
    /// The trace.
    pub(crate) trace: TraceRow,
    /// Its resolved frames.
    pub(crate) frames: Vec<FrameRow>,
    /// Its replays.
    pub(crate) replays: Vec<ReplayRow>,
}

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceRow {
    pub(crate) trace_id: Uuid,
    pub(crate) platform: String,
    /// RFC 3339, UTC.
    pub(crate) captured_at: Option<String>,
    /// Debug id of the process's executable.
    pub(crate) build_id: Option<String>,
    /// `sha256:…`
    pub(crate) symbol_bundle_sha256: Option<String>,
    /// `dsse:…`
    pub(crate) dsse_ref: Option<String>,
    /// Digest of the events' blob.
    pub(crate) blob_sha256: String,
    pub(crate) arch: Option<String>,
    /// How it was captured.
    pub(crate) method: Option<String>,
    pub(crate) pid: Option<u32>,
}

/// A resolved frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameRow {
    pub(crate) frame_index: u64,
    /// Instruction pointer (avma).
    pub(crate) ip: u64,
    pub(crate) module_path: Option<String>,
    pub(crate) module_build_id: Option<String>,
    pub(crate) resolved_symbol: Option<String>,
    pub(crate) linkage_name: Option<String>,
    /// Bytes from the function's start.
    pub(crate) symbol_offset: Option<u64>,
    pub(crate) resolver: String,
    pub(crate) thread: u32,
    pub(crate) sample: u32,
    pub(crate) depth: u32,
    pub(crate) inline_depth: u32,
    pub(crate) inlined: bool,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) unwind: String,
    pub(crate) quality: String,
    pub(crate) proof: String,
    pub(crate) reason: Option<String>,
}

/// A replay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplayRow {
    pub(crate) replay_id: Uuid,
    pub(crate) seed: u64,
    /// RFC 3339, UTC.
    pub(crate) started_at: Option<String>,
    /// RFC 3339, UTC.
    pub(crate) finished_at: Option<String>,
    /// 0 to 1.
    pub(crate) replay_success_ratio: f64,
    /// Milliseconds.
    pub(crate) verify_time_ms: u64,
    pub(crate) verifier_version: Option<String>,
    pub(crate) notes: Value,
    pub(crate) symbol_coverage_pct: f64,
    pub(crate) proved_coverage_pct: Option<f64>,
}

/// A fact of the object store that was written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    /// Its key.
    pub(crate) key: String,
    /// Whether it was removed.
    pub(crate) is_removed: bool,
}

/// Facts of the object store that a server is about to write or remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) id: Uuid,
    /// Theirs.
    pub(crate) keys: Vec<String>,
}

/// Some of the sequence of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Up to this number changes are no longer there.
    pub(crate) pruned: u64,
    /// With their numbers, in order.
    pub(crate) rows: Vec<(u64, ChangeRow)>,
    /// When the change was made after which is asked, as the database writes it; `None` where that is not there. A change that got the same number
    /// after the database was put back has another time.
    pub(crate) after_at: Option<String>,
    /// When the last one of `rows` was made.
    pub(crate) last_at: Option<String>,
}

/// Something that is about to be collected from a shared object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condemned {
    /// The blob, or the manifest.
    pub(crate) digest: String,
    /// The repository that ceases to offer it; empty where its bytes go.
    pub(crate) repository: String,
    /// How many these are.
    pub(crate) bytes: u64,
}

/// What of a digest is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// That repositories offer it.
    Offers,
    /// Its bytes.
    Bytes,
}

/// A line of the audit log: somebody changed something, or tried to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditRow {
    /// When, in UTC.
    pub(crate) at: UtcSeconds,
    /// The request's id, as in the server's log.
    pub(crate) request_id: String,
    /// The id of the token; `None` for one who showed none.
    pub(crate) token: Option<String>,
    /// Where the request came from.
    pub(crate) address: Option<String>,
    /// The HTTP method.
    pub(crate) method: String,
    /// What was to be changed: the request's path, without a token.
    pub(crate) path: String,
    /// The digest of what was stored, where there is one.
    pub(crate) digest: Option<String>,
    /// The status of the answer.
    pub(crate) status: u16,
}

/// A time that the database has as text.
pub(super) fn time(text: &str) -> sqlx::Result<UtcSeconds> {
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
