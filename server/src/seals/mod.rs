//! Whether a bundle's seals hold, by the operator's trust directory. Judged when a seal or its bundle comes or goes, at the
//! start, and when the trust directory changes; a GET asks nobody.

mod verdict;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use symseal_seal::{Expectation, SEAL_LIMIT, SubjectDigests, Trust, examine_seals};
use symseal_sealer::{LoadTrustError, TrustFiles, load_trust_files};

use crate::blobs::{BlobDigest, BlobDirectory, unless_lost};
use crate::clock::now;
use crate::ids::BundleEntry;
use crate::ingest::is_seal;
use crate::repositories::{MANIFEST_LIMIT, Prefix, Repository};
pub(crate) use verdict::{RefusedSeal, SealedBy, Verdict};

/// Referrers of one bundle in one repository that are read as its seals. More are not seals but a flood.
const SEALS_LIMIT: usize = 256;

/// How often the trust directory is looked at for changes.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Times of validity pass without a change of any file.
const JUDGE_AGAIN: Duration = Duration::from_secs(3600);

/// What stands for every repository where prefixes are named.
const EVERYWHERE: &str = "all";

/// Whom a server trusts, and where it shows sealed bundles alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealRules {
    /// The trust directory: `root.json`, `policy.dsse.json`, `trusted_root.json`.
    pub trust: PathBuf,
    /// Names of repositories: in these and below them a bundle is shown from its seal on. `all`: everywhere.
    pub require: Vec<String>,
}

/// A name that is no repository's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--require-seal {0:?}: expected the name of a repository, such as team or team/app, or all")]
pub struct NoRepository(String);

impl SealRules {
    /// Where seals are required.
    pub(crate) fn required(&self) -> Result<Vec<Prefix>, NoRepository> {
        let prefix = |text: &String| match text.as_str() {
            EVERYWHERE => Ok(Prefix::default()),
            name => name.parse().map_err(|_| NoRepository(text.clone())),
        };
        self.require.iter().map(prefix).collect()
    }
}

/// The judge, once there is a trust directory.
#[derive(Debug, Default)]
pub(crate) struct Seals(OnceLock<Judge>);

#[derive(Debug)]
struct Judge {
    directory: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    files: TrustFiles,
    trust: Arc<Trust>,
    since: Instant,
}

impl Seals {
    /// Takes a trust directory, once. Blocks.
    pub(crate) fn trust(&self, directory: PathBuf) -> Result<(), LoadTrustError> {
        let (files, trust) = load_trust_files(&directory)?;
        let current = Mutex::new(Current { files, trust: Arc::new(trust), since: Instant::now() });
        // The first one stays: whoever gives two has made a mistake that a test finds.
        let _ = self.0.set(Judge { directory, current });
        Ok(())
    }

    /// Whether there is a trust directory.
    pub(crate) fn are_judged(&self) -> bool {
        self.0.get().is_some()
    }

    /// Whether all seals must be judged again: the trust directory says something else than it did, or time has passed.
    /// A directory that cannot be read leaves everything as it is. Blocks.
    pub(crate) fn look_again(&self) -> bool {
        let Some(judge) = self.0.get() else { return false };
        let mut current = judge.current.lock().unwrap_or_else(PoisonError::into_inner);
        match load_trust_files(&judge.directory) {
            Ok((files, trust)) if files != current.files => {
                tracing::info!(
                    policy = trust.policy.version,
                    "the trust directory has changed: seals are judged again"
                );
                *current = Current { files, trust: Arc::new(trust), since: Instant::now() };
                true
            }
            Ok(_) if current.since.elapsed() < JUDGE_AGAIN => false,
            Ok(_) => {
                current.since = Instant::now();
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the trust directory cannot be used: seals stay judged by what it said before");
                false
            }
        }
    }

    /// Judges a bundle by the seals that came for it.
    pub(crate) fn judge(&self, entry: &BundleEntry, seals: &[Vec<u8>]) -> Verdict {
        let Some(judge) = self.0.get() else { return Verdict::Unjudged };
        // A seal names its subject by sha256.
        let bundle = entry.digest.parse::<BlobDigest>().ok().and_then(|digest| digest.bytes().try_into().ok());
        if seals.is_empty() || bundle.is_none() || entry.is_loose {
            return Verdict::Unsealed;
        }
        let trust = Arc::clone(&judge.current.lock().unwrap_or_else(PoisonError::into_inner).trust);
        let subjects = SubjectDigests {
            bundle,
            symbol_index: Some(entry.symbol_index),
            modules_root: entry.modules_root,
            modules: None,
        };
        let expectation =
            Expectation { name: Some(&entry.name), version: Some(&entry.version), ..Expectation::default() };
        Verdict::of(&examine_seals(seals, &subjects, &trust, &expectation, now()))
    }
}

/// Whether a repository has what calls itself a seal of a bundle.
pub(crate) fn has_seal(repository: &Repository, bundle: &BlobDigest) -> bool {
    repository.referrers(bundle).iter().any(|(_, manifest)| is_seal(manifest))
}

/// The bytes of a bundle's seals in a repository, each once. What is lost is none. Blocks.
///
/// # Errors
/// One of them cannot be read now.
pub(crate) fn seals_in(
    repository: &Repository,
    bundle: &BlobDigest,
    blobs: &BlobDirectory,
) -> io::Result<Vec<Vec<u8>>> {
    let mut layers = BTreeSet::new();
    for (digest, _) in repository.referrers(bundle).iter().filter(|(_, manifest)| is_seal(manifest)) {
        let Some(bytes) = unless_lost(blobs.read(digest, MANIFEST_LIMIT as u64))? else { continue };
        layers.extend(seal_layers(&bytes));
        if layers.len() >= SEALS_LIMIT {
            tracing::warn!(%bundle, "a bundle has more than {SEALS_LIMIT} seals: the others are not looked at");
            break;
        }
    }
    layers.iter().filter_map(|layer| unless_lost(blobs.read(layer, SEAL_LIMIT as u64)).transpose()).collect()
}

/// The blobs that a seal's manifest says are seals.
pub(crate) fn seal_layers(manifest: &[u8]) -> Vec<BlobDigest> {
    let Ok(manifest) = symseal_bundle::oci::Manifest::parse(manifest) else { return Vec::new() };
    let layers = manifest.layers.iter().filter(|layer| layer.size <= SEAL_LIMIT as u64);
    layers.map(|layer| layer.digest.into()).take(SEALS_LIMIT).collect()
}
