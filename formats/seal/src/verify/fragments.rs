//! The tile fragments that a caller gives beside the seals: each stands for checkpoint and audit path of the seal whose entry
//! it proves. The others keep their own.

use crate::fragment::TileFragment;
use crate::log_entry::LogEntry;
use crate::sigstore::SigstoreBundle;
use crate::trust::Trust;

/// What the caller gave.
#[derive(Default)]
pub(super) struct Fragments {
    read: Vec<TileFragment>,
    /// What was found instead of a fragment for one of the seals. It must not pass unnoticed: who gives a fragment wants it used.
    unusable: Option<String>,
}

impl Fragments {
    /// Reads the fragments, and looks for the seals that they are for.
    pub(super) fn of<S: AsRef<[u8]>>(given: &[Vec<u8>], seals: &[S], trust: &Trust) -> Self {
        let mut fragments = Self::default();
        if given.is_empty() {
            return fragments;
        }
        let seals: Vec<SigstoreBundle> =
            seals.iter().filter_map(|seal| SigstoreBundle::parse(seal.as_ref()).ok()).collect();
        for json in given {
            match TileFragment::parse(json) {
                Err(error) => fragments.unusable = Some(error.to_string()),
                Ok(fragment) if seals.iter().any(|seal| is_for(&fragment, &seal.entry, trust)) => {
                    fragments.read.push(fragment);
                }
                Ok(fragment) => {
                    let origin: String = origin(&fragment).unwrap_or_default().chars().take(120).collect();
                    fragments.unusable = Some(format!("one for entry {} of {origin:?}", fragment.index));
                }
            }
        }
        fragments
    }

    /// The fragment for an entry; `Err` where there is none and one that was given is for no seal; `None`: the entry keeps
    /// its own proof.
    pub(super) fn for_entry(&self, entry: &LogEntry, trust: &Trust) -> Option<Result<&TileFragment, &str>> {
        let own = self.read.iter().find(|fragment| is_for(fragment, entry, trust));
        own.map(Ok).or_else(|| self.unusable.as_deref().map(Err))
    }
}

/// The origin line of its checkpoint, which is judged later.
fn origin(fragment: &TileFragment) -> Option<&str> {
    fragment.checkpoint.lines().next()
}

/// By the entry's place and its log; of a log that the policy does not know, by the place.
fn is_for(fragment: &TileFragment, entry: &LogEntry, trust: &Trust) -> bool {
    let origin = origin(fragment);
    let log = trust.policy.log(entry.log_id, origin);
    fragment.index == entry.log_index && log.is_none_or(|log| Some(log.identity.origin.as_str()) == origin)
}
