//! What a mirror did.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeMap as _;
use symseal_bundle::Digest;
use symseal_registry::PushReport;

/// What became of one tag.
pub(super) enum Outcome {
    /// It is there now.
    Mirrored,
    /// It was there, and something of it was missing, or damaged.
    Repaired(String),
    /// It was there.
    Unchanged,
    /// It was left where it is.
    Refused(String),
    /// It could not be brought.
    Failed(String),
}

/// One tag.
pub(super) struct Mirrored {
    /// The tag that names it at the destination; of what is not there, that at the source.
    pub(super) tag: Option<String>,
    /// What the tag names, where that could be told.
    pub(super) digest: Option<Digest>,
    pub(super) outcome: Outcome,
    pub(super) sent: PushReport,
}

/// All of them.
#[derive(Default, Serialize)]
pub(super) struct Report {
    /// How many were brought.
    pub(super) mirrored: u64,
    /// How many were there and were not whole.
    pub(super) repaired: u64,
    /// How many were there.
    pub(super) unchanged: u64,
    /// How many were refused.
    pub(super) refused: u64,
    /// How many could not be brought.
    pub(super) failed: u64,
    tags: Vec<Mirrored>,
}

impl Report {
    /// Whether everything is there.
    pub(super) fn is_whole(&self) -> bool {
        self.refused == 0 && self.failed == 0
    }

    /// Whether nothing was tried.
    pub(super) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    pub(super) fn add(&mut self, mirrored: Mirrored) {
        match mirrored.outcome {
            Outcome::Mirrored => self.mirrored += 1,
            Outcome::Repaired(_) => self.repaired += 1,
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
        self.tags.push(mirrored);
    }
}

impl Serialize for Mirrored {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("tag", &self.tag)?;
        map.serialize_entry("digest", &self.digest)?;
        let (outcome, reason) = match &self.outcome {
            Outcome::Mirrored => ("mirrored", None),
            Outcome::Repaired(reason) => ("repaired", Some(reason)),
            Outcome::Unchanged => ("unchanged", None),
            Outcome::Refused(reason) => ("refused", Some(reason)),
            Outcome::Failed(reason) => ("failed", Some(reason)),
        };
        map.serialize_entry("outcome", outcome)?;
        map.serialize_entry("reason", &reason)?;
        let PushReport { blobs_sent, blobs_existing, blobs_mounted, bytes_sent, referrers, .. } = &self.sent;
        let passed_over = self.sent.referrers_passed_over;
        map.serialize_entry("blobs_sent", blobs_sent)?;
        map.serialize_entry("blobs_existing", blobs_existing)?;
        map.serialize_entry("blobs_mounted", blobs_mounted)?;
        map.serialize_entry("bytes_sent", bytes_sent)?;
        map.serialize_entry("referrers", referrers)?;
        map.serialize_entry("referrers_passed_over", &passed_over)?;
        map.end()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Mirrored { tag, digest, outcome, .. } in &self.tags {
            let tag = tag.as_deref().unwrap_or("-");
            let digest = digest.map_or_else(|| "-".to_owned(), |digest| digest.to_string());
            match outcome {
                Outcome::Mirrored => writeln!(f, "mirrored   {tag} {digest}")?,
                Outcome::Repaired(why) => writeln!(f, "repaired   {tag} {digest}: {}", crate::output::visible(why))?,
                Outcome::Unchanged => writeln!(f, "unchanged  {tag} {digest}")?,
                Outcome::Refused(why) => writeln!(f, "refused    {tag} {digest}: {}", crate::output::visible(why))?,
                Outcome::Failed(why) => writeln!(f, "failed     {tag} {digest}: {}", crate::output::visible(why))?,
            }
        }
        let Self { mirrored, repaired, unchanged, refused, failed, .. } = self;
        write!(f, "{mirrored} mirrored, {repaired} repaired, {unchanged} unchanged, {refused} refused, {failed} failed")
    }
}
