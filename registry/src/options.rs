//! What a caller decides, and what a push did.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oci_client::secrets::RegistryAuth;
use symseal_bundle::Digest;

use crate::Redirections;

/// How to push and pull.
#[derive(Clone)]
pub struct Options {
    /// Who we are. Anonymous unless said otherwise.
    pub auth: RegistryAuth,
    /// Blobs under way at once; at least one.
    pub concurrency: usize,
    /// Tries of one request before its failure is the answer; at least one.
    pub tries: u32,
    /// Time to reach the registry.
    pub connect_timeout: Duration,
    /// Time without a byte after which a transfer counts as broken.
    pub stall_timeout: Duration,
    /// Where the registry may lead.
    pub redirections: Redirections,
    /// Whether the registry is spoken to by TLS.
    pub tls: Tls,
    /// Told of what goes on.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// What was found out about names. Copies of these options share it.
    pub other_names: OtherNames,
}

/// The names by another algorithm under which a registry has manifests that came by a tag. A registry that stores a manifest under its sha512 does not
/// know it by its sha256, by which everything here calls it.
#[derive(Clone, Default)]
pub struct OtherNames(Arc<Mutex<HashMap<Digest, String>>>);

impl OtherNames {
    /// Keeps the registry's own name (`Docker-Content-Digest`) of the manifest with this digest, if it is a sha512. It need not be true: what comes
    /// under it is held against the digest.
    pub(crate) fn keep(&self, digest: Digest, name: &str) {
        let hex = name.strip_prefix("sha512:").unwrap_or_default();
        if hex.len() == 128 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, name.to_owned());
        }
    }

    pub(crate) fn of(&self, digest: &Digest) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            auth: RegistryAuth::Anonymous,
            concurrency: 4,
            tries: 5,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
            redirections: Redirections::default(),
            tls: Tls::default(),
            progress: None,
            other_names: OtherNames::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("auth", &self.auth)
            .field("concurrency", &self.concurrency)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}

/// Whether a registry is spoken to by TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tls {
    /// Unless it is on a loopback address.
    #[default]
    ByPlace,
    /// In any case.
    Always,
    /// In no case. What is read is checked by its digest; what is secret is for the caller not to give.
    Never,
}

/// Something that happened during a push or pull.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// This many blobs and bytes are to be looked at. A pull learns of more as it reads manifests.
    Found {
        /// Blobs.
        blobs: u64,
        /// Bytes in them.
        bytes: u64,
    },
    /// Bytes went over the wire.
    Moved {
        /// How many.
        bytes: u64,
    },
    /// A blob is at its place; it may have been there before.
    Done {
        /// Which.
        digest: Digest,
        /// Its bytes.
        bytes: u64,
        /// Whether it was there before.
        existed: bool,
    },
    /// A blob that was there had other bytes than its digest says. It is removed, and fetched again.
    Damaged {
        /// Which.
        digest: Digest,
    },
    /// A referrer is not taken: it is no manifest, not whole or too large.
    PassedOver {
        /// Which.
        referrer: Digest,
        /// What is wrong with it.
        reason: String,
    },
    /// A request failed and is tried again.
    Retry {
        /// What failed.
        reason: String,
    },
}

impl Options {
    pub(crate) fn tell(&self, progress: Progress) {
        if let Some(tell) = &self.progress {
            tell(progress);
        }
    }
}

/// What a push would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushPlan {
    /// Blobs that the registry has.
    pub blobs_existing: u64,
    /// Blobs that it would be sent, or would have to take from another repository.
    pub blobs_missing: u64,
    /// Bytes of these.
    pub bytes_missing: u64,
    /// Manifests that would be sent, the referrers included.
    pub manifests: u64,
}

/// What a push did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushReport {
    /// The pushed image index or manifest: what the reference resolves to now.
    pub digest: Option<Digest>,
    /// Blobs that were sent.
    pub blobs_sent: u64,
    /// Blobs that the registry had.
    pub blobs_existing: u64,
    /// Bytes of the blobs that were sent.
    pub bytes_sent: u64,
    /// Blobs that the registry took from another of its repositories: no byte of them moved.
    pub blobs_mounted: u64,
    /// Blobs among those sent that were first fetched from another registry.
    pub blobs_copied: u64,
    /// Bytes that were fetched for that.
    pub bytes_fetched: u64,
    /// Manifests that were sent or confirmed, the referrers included.
    pub manifests: u64,
    /// Referrers among them.
    pub referrers: u64,
    /// Referrers that were left out, as they are not whole at the place that they come from.
    pub referrers_passed_over: u64,
    /// Whether the registry keeps referrers itself; otherwise a `sha256-…` tag was written for them.
    pub referrers_api: bool,
}
