//! What people look for: modules by their ids or names.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

use symseal_bundle::DebugInfo;
use symseal_module::DebugId;

use super::{DebugFiles, FileKind, Key, Scope};
use crate::blobs::BlobDigest;

/// The fewest digits by which an id is looked for by its beginning.
const SHORTEST_PREFIX: usize = 4;

/// What somebody typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// In lower case.
    text: String,
    /// The beginning of an id: lower-case hex digits without dashes.
    id: Option<String>,
}

/// A module of a bundle, or a loose file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundModule {
    /// Its id.
    pub(crate) id: String,
    /// Its file name.
    pub(crate) name: String,
    /// How much debug information there is.
    pub(crate) debug_info: DebugInfo,
    /// What can be fetched by the id.
    pub(crate) kinds: Vec<FileKind>,
    /// The bundle, or the loose file.
    pub(crate) bundle: BlobDigest,
}

impl Pattern {
    /// Of a text; `None` of one that holds nothing.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        let id = digits(&text);
        let is_id = id.len() >= SHORTEST_PREFIX && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (!text.is_empty()).then(|| Self { id: is_id.then_some(id), text })
    }

    /// Whether a name has the text in it.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.text)
    }

    /// Whether an id begins with it.
    fn begins(&self, key: &Key) -> bool {
        let (Some(wanted), Key::Id(id)) = (&self.id, key) else { return false };
        digits(&id.to_string()).starts_with(wanted)
    }
}

/// An id without what stands around and between its digits, in lower case.
fn digits(id: &str) -> String {
    let id = id.strip_prefix("uuid:").unwrap_or(id);
    id.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

impl DebugFiles {
    /// The modules in a scope that a pattern means, in the order of names, at most `limit`; whether there are more. Reads every id. Blocks.
    pub(crate) fn search(&self, scope: &Scope, pattern: &Pattern, limit: usize) -> (Vec<FoundModule>, bool) {
        let shown = self.shown.load();
        let mut found: BTreeMap<(String, String, BlobDigest), FoundModule> = BTreeMap::new();
        'layers: for layer in &shown.layers {
            for (key, candidates) in
                layer.shown_modules(scope, &shown.taken_down, |key, name| pattern.begins(key) || pattern.is_in(name))
            {
                for candidate in candidates {
                    let id = key.to_string();
                    let at = (candidate.name.clone(), id.clone(), candidate.bundle.clone());
                    let module = found.entry(at).or_insert_with(|| FoundModule {
                        id,
                        name: candidate.name,
                        debug_info: candidate.debug_info,
                        kinds: Vec::new(),
                        bundle: candidate.bundle,
                    });
                    if !module.kinds.contains(&candidate.kind) {
                        module.kinds.push(candidate.kind);
                    }
                }
                if found.len() > limit {
                    break 'layers;
                }
            }
        }
        let is_cut = found.len() > limit;
        (found.into_values().take(limit).collect(), is_cut)
    }

    /// Loose files in a scope that have a build-id and whose name is wanted. None where there are too many, or time is up. Reads every id. Blocks.
    pub(crate) fn loose_named(
        &self,
        scope: &Scope,
        wanted: &dyn Fn(&str) -> bool,
        limit: usize,
        deadline: Instant,
    ) -> Option<Vec<(DebugId, FileKind, String)>> {
        let (shown, is_late) = (self.shown.load(), Cell::new(false));
        let mut files = Vec::new();
        for layer in &shown.layers {
            let rows = layer.shown_modules(scope, &shown.taken_down, |_, name| {
                is_late.set(is_late.get() || Instant::now() > deadline);
                !is_late.get() && wanted(name)
            });
            for (key, candidates) in rows {
                let Key::Id(id @ DebugId::BuildId(_)) = key else { continue };
                let are_files = |kind| matches!(kind, FileKind::Executable | FileKind::Debuginfo);
                for candidate in candidates.into_iter().filter(|candidate| are_files(candidate.kind)) {
                    if self.is_loose(&candidate.bundle) {
                        files.push((id.clone(), candidate.kind, candidate.name));
                    }
                }
                if files.len() > limit {
                    return None;
                }
            }
        }
        (!is_late.get()).then_some(files)
    }

    fn is_loose(&self, digest: &BlobDigest) -> bool {
        self.known().bundles.get(digest).is_some_and(|bundle| bundle.entry.is_loose)
    }

    /// Whether a file is shown for a key to anybody.
    pub(crate) fn has(&self, key: &Key) -> bool {
        let key = key.to_bytes();
        let shown = self.shown.load();
        shown.layers.iter().any(|layer| layer.shows(&key, &shown.taken_down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_its_beginning_in_every_way_of_writing_it() {
        let key = Key::Id("5F3A1B2C1F004D2E8A6B010203040506-1".parse().unwrap());
        for text in ["5f3a", " 5F3A1B2C1F00 ", "5f3a1b2c-1f00-4d2e", "5F3A1B2C1F004D2E8A6B0102030405061"] {
            assert!(Pattern::new(text).unwrap().begins(&key), "{text}");
        }
        for text in ["5f3", "5f3b", "app", "5f3a1b2c1f004d2e8a6b01020304050612"] {
            assert!(!Pattern::new(text).unwrap().begins(&key), "{text}");
        }
        assert_eq!(Pattern::new("  "), None);
    }

    #[test]
    fn the_case_of_a_name_does_not_count() {
        assert!(Pattern::new("LibC").unwrap().is_in("libc.so.6"));
        assert!(!Pattern::new("libd").unwrap().is_in("libc.so.6"));
    }
}
