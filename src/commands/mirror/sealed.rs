//! Whether something may be mirrored by a trust directory.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use symseal_bundle::verify::{Verdict, subject_digests};
use symseal_bundle::{Bundle, Digest, SymbolIndex, seal};
use symseal_registry::Repository;
use symseal_seal::{Expectation, Trust};
use symseal_sealer::load_trust;

use super::place::Place;
use crate::commands::bundle::verify::now;
use crate::memory::{Memory, RECORDED, StateArgs};
use crate::output::visible;
use crate::registry_client;

/// Who may pass.
pub(super) struct Sealed {
    trust: Trust,
    memory: Memory,
    /// What sealed bundles name as their sources.
    sources: HashSet<Digest>,
    /// Whether it was said that nothing is remembered.
    has_told: bool,
}

impl Sealed {
    /// Reads the trust directory.
    pub(super) fn open(trust: &Path, state: &StateArgs) -> Result<Self> {
        let mut sealed =
            Self { trust: load_trust(trust)?, memory: Memory::open(state)?, sources: HashSet::new(), has_told: false };
        if let Err(why) = sealed.memory.record_policy(&sealed.trust) {
            sealed.tell(&why);
        }
        Ok(sealed)
    }

    /// A medium that cannot be written to is no reason to refuse, but one to say so, once.
    fn tell(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_told, true) {
            eprintln!("what was seen is not remembered: {}", visible(why));
        }
    }

    /// Whether what has this digest may pass; else why not.
    pub(super) async fn check(&mut self, place: &Place, digest: &Digest) -> Result<Result<(), String>> {
        if self.sources.contains(digest) {
            return Ok(Ok(()));
        }
        let (symbol_index, seals) = match place {
            Place::Layout(layout) => match Bundle::open(layout.clone(), Some(digest)) {
                Ok(bundle) => (bundle.index_bytes().to_vec(), bundle.read_seals()?),
                Err(error) => return Ok(Err(format!("neither a sealed bundle nor the sources of one: {error}"))),
            },
            Place::Registry { reference, options, .. } => {
                let repository = Repository::open(&reference.with_digest(*digest), options)?;
                match repository.bundle_indexes().await {
                    Ok(indexes) => match repository.seals(digest).await {
                        Ok(seals) => (indexes.symbol_index, seals),
                        // Anybody may have put it there.
                        Err(error) if error.is_of_one_object() => {
                            return Ok(Err(format!("it has no seal that can be read: {error}")));
                        }
                        Err(error) => return Err(registry_client::told(error)),
                    },
                    Err(symseal_registry::RegistryError::Manifest { problem, .. }) => {
                        return Ok(Err(format!("neither a sealed bundle nor the sources of one: {problem}")));
                    }
                    Err(error) => return Err(registry_client::told(error)),
                }
            }
        };
        let index = SymbolIndex::parse(&symbol_index)?;
        if seals.is_empty() {
            return Ok(Err("it has no seal".to_owned()));
        }
        let expectation = Expectation {
            name: Some(&index.name),
            version: Some(&index.version),
            seen: self.memory.seen(),
            ..Expectation::default()
        };
        let subjects = subject_digests(Some(digest), &symbol_index);
        let examined = seal::examine_seals(&seals, &subjects, &self.trust, &expectation, now());
        if let Some(check) = examined.first_failure() {
            return Ok(Err(format!("its seal does not hold: {check}")));
        }
        let recorded = self.memory.record(Verdict::Verified, &self.trust, &examined.checkpoints, &[]);
        if self.memory.seen().is_some() && !recorded.starts_with(RECORDED) {
            self.tell(&recorded);
        }
        self.sources.extend(index.sources);
        Ok(Ok(()))
    }
}
