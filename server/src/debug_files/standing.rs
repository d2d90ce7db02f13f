//! Where a bundle is, whether it is sealed, and what follows from that for those who look for its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Bundle;
use crate::access::Caller;
use crate::repositories::{Prefix, RepositoryName};
use crate::seals::Verdict;

/// Where a bundle is, and what came out for its seals in each of these repositories. None: it is gone.
///
/// What a repository holds is told to those who may read it, so the seals of one say nothing of a bundle in another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standing(BTreeMap<RepositoryName, Verdict>);

impl Standing {
    /// In these repositories, before its seals are judged.
    pub(crate) fn unjudged(repositories: impl IntoIterator<Item = RepositoryName>) -> Self {
        repositories.into_iter().map(|name| (name, Verdict::Unjudged)).collect()
    }

    /// With one more repository, or with what came out there now.
    pub(crate) fn with(mut self, name: RepositoryName, verdict: Verdict) -> Self {
        self.0.insert(name, verdict);
        self
    }

    /// Whether no repository has the bundle.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    /// The repositories that have it.
    pub(crate) fn repositories(&self) -> impl Iterator<Item = &RepositoryName> {
        self.0.keys()
    }

    /// What came out in each repository.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (&RepositoryName, &Verdict)> {
        self.0.iter()
    }

    /// What came out in a repository; `None` where it has no such bundle.
    pub(crate) fn in_repository(&self, name: &RepositoryName) -> Option<&Verdict> {
        self.0.get(name)
    }

    /// Whether any repository has a seal of it that holds: for what the server decides, and not for what it tells.
    pub(crate) fn is_sealed_somewhere(&self) -> bool {
        self.0.values().any(Verdict::is_sealed)
    }

    /// What came out in those of its repositories that a caller may know of: a seal that holds before one that does not, and that before none.
    pub(crate) fn among(&self, may_know: impl Fn(&RepositoryName) -> bool) -> Verdict {
        let known = self.0.iter().filter(|(name, _)| may_know(name)).map(|(_, verdict)| verdict);
        known.min_by_key(|verdict| verdict.place()).cloned().unwrap_or_default()
    }
}

impl FromIterator<(RepositoryName, Verdict)> for Standing {
    fn from_iter<I: IntoIterator<Item = (RepositoryName, Verdict)>>(verdicts: I) -> Self {
        Self(verdicts.into_iter().collect())
    }
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

/// The repositories that show a bundle, each with its place among others there.
#[derive(Debug, Clone)]
pub(super) struct Visible(Arc<[(RepositoryName, Rank)]>);

impl Visible {
    /// Its place among others in a scope; `None` where the scope covers none of the repositories.
    pub(super) fn rank_in(&self, scope: &Scope) -> Option<Rank> {
        self.0.iter().filter(|(name, _)| scope.covers(name)).map(|(_, rank)| *rank).min()
    }
}

/// How a bundle is shown, where those below `required` show what is sealed there alone; `None` where none of its repositories shows it.
pub(super) fn of(bundle: &Bundle, required: &[Prefix]) -> Option<Visible> {
    let repositories: Arc<[_]> = bundle
        .standing
        .verdicts()
        .filter(|(name, verdict)| is_shown_in(name, verdict, required))
        .map(|(name, verdict)| (name.clone(), rank(verdict, bundle.entry.is_loose)))
        .collect();
    (!repositories.is_empty()).then_some(Visible(repositories))
}

/// Whether a repository shows what came out so there.
pub(super) fn is_shown_in(name: &RepositoryName, verdict: &Verdict, required: &[Prefix]) -> bool {
    verdict.is_sealed() || !required.iter().any(|prefix| prefix.holds(name))
}

fn rank(verdict: &Verdict, is_loose: bool) -> Rank {
    match (verdict.is_sealed(), is_loose) {
        (true, _) => Rank::Sealed,
        (false, false) => Rank::Unsealed,
        (false, true) => Rank::Loose,
    }
}
