//! An index of ids, and beside it which of its bundles are shown.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use memmap2::Mmap;
use symseal_bundle::DebugInfo;

use super::standing::{Rank, Visible};
use super::{Candidate, FileKind, Key, NewBundle, Scope, TakenDown};
use crate::blobs::BlobDigest;
use crate::ids::{self, BundleEntry, Ids, IdsBuilder, NewCandidate, TooLarge};

/// A layer stays by itself while the next smaller one has less than this part of its candidates. Every candidate is then
/// moved a number of times that grows with the logarithm of all.
const FALL: u64 = 2;

/// The bytes of an index.
#[derive(Debug)]
pub(super) enum Bytes {
    /// In memory.
    Own(Vec<u8>),
    /// A map of the index file.
    Map(Mmap),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Map(map) => map,
        }
    }
}

/// What the rows of a bundle are made by: raise it with whatever `ingest` gives for a bundle that it did not give before, and
/// every index file is made again.
pub(super) const CONTENT: u32 = 3;

/// An index and the standings of its bundles, by their numbers.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    ids: Arc<Ids<Bytes>>,
    standings: Arc<[Option<Visible>]>,
}

/// A file that may answer.
#[derive(Debug)]
pub(super) struct Found<'l> {
    candidate: ids::Candidate<'l>,
    rank: Rank,
    layer: &'l Layer,
}

impl Layer {
    pub(super) fn new(ids: Ids<Bytes>, standing: impl Fn(&str) -> Option<Visible>) -> Self {
        Self { ids: Arc::new(ids), standings: Arc::default() }.with_standings(standing)
    }

    /// With what is known of each of its bundles.
    pub(super) fn with_standings(self, standing: impl Fn(&str) -> Option<Visible>) -> Self {
        let of = |number: u32| standing(&self.ids.bundle(number)?.digest);
        let standings = (0..self.ids.bundle_count()).map(of).collect();
        Self { standings, ..self }
    }

    /// With what is known now of the bundles that changed.
    pub(super) fn refreshed(&self, changed: &BTreeSet<String>, standing: impl Fn(&str) -> Option<Visible>) -> Self {
        let mut standings = self.standings.to_vec();
        for (number, slot) in (0..).zip(&mut standings) {
            if let Some(bundle) = self.ids.bundle(number).filter(|bundle| changed.contains(&bundle.digest)) {
                *slot = standing(&bundle.digest);
            }
        }
        Self { ids: Arc::clone(&self.ids), standings: standings.into() }
    }

    /// The files of a kind for a key that are shown in a scope.
    pub(super) fn find<'l>(
        &'l self,
        key: &[u8],
        kind: u8,
        scope: &'l Scope,
        taken_down: &'l TakenDown,
    ) -> impl Iterator<Item = Found<'l>> + use<'l> {
        let is_given =
            move |candidate: &ids::Candidate<'_>| candidate.kind == kind && !taken_down.contains(candidate.sha256);
        self.ids.find(key).filter(is_given).filter_map(move |candidate| {
            let rank = self.visible(candidate.bundle)?.rank_in(scope)?;
            Some(Found { candidate, rank, layer: self })
        })
    }

    /// The files in a scope of the debug ids that `wanted` lets pass by their keys and names. Reads every id.
    pub(super) fn shown_modules<'l>(
        &'l self,
        scope: &'l Scope,
        taken_down: &'l TakenDown,
        wanted: impl Fn(&Key, &str) -> bool + 'l,
    ) -> impl Iterator<Item = (Key, Vec<Candidate>)> + 'l {
        let is_shown = |bundle: u32| self.visible(bundle).is_some_and(|visible| visible.rank_in(scope).is_some());
        self.ids.keys().filter(|key| Key::is_id(key.bytes)).filter_map(move |row| {
            let key = Key::from_bytes(row.bytes)?;
            let candidates = row.candidates().filter(|found| {
                wanted(&key, found.name) && is_shown(found.bundle) && !taken_down.contains(found.sha256)
            });
            let files: Vec<Candidate> = candidates.filter_map(|found| self.candidate(&found)).collect();
            (!files.is_empty()).then_some((key, files))
        })
    }

    /// Every file of a kind for a key, shown or not.
    pub(super) fn find_all(&self, key: &[u8], kind: u8) -> impl Iterator<Item = Candidate> {
        self.ids.find(key).filter(move |found| found.kind == kind).filter_map(|found| self.candidate(&found))
    }

    /// Whether there is a file of a kind for a key with other bytes.
    pub(super) fn has_other(&self, key: &[u8], kind: u8, sha256: &[u8]) -> bool {
        self.ids.find(key).any(|found| found.kind == kind && found.sha256 != sha256)
    }

    /// The bytes of the debug ids for which a file is shown.
    pub(super) fn ids<'l>(&'l self, taken_down: &'l TakenDown) -> impl Iterator<Item = &'l [u8]> {
        let shown = |key: &ids::Key<'_, Bytes>| {
            Key::is_id(key.bytes) && key.candidates().any(|candidate| self.is_given(&candidate, taken_down))
        };
        self.ids.keys().filter(shown).map(|key| key.bytes)
    }

    /// Whether a file is shown for a key. Those who ask for a debug id want more than names.
    pub(super) fn shows(&self, key: &[u8], taken_down: &TakenDown) -> bool {
        let names_alone = kind_code(FileKind::SymbolFile);
        let answers = |found: &ids::Candidate<'_>| found.kind != names_alone || !Key::is_id(key);
        self.ids.find(key).any(|candidate| answers(&candidate) && self.is_given(&candidate, taken_down))
    }

    fn is_given(&self, candidate: &ids::Candidate<'_>, taken_down: &TakenDown) -> bool {
        self.visible(candidate.bundle).is_some() && !taken_down.contains(candidate.sha256)
    }

    /// The files of a bundle. Reads every key.
    pub(super) fn files_of(&self, digest: &str) -> Vec<(Key, Candidate)> {
        let is_wanted = |number: u32| self.ids.bundle(number).is_some_and(|bundle| bundle.digest == digest);
        let wanted: Vec<u32> = (0..self.ids.bundle_count()).filter(|number| is_wanted(*number)).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut files = Vec::new();
        for key in self.ids.keys() {
            for candidate in key.candidates().filter(|candidate| wanted.contains(&candidate.bundle)) {
                files.extend(Key::from_bytes(key.bytes).zip(self.candidate(&candidate)));
            }
        }
        files
    }

    /// Whether the two are over one index.
    pub(super) fn has_ids_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ids, &other.ids)
    }

    /// The index's bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.ids.as_bytes()
    }

    /// The bundles in it, by number.
    pub(super) fn bundles(&self) -> impl Iterator<Item = BundleEntry> {
        (0..self.ids.bundle_count()).filter_map(|number| self.ids.bundle(number))
    }

    fn visible(&self, bundle: u32) -> Option<&Visible> {
        self.standings.get(bundle as usize)?.as_ref()
    }

    fn candidate(&self, found: &ids::Candidate<'_>) -> Option<Candidate> {
        Some(Candidate {
            kind: kind(found.kind)?,
            debug_info: debug_info(found.debug_info),
            lacks_sections: found.debug_info == LACKS_SECTIONS,
            size: found.size,
            digest: BlobDigest::from_sha256(*found.sha256),
            name: found.name.to_owned(),
            file: found.file.to_owned(),
            bundle: self.ids.bundle(found.bundle)?.digest.parse().ok()?,
        })
    }
}

impl Found<'_> {
    /// The better one is the lesser.
    pub(super) fn preferred(&self, other: &Self) -> Ordering {
        let content = |found: &Self| {
            let candidate = &found.candidate;
            (found.rank, candidate.debug_info, std::cmp::Reverse(candidate.size))
        };
        let bundle = |found: &Self| found.layer.ids.bundle(found.candidate.bundle).map(|bundle| bundle.digest);
        content(self)
            .cmp(&content(other))
            .then_with(|| self.candidate.sha256.cmp(other.candidate.sha256))
            .then_with(|| bundle(self).cmp(&bundle(other)))
    }

    /// Its own name.
    pub(super) fn file(&self) -> &str {
        self.candidate.file
    }

    /// The name of its module, or of a file that was uploaded by itself.
    pub(super) fn name(&self) -> &str {
        self.candidate.name
    }

    pub(super) fn to_candidate(&self) -> Option<Candidate> {
        self.layer.candidate(&self.candidate)
    }
}

/// Files of bundles on their way into an index.
pub(super) struct NewFiles(IdsBuilder);

impl NewFiles {
    pub(super) fn new() -> Self {
        // Without entropy the seed is zero: the order of buckets is then known, and nothing else changes.
        Self(IdsBuilder::new(getrandom::u64().unwrap_or_default(), CONTENT))
    }

    pub(super) fn add(&mut self, new: &NewBundle) -> Result<(), TooLarge> {
        let bundle = self.0.bundle(&new.entry)?;
        for (key, candidate) in &new.files {
            // Files of bundles are named by sha256.
            let Ok(sha256) = candidate.digest.bytes().try_into() else { continue };
            let new = NewCandidate {
                bundle,
                kind: kind_code(candidate.kind),
                debug_info: content_code(candidate.debug_info, candidate.lacks_sections),
                sha256,
                size: candidate.size,
                name: &candidate.name,
                file: &candidate.file,
            };
            self.0.add(&key.to_bytes(), &new)?;
        }
        Ok(())
    }

    /// Takes over what is known of another layer.
    fn take(&mut self, layer: &Layer, is_known: impl Fn(&str) -> bool) -> Result<(), TooLarge> {
        let mut numbers = Vec::new();
        for entry in layer.bundles() {
            numbers.push(if is_known(&entry.digest) { Some(self.0.bundle(&entry)?) } else { None });
        }
        for key in layer.ids.keys() {
            for found in key.candidates() {
                let Some(bundle) = numbers.get(found.bundle as usize).copied().flatten() else { continue };
                let ids::Candidate { kind, debug_info, sha256, size, name, file, .. } = found;
                let new = NewCandidate { bundle, kind, debug_info, sha256: *sha256, size, name, file };
                self.0.add(key.bytes, &new)?;
            }
        }
        Ok(())
    }

    pub(super) fn build(self) -> Result<Layer, TooLarge> {
        let bytes = self.0.build()?;
        // What was just written is read again like any other index.
        let ids = Ids::open(Bytes::Own(bytes)).map_err(|_| TooLarge { what: "bytes" })?;
        Ok(Layer::new(ids, |_| None))
    }
}

/// Joins layers until each has at least twice the candidates of the next one.
pub(super) fn settle(
    layers: &mut Vec<Layer>,
    is_known: impl Fn(&str) -> bool,
    standing: impl Fn(&str) -> Option<Visible>,
) -> Result<(), TooLarge> {
    while let [.., large, small] = layers.as_slice() {
        let (many, few) = (u64::from(large.ids.candidate_count()), u64::from(small.ids.candidate_count()));
        if few.saturating_mul(FALL) < many {
            return Ok(());
        }
        let joined = join(&[large, small], &is_known)?.with_standings(&standing);
        layers.truncate(layers.len().saturating_sub(2));
        layers.push(joined);
    }
    Ok(())
}

/// One layer of several, with the bundles that are known.
pub(super) fn join(layers: &[&Layer], is_known: impl Fn(&str) -> bool) -> Result<Layer, TooLarge> {
    let mut files = NewFiles::new();
    layers.iter().try_for_each(|layer| files.take(layer, &is_known))?;
    files.build()
}

/// The number of a kind in the index of ids.
pub(crate) fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Debuginfo => 0,
        FileKind::Executable => 1,
        FileKind::SymbolTable => 2,
        FileKind::SymbolFile => 3,
    }
}

fn kind(code: u8) -> Option<FileKind> {
    [FileKind::Debuginfo, FileKind::Executable, FileKind::SymbolTable, FileKind::SymbolFile]
        .into_iter()
        .find(|kind| kind_code(*kind) == code)
}

/// What is worse than no debug information.
const LACKS_SECTIONS: u8 = 4;

/// The number of a kind of debug information in the index of ids: less is better. Without section headers there is none.
pub(crate) fn content_code(debug_info: DebugInfo, lacks_sections: bool) -> u8 {
    match debug_info {
        DebugInfo::None if lacks_sections => LACKS_SECTIONS,
        DebugInfo::Full => 0,
        DebugInfo::LineTables => 1,
        DebugInfo::Symbols => 2,
        DebugInfo::None => 3,
    }
}

fn debug_info(code: u8) -> DebugInfo {
    match code {
        0 => DebugInfo::Full,
        1 => DebugInfo::LineTables,
        2 => DebugInfo::Symbols,
        _ => DebugInfo::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_seed_of_its_own() {
        // `docs/formats/ids_index.md`: eight bytes after magic and length.
        let seed = || NewFiles::new().0.build().unwrap().get(16..24).unwrap().to_vec();
        assert_ne!(seed(), seed());
    }
}
