//! Where a bundle is, whether it is sealed, and what follows from that for those who look for its files.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Bundle;
use crate::access::{Caller, Prefix};
use crate::repositories::RepositoryName;
use crate::seals::Verdict;

/// Where a bundle is, and whether it is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// The repositories that have it; none: it is gone.
    pub(crate) repositories: BTreeSet<RepositoryName>,
    /// What came out for its seals.
    pub(crate) verdict: Verdict,
}

/// The repositories in which bundles without a seal are not shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum RequiredSeals {
    /// None.
    #[default]
    Nowhere,
    /// Those of these names, and those below them.
    Below(Vec<RepositoryName>),
    /// All.
    Everywhere,
}

impl RequiredSeals {
    /// Whether a repository's bundles need a seal.
    pub(crate) fn covers(&self, repository: &RepositoryName) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Below(prefixes) => prefixes.iter().any(|prefix| repository.is_at_or_below(prefix)),
            Self::Everywhere => true,
        }
    }
}

/// The repositories whose files a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    /// Every one.
    #[default]
    Everywhere,
    /// The one of this name, and those below it.
    Below(RepositoryName),
    /// Of these the ones below any of some prefixes: what a caller may read.
    Readable {
        /// What is asked for.
        asked: Box<Scope>,
        /// What may be read.
        prefixes: Arc<[Prefix]>,
    },
}

impl Scope {
    /// Whether a repository is meant.
    pub(crate) fn covers(&self, repository: &RepositoryName) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Below(prefix) => repository.is_at_or_below(prefix),
            Self::Readable { asked, prefixes } => {
                asked.covers(repository) && prefixes.iter().any(|prefix| prefix.holds(repository.as_str()))
            }
        }
    }

    /// Whether all that this server has is meant, as far as the caller may read it: then other servers are asked too.
    pub(crate) fn is_everywhere(&self) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Below(_) => false,
            Self::Readable { asked, .. } => asked.is_everywhere(),
        }
    }

    /// Whether the caller may read a repository, meant or not.
    pub(crate) fn may_read(&self, repository: &RepositoryName) -> bool {
        match self {
            Self::Everywhere | Self::Below(_) => true,
            Self::Readable { prefixes, .. } => prefixes.iter().any(|prefix| prefix.holds(repository.as_str())),
        }
    }

    /// What of it a caller may read.
    pub(crate) fn readable_by(self, caller: &Caller) -> Self {
        match caller.readable() {
            None => self,
            Some(prefixes) => Self::Readable { asked: Box::new(self), prefixes },
        }
    }
}

/// Whose files go before whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A bundle with a seal that holds.
    Sealed,
    /// A bundle without one.
    Unsealed,
    /// A file that was uploaded by itself.
    Loose,
}

/// A bundle that is shown.
#[derive(Debug, Clone)]
pub(super) struct Visible {
    /// Its place among others.
    pub(super) rank: Rank,
    /// The repositories that show it.
    pub(super) repositories: Arc<[RepositoryName]>,
}

/// How a bundle is shown; `None` where none of its repositories shows it.
pub(super) fn of(bundle: &Bundle, required: &RequiredSeals) -> Option<Visible> {
    let shows = |name: &&RepositoryName| bundle.verdict.is_sealed() || !required.covers(name);
    let repositories: Arc<[RepositoryName]> = bundle.repositories.iter().filter(shows).cloned().collect();
    let rank = match (bundle.verdict.is_sealed(), bundle.entry.is_loose) {
        (true, _) => Rank::Sealed,
        (false, false) => Rank::Unsealed,
        (false, true) => Rank::Loose,
    };
    (!repositories.is_empty()).then_some(Visible { rank, repositories })
}
