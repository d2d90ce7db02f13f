//! What people look for in the store, as far as they may read it.

use std::cmp::Reverse;

use crate::access::Caller;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Bundle, FoundModule, Pattern, Scope};
use crate::repositories::RepositoryName;
use crate::seals::{Verdict, has_seal};

/// Modules and releases that one search gives, each: whoever gets more should say more.
pub(crate) const MOST: usize = 100;

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// By name.
    pub(crate) modules: Vec<FoundModule>,
    /// By name, the newest version first.
    pub(crate) releases: Vec<FoundRelease>,
    /// There is more of one of them.
    pub(crate) is_cut: bool,
}

/// A bundle or a loose file.
#[derive(Debug, Clone)]
pub(crate) struct FoundRelease {
    /// Its digest.
    pub(crate) digest: BlobDigest,
    /// The release's name.
    pub(crate) name: String,
    /// The release's version.
    pub(crate) version: String,
    /// It is a file that was uploaded by itself.
    pub(crate) is_loose: bool,
    /// What came out for its seals in these repositories.
    pub(crate) verdict: Verdict,
    /// Whether debuggers see it in one of them.
    pub(crate) is_shown: bool,
    /// The repositories that have it and that the caller may read.
    pub(crate) repositories: Vec<RepositoryName>,
}

/// The modules and releases that a pattern means. Reads every id: in the pool. Blocks.
pub(crate) fn search(app: &App, caller: &Caller, pattern: &Pattern) -> Found {
    let scope = Scope::default().readable_by(caller);
    let (modules, cut_modules) = app.debug_files.search(&scope, pattern, MOST);
    let mut releases = releases(app, caller);
    releases.retain(|release| pattern.is_in(&release.title()) || pattern.is_in(&release.digest.to_string()));
    let is_cut = cut_modules || releases.len() > MOST;
    releases.truncate(MOST);
    Found { modules, releases, is_cut }
}

/// Every bundle and loose file that a caller may read, by name, the newest version first. Blocks for as long as many take.
pub(crate) fn releases(app: &App, caller: &Caller) -> Vec<FoundRelease> {
    let bundles = app.debug_files.bundles().into_iter();
    let mut all: Vec<FoundRelease> =
        bundles.filter_map(|(digest, bundle)| FoundRelease::of(app, caller, digest, &bundle)).collect();
    all.sort_by_cached_key(|release| {
        (release.name.clone(), Reverse(natural(&release.version)), release.digest.clone())
    });
    all
}

/// How many releases there are for a caller, and the first of them.
#[derive(Debug)]
pub(crate) struct Summary {
    /// All, loose files among them.
    pub(crate) releases: usize,
    /// Without loose files.
    pub(crate) bundles: usize,
    /// With a seal that holds.
    pub(crate) sealed: usize,
    /// In the order of [`releases`].
    pub(crate) first: Vec<FoundRelease>,
}

/// What a caller may read, in numbers, and the first `most` releases: nothing is made of the others. Blocks.
pub(crate) fn summary(app: &App, caller: &Caller, most: usize) -> Summary {
    let mut all = app.debug_files.bundles();
    all.retain(|(_, bundle)| bundle.standing.repositories().any(|name| caller.may_read(name)));
    let bundles = all.iter().filter(|(_, bundle)| !bundle.entry.is_loose).count();
    let is_sealed = |bundle: &Bundle| bundle.standing.among(|name| caller.may_read(name)).is_sealed();
    let sealed = all.iter().filter(|(_, bundle)| is_sealed(bundle)).count();
    let releases = all.len();
    let order = |(a_digest, a): &(BlobDigest, Bundle), (b_digest, b): &(BlobDigest, Bundle)| {
        let by_version = || natural(&b.entry.version).cmp(&natural(&a.entry.version));
        a.entry.name.cmp(&b.entry.name).then_with(by_version).then_with(|| a_digest.cmp(b_digest))
    };
    if releases > most {
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
    }
    all.sort_by(order);
    let first = all.into_iter().filter_map(|(digest, bundle)| FoundRelease::of(app, caller, digest, &bundle));
    Summary { releases, bundles, sealed, first: first.collect() }
}

impl FoundRelease {
    /// What a caller may see of a bundle; `None` where it is in no repository that the caller may read.
    pub(crate) fn of(app: &App, caller: &Caller, digest: BlobDigest, bundle: &Bundle) -> Option<Self> {
        let readable = bundle.standing.repositories().filter(|name| caller.may_read(name));
        let repositories: Vec<RepositoryName> = readable.cloned().collect();
        (!repositories.is_empty()).then(|| Self {
            name: bundle.entry.name.clone(),
            version: bundle.entry.version.clone(),
            is_loose: bundle.entry.is_loose,
            verdict: bundle.standing.among(|name| caller.may_read(name)),
            is_shown: app.debug_files.is_shown_to(&digest, |name| caller.may_read(name)),
            digest,
            repositories,
        })
    }

    /// The repository to fetch it from: the first that has a seal of it, where there is one.
    pub(crate) fn repository(&self, app: &App) -> Option<&RepositoryName> {
        let is_sealed_in = |name: &&RepositoryName| {
            app.repositories.get(name).is_some_and(|repository| has_seal(&repository, &self.digest))
        };
        self.repositories.iter().find(is_sealed_in).or(self.repositories.first())
    }

    /// `NAME@VERSION`; of a loose file its name.
    pub(crate) fn title(&self) -> String {
        if self.version.is_empty() { self.name.clone() } else { format!("{}@{}", self.name, self.version) }
    }
}

/// A part of a version: numbers go by their value, and before words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Word(String),
    Number(u64),
}

/// A version by which 1.10 comes after 1.9.
fn natural(version: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = version;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
        parts.push(match part.parse() {
            Ok(number) if is_digit => Part::Number(number),
            _ => Part::Word(part.to_owned()),
        });
        rest = behind;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_by_the_value_of_their_numbers() {
        let mut versions = ["1.10", "1.9", "1.9-rc1", "2", "1.99999999999999999999", "nightly-3", "nightly-20"];
        versions.sort_by_key(|version| natural(version));
        let position = |wanted: &str| versions.iter().position(|version| *version == wanted).unwrap();
        assert!(position("1.9") < position("1.10"));
        assert!(position("1.10") < position("2"));
        assert!(position("nightly-3") < position("nightly-20"));
    }
}
