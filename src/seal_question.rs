//! What is asked of a bundle's seal: one form for the commands that verify a bundle and for those that name things from one.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use symseal_bundle::verify::TimeSource;
use symseal_seal::{ConsistencyProof, UtcSeconds};

use crate::commands::bundle::verify::{consistency_proofs, now, read};
use crate::memory::StateArgs;

/// What is asked of a bundle's seal.
#[derive(Args, Default, Clone)]
pub struct SealQuestion {
    /// Verify the bundle's seal against this trust directory: root.json, policy.dsse.json, trusted_root.json.
    #[arg(long, value_name = "DIR")]
    pub trust: Option<PathBuf>,
    /// Refuse unless the seal is for a release of this name; else it is refused only if the symbol index has another.
    #[arg(long, value_name = "NAME")]
    pub expect_name: Option<String>,
    /// Refuse unless the seal is for this version; else it is refused only if the symbol index has another.
    #[arg(long, value_name = "VERSION")]
    pub expect_version: Option<String>,
    /// The seal in a file of its own, for what `oras pull` left. Repeat for seals by several keys.
    #[arg(long, value_name = "FILE")]
    pub signature: Vec<PathBuf>,
    /// Judge validity at this time (UTC, as 2026-11-20T12:00:00Z) instead of now.
    #[arg(long, value_name = "TIME")]
    pub at: Option<UtcSeconds>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Consistency proofs between checkpoints seen before and the seal's. Repeat for more files.
    #[arg(long, value_name = "FILE")]
    pub consistency: Vec<PathBuf>,
    /// A tile fragment of a log (checkpoint, index, tiles), which stands for the audit path of the seal whose entry it is for. Repeat
    /// for seals by several keys; a seal without one keeps its own path.
    #[arg(long, value_name = "FILE")]
    pub fragment: Vec<PathBuf>,
}

impl SealQuestion {
    /// The trust directory of a command that verifies nothing where none is named. What else is asked of a seal is then a wrong call.
    pub(crate) fn asked(&self) -> Result<Option<&Path>> {
        let Self { trust, expect_name, expect_version, signature, at, state, consistency, fragment } = self;
        let without_trust = [
            ("--expect-name", expect_name.is_some()),
            ("--expect-version", expect_version.is_some()),
            ("--signature", !signature.is_empty()),
            ("--at", at.is_some()),
            ("--state", state.state.is_some()),
            ("--consistency", !consistency.is_empty()),
            ("--fragment", !fragment.is_empty()),
        ];
        match without_trust.iter().find(|(_, is_given)| *is_given && trust.is_none()) {
            Some((option, _)) => anyhow::bail!("{option}: expected --trust, against which the seal is verified"),
            None => Ok(trust.as_deref()),
        }
    }

    /// The time at which validity is judged, and whose it is.
    pub(crate) fn time(&self) -> (UtcSeconds, TimeSource) {
        self.at.map_or_else(|| (now(), TimeSource::Clock), |at| (at, TimeSource::Asked))
    }

    /// The seals in files of their own.
    pub(crate) fn signatures(&self) -> Result<Vec<Vec<u8>>> {
        self.signature.iter().map(|path| read("signature", path)).collect()
    }

    /// The tile fragments.
    pub(crate) fn fragments(&self) -> Result<Vec<Vec<u8>>> {
        self.fragment.iter().map(|path| read("tile fragment", path)).collect()
    }

    /// The consistency proofs.
    pub(crate) fn consistency(&self) -> Result<Vec<ConsistencyProof>> {
        consistency_proofs(&self.consistency)
    }
}
