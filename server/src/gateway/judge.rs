//! Whether a bundle's seals hold, by the trust directory as it is now: one that has changed holds within seconds, and one that cannot be used
//! trusts nobody.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symseal_seal::{Expectation, Trust, examine_seals};
use symseal_sealer::{LoadTrustError, StateDir, TrustFiles, load_trust_files};

use super::known::KnownBundle;
use super::lock;
use crate::clock::now;
use crate::seals::{RefusedSeal, Verdict};

/// How often the trust directory is looked at, at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Times of validity pass without a change of any file.
const JUDGE_AGAIN: Duration = Duration::from_secs(10);

/// The judge of seals.
pub(super) struct Judge {
    directory: PathBuf,
    memory: Option<StateDir>,
    current: Mutex<Current>,
}

struct Current {
    files: Option<TrustFiles>,
    trust: Result<Arc<Trust>, String>,
    generation: u64,
    looked: Instant,
}

/// A verdict, and by what it was found.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    verdict: Verdict,
    generation: u64,
    /// Of the bundle's seals.
    seals: u64,
    at: Instant,
}

/// Whom the gateway trusts at this moment, for its status page.
#[derive(Debug, Clone)]
pub(super) struct TrustStanding {
    /// Version of the policy; or why nobody is trusted.
    pub(super) policy: Result<u64, String>,
    /// What ends soon, or has.
    pub(super) warnings: Vec<String>,
}

impl Judge {
    /// Reads the trust directory, which must be sound at the start. What was seen is remembered in `memory`. Blocks.
    pub(super) fn open(directory: &Path, memory: Option<&Path>) -> Result<Self, LoadTrustError> {
        let (files, trust) = load_trust_files(directory)?;
        let current = Current { files: Some(files), trust: Ok(Arc::new(trust)), generation: 0, looked: Instant::now() };
        Ok(Self { directory: directory.to_owned(), memory: memory.map(StateDir::new), current: Mutex::new(current) })
    }

    /// What comes out for a bundle. Blocks.
    pub(super) fn judge(&self, bundle: &KnownBundle) -> Verdict {
        let (trust, generation) = self.trust();
        // Before the seals themselves: one that comes between them is judged again.
        let seals = bundle.generation();
        {
            let judged = lock(&bundle.judged);
            if let Some(judged) = judged.as_ref()
                && judged.generation == generation
                && judged.seals == seals
                && judged.at.elapsed() < JUDGE_AGAIN
            {
                return judged.verdict.clone();
            }
        }
        let verdict = match trust {
            Ok(trust) => self.examine(bundle, &bundle.seals(), &trust),
            Err(found) => Verdict::Refused(RefusedSeal {
                check: "trust.root".to_owned(),
                expected: "a trust directory that can be used".to_owned(),
                found,
            }),
        };
        *lock(&bundle.judged) = Some(Judged { verdict: verdict.clone(), generation, seals, at: Instant::now() });
        verdict
    }

    fn examine(&self, bundle: &KnownBundle, seals: &[Arc<[u8]>], trust: &Trust) -> Verdict {
        if seals.is_empty() {
            return Verdict::Unsealed;
        }
        let refused = |found: String| {
            let expected = "a memory of what was seen that can be read".to_owned();
            Verdict::Refused(RefusedSeal { check: "log.freshness".to_owned(), expected, found })
        };
        let seen = match self.memory.as_ref().map(StateDir::load).transpose() {
            Ok(seen) => seen,
            Err(error) => return refused(error.to_string()),
        };
        let expectation = Expectation {
            name: Some(&bundle.index.name),
            version: Some(&bundle.index.version),
            seen: seen.as_ref(),
            ..Expectation::default()
        };
        let examined = examine_seals(seals, &bundle.subjects, trust, &expectation, now());
        let verdict = Verdict::of(&examined);
        if verdict.is_sealed()
            && let Some(memory) = &self.memory
            && let Err(error) = memory.record(|seen| seen.record(trust, &examined.checkpoints, &[]))
        {
            tracing::warn!(%error, "what was seen is not remembered");
        }
        verdict
    }

    /// For the status page. Blocks.
    pub(super) fn standing(&self) -> TrustStanding {
        match self.trust().0 {
            Ok(trust) => TrustStanding { policy: Ok(trust.policy.version), warnings: trust.warnings(now()) },
            Err(why) => TrustStanding { policy: Err(why), warnings: Vec::new() },
        }
    }

    fn trust(&self) -> (Result<Arc<Trust>, String>, u64) {
        let mut current = lock(&self.current);
        if current.looked.elapsed() >= LOOK_AGAIN {
            current.looked = Instant::now();
            match load_trust_files(&self.directory) {
                Ok((files, _)) if current.files.as_ref() == Some(&files) => {}
                Ok((files, trust)) => {
                    tracing::info!(
                        policy = trust.policy.version,
                        "the trust directory has changed: seals are judged again"
                    );
                    // Whatever it says of bundles: an older one that is put back is refused.
                    if let Some(memory) = &self.memory
                        && let Err(error) = memory.record(|seen| seen.record(&trust, &[], &[]))
                    {
                        tracing::warn!(%error, "the policy is not remembered");
                    }
                    current.files = Some(files);
                    current.trust = Ok(Arc::new(trust));
                    current.generation += 1;
                }
                Err(error) => {
                    if current.trust.is_ok() {
                        tracing::error!(%error, "the trust directory cannot be used: nobody is trusted until it can");
                    }
                    current.files = None;
                    current.trust = Err(error.to_string());
                    current.generation += 1;
                }
            }
        }
        (current.trust.clone(), current.generation)
    }
}
