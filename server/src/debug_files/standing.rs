//! Where a bundle is, whether it is sealed, and what follows from that for those who look for its files.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Bundle;
use crate::access::Caller;
use crate::repositories::{Prefix, RepositoryName};
use crate::seals::Verdict;

/// Where a bundle is, and whether it is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// The repositories that have it; none: it is gone.
    pub(crate) repositories: BTreeSet<RepositoryName>,
    /// What came out for its seals.
    pub(crate) verdict: Verdict,
}

/// The repositories whose files a request asks for, as far as its caller may read them. The default is all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scope {
    asked: Prefix,
    /// `None`: every one.
    readable: Option<Arc<[Prefix]>>,
    /// Whether its caller showed nothing, and may not read everything without that.
    is_of_stranger: bool,
}

impl Scope {
    /// What is asked for, by one who may read everything.
    pub(crate) fn of(asked: Prefix) -> Self {
        Self { asked, ..Self::default() }
    }

    /// What of it a caller may read.
    pub(crate) fn readable_by(self, caller: &Caller) -> Self {
        let readable = caller.readable();
        Self { is_of_stranger: caller.is_stranger() && readable.is_some(), readable, ..self }
    }

    /// Whether a repository is meant.
    pub(crate) fn covers(&self, repository: &RepositoryName) -> bool {
        self.asked.holds(repository) && self.may_read(repository)
    }

    /// Whether all that this server has is meant, as far as the caller may read it.
    fn is_everywhere(&self) -> bool {
        self.asked.holds_all()
    }

    /// Whether other servers are asked too: not for strangers, as they may give this server what they do not give everybody.
    pub(crate) fn reaches_upstreams(&self) -> bool {
        self.is_everywhere() && !self.is_of_stranger
    }

    /// Whether every repository is meant, and the caller may read it.
    pub(crate) fn is_everything(&self) -> bool {
        self.is_everywhere() && self.readable.is_none()
    }

    /// Whether the caller may read a repository, meant or not.
    pub(crate) fn may_read(&self, repository: &RepositoryName) -> bool {
        self.readable.as_ref().is_none_or(|prefixes| prefixes.iter().any(|prefix| prefix.holds(repository)))
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

/// How a bundle is shown, where those below `required` show sealed ones alone; `None` where none of its repositories shows it.
pub(super) fn of(bundle: &Bundle, required: &[Prefix]) -> Option<Visible> {
    let shows =
        |name: &&RepositoryName| bundle.verdict.is_sealed() || !required.iter().any(|prefix| prefix.holds(name));
    let repositories: Arc<[RepositoryName]> = bundle.repositories.iter().filter(shows).cloned().collect();
    let rank = match (bundle.verdict.is_sealed(), bundle.entry.is_loose) {
        (true, _) => Rank::Sealed,
        (false, false) => Rank::Unsealed,
        (false, true) => Rank::Loose,
    };
    (!repositories.is_empty()).then_some(Visible { rank, repositories })
}
