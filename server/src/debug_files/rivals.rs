//! Different bytes for one debug id: who may offer them, and who is told.

use symseal_module::DebugId;

use super::layer::{Layer, kind_code};
use super::{Bundle, Candidate, DebugFiles, FileKind, Key, Known, Scope};
use crate::blobs::BlobDigest;
use crate::repositories::RepositoryName;

/// Who offers files: a bundle that is about to be seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The bundle.
    pub(crate) bundle: &'a BlobDigest,
    /// The release's name; empty for a loose file, which belongs to no release.
    pub(crate) name: &'a str,
    /// The repository that it comes to.
    pub(crate) repository: &'a RepositoryName,
    /// Whether a seal of it holds.
    pub(crate) is_sealed: bool,
    /// Its ids with their files.
    pub(crate) files: &'a [(Key, Candidate)],
}

/// A sealed bundle has other bytes for an id, and belongs to somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecondOwner {
    /// The debug id.
    pub(crate) id: DebugId,
    /// What it is offered as.
    pub(crate) kind: FileKind,
    /// The file that was refused.
    pub(crate) offered: BlobDigest,
    /// The file that is sealed.
    pub(crate) sealed: BlobDigest,
    /// The bundle that has it.
    pub(crate) bundle: BlobDigest,
    /// That bundle's release name.
    pub(crate) name: String,
}

/// Two bundles that are shown offer different bytes for one debug id. Both are kept; one answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contested {
    /// The debug id.
    pub(crate) id: DebugId,
    /// What they are offered as.
    pub(crate) kind: FileKind,
    /// The file that answers.
    pub(crate) answers: Candidate,
    /// One that does not.
    pub(crate) passed_over: Candidate,
}

impl DebugFiles {
    /// The first id for which a claim is a second owner's: a sealed bundle has other bytes for it, no sealed one has these,
    /// as whatever, and none of those that are sealed belongs to the same owner. The same owner is a bundle of the same release name
    /// that is in the same repository, or that is sealed itself. Where sealed bundles have no file of this kind for the id, it is their owner's
    /// to bring it, by whatever name: who has a program without its debug information owns what is said of it. Blocks.
    pub(crate) fn second_owner(&self, claim: &Claim<'_>) -> Option<SecondOwner> {
        let known = self.known();
        let shown = self.shown.load();
        claim.files.iter().find_map(|(key, offered)| {
            let id = contestable(key, offered)?;
            let sealed = |kind| -> Vec<(Candidate, &Bundle)> {
                let others = others(&shown.layers, &known, key, (kind, &offered.digest), claim.bundle);
                others.filter(|(_, bundle)| bundle.standing.is_sealed_somewhere()).collect()
            };
            let of_kind = sealed(offered.kind);
            let is_new = of_kind.is_empty();
            let rivals = if is_new { sealed(the_other(offered.kind)) } else { of_kind };
            let is_own = |(_, bundle): &(Candidate, &Bundle)| {
                is_same_owner(claim, bundle) || is_new && bundle.standing.in_repository(claim.repository).is_some()
            };
            let (other, bundle) = rivals.first()?;
            if rivals.iter().any(is_own) || is_sealed_already(&shown.layers, &known, key, offered, claim.bundle) {
                return None;
            }
            Some(SecondOwner {
                id: id.clone(),
                kind: offered.kind,
                offered: offered.digest.clone(),
                sealed: other.digest.clone(),
                bundle: other.bundle.clone(),
                name: bundle.entry.name.clone(),
            })
        })
    }

    /// The ids for which these files and others that are shown differ, `limit` at most. Blocks.
    pub(crate) fn contested(&self, files: &[(Key, Candidate)], limit: usize) -> Vec<Contested> {
        let contested = files.iter().filter_map(|(key, offered)| {
            let id = contestable(key, offered)?.clone();
            let answers = self.find_in(&Scope::default(), key, offered.kind)?;
            let shown = self.shown.load();
            let known = self.known();
            let is_shown = |bundle: &Bundle| super::standing::of(bundle, &known.required).is_some();
            let mut all = others(&shown.layers, &known, key, (offered.kind, &offered.digest), &offered.bundle)
                .filter(|(other, bundle)| other.digest != offered.digest && is_shown(bundle));
            let (other, _) = all.next()?;
            let passed_over = if answers.digest == offered.digest { other } else { offered.clone() };
            Some(Contested { id, kind: offered.kind, answers, passed_over })
        });
        contested.take(limit).collect()
    }
}

/// The id that an offer is contested for. Other keys lead to the same files, and a table differs with the symseal that made it.
fn contestable<'a>(key: &'a Key, offered: &Candidate) -> Option<&'a DebugId> {
    match (key, offered.kind) {
        (Key::Id(id), FileKind::Debuginfo | FileKind::Executable) => Some(id),
        _ => None,
    }
}

/// Of the two kinds of files that are contested.
fn the_other(kind: FileKind) -> FileKind {
    if kind == FileKind::Debuginfo { FileKind::Executable } else { FileKind::Debuginfo }
}

/// What other bundles offer for a key as a kind of file, where any of it differs from `digest`.
fn others<'a>(
    layers: &'a [Layer],
    known: &'a Known,
    key: &Key,
    (kind, digest): (FileKind, &BlobDigest),
    own: &'a BlobDigest,
) -> impl Iterator<Item = (Candidate, &'a Bundle)> {
    let (key, kind) = (key.to_bytes(), kind_code(kind));
    // Mostly all have the same bytes, as of a library that many releases bring along.
    let sha256 = digest.bytes();
    let differ = layers.iter().any(|layer| layer.has_other(&key, kind, &sha256));
    let all =
        layers.iter().filter(move |_| differ).flat_map(move |layer| layer.find_all(&key, kind).collect::<Vec<_>>());
    all.filter_map(move |candidate| {
        let bundle = known.bundles.get(&candidate.bundle)?;
        (candidate.bundle != *own).then_some((candidate, bundle))
    })
}

/// Whether a sealed bundle has these bytes for a key, as whichever kind: a program with all debug information in it is a debug file, too.
fn is_sealed_already(layers: &[Layer], known: &Known, key: &Key, offered: &Candidate, own: &BlobDigest) -> bool {
    let key = key.to_bytes();
    let kinds = [offered.kind, the_other(offered.kind)].map(kind_code);
    let mut all = kinds.into_iter().flat_map(|kind| layers.iter().map(move |layer| (layer, kind)));
    all.any(|(layer, kind)| {
        let mut same = layer.find_all(&key, kind).filter(|it| it.digest == offered.digest && it.bundle != *own);
        same.any(|it| known.bundles.get(&it.bundle).is_some_and(|bundle| bundle.standing.is_sealed_somewhere()))
    })
}

fn is_same_owner(claim: &Claim<'_>, sealed: &Bundle) -> bool {
    !sealed.entry.is_loose
        && sealed.entry.name == claim.name
        && (claim.is_sealed || sealed.standing.in_repository(claim.repository).is_some())
}
