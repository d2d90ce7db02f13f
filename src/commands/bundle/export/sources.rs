//! Sources in a tree as debuginfod clients ask for them: `buildid/ID/source/PATH`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use symseal_bundle::sources::{SourceEntry, Sources, path};
use symseal_bundle::{Bundle, Digest, FileRole, ModuleEntry};
use symseal_module::DebugId;
use symseal_symx::Table;

use super::tree::{Content, Place};

/// The longest name that file systems take, in bytes.
const NAME_LIMIT: usize = 255;

/// The sources that lie beside a bundle.
pub(super) struct SourceFiles {
    /// By their path in its canonical form; none where two files of it differ, as which of them a module was made from is not recorded.
    by_path: BTreeMap<String, Option<(Rc<Sources>, SourceEntry)>>,
}

impl SourceFiles {
    /// None where the bundle names none; their digest where they do not lie beside it.
    pub(super) fn of(bundle: &Bundle) -> Result<Option<Result<Self, Digest>>> {
        let Some(digest) = bundle.index().sources else { return Ok(None) };
        if !bundle.layout().is_some_and(|layout| layout.has(&digest)) {
            return Ok(Some(Err(digest)));
        }
        let mut by_path = BTreeMap::new();
        for sources in Sources::of(bundle).with_context(|| format!("sources {digest}"))? {
            let sources = Rc::new(sources);
            for file in &sources.table().files {
                let Some(path) = in_tree(&file.path) else { continue };
                let found = by_path.entry(path).or_insert_with(|| Some((Rc::clone(&sources), file.clone())));
                if found.as_ref().is_some_and(|(_, other)| other.sha256 != file.sha256) {
                    *found = None;
                }
            }
        }
        Ok(Some(Ok(Self { by_path })))
    }

    /// Those that the line table of a module names.
    pub(super) fn places(&self, bundle: &Bundle) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for (_, text, module) in bundle.index().modules() {
            let id = text.parse::<DebugId>().ok().filter(|id| id.build_id().is_some());
            let Some(id) = id else { continue };
            for path in named(bundle, module)? {
                let Some(Some((sources, file))) = self.by_path.get(&path) else { continue };
                places.push(Place {
                    path: format!("buildid/{id}/source/{path}"),
                    content: Content::Source(Rc::clone(sources), file.clone()),
                    digest: file.sha256,
                    bytes: file.size,
                    is_optional: false,
                });
            }
        }
        Ok(places)
    }
}

/// Reads sources out of their packs, of which many follow each other.
#[derive(Default)]
pub(super) struct Packs {
    last: Option<((Digest, u32), Vec<u8>)>,
}

impl Packs {
    /// The bytes of a file, compared with its digest.
    pub(super) fn read(&mut self, sources: &Sources, file: &SourceEntry) -> Result<&[u8]> {
        let place = (sources.digest(), file.pack);
        if self.last.as_ref().is_none_or(|(known, _)| *known != place) {
            self.last = Some((place, sources.read_pack(usize::try_from(file.pack)?)?));
        }
        let pack = self.last.as_ref().map(|(_, pack)| pack.as_slice()).unwrap_or_default();
        Ok(file.slice(pack)?)
    }
}

/// The paths in a module's symbol table, as they are in a tree.
fn named(bundle: &Bundle, module: &ModuleEntry) -> Result<BTreeSet<String>> {
    let Some(file) = module.files.iter().find(|file| file.role == FileRole::SymbolTable) else {
        return Ok(BTreeSet::new());
    };
    let at = bundle.file_path(file);
    let bytes = fs::read(&at).with_context(|| at.display().to_string())?;
    let table = Table::open(&bytes).with_context(|| at.display().to_string())?;
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut last = String::new();
    for frame in table.rows().flat_map(|hit| hit.frames().collect::<Vec<_>>()) {
        // Neighbours mostly have the same file.
        if frame.file != last {
            last = frame.file.to_owned();
            names.extend(in_tree(frame.file));
        }
    }
    Ok(names)
}

/// Where a path lies below `source/`: without dots and doubled slashes, as a web server reads what debuginfod clients send; and with the bytes
/// that it has, as the server decodes what they encode. None for what they never ask for, or no file can be called.
fn in_tree(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let is_possible = |part: &&str| part.len() <= NAME_LIMIT && !part.contains('\0');
    (!path::is_windows(name) && !parts.is_empty() && parts.iter().all(is_possible)).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_where_a_web_server_looks_for_what_clients_ask() {
        for (path, expected) in [
            ("/home/ann/app/app.c", Some("home/ann/app/app.c")),
            ("/a b/../c++//x#y%z~é.c", Some("c++/x#y%z~é.c")),
            ("./csu/x.c", Some("csu/x.c")),
            ("/../../etc/passwd", Some("etc/passwd")),
            ("C:\\src\\a.c", None),
            ("/", None),
            ("", None),
            ("/a\0b", None),
        ] {
            assert_eq!(in_tree(path).as_deref(), expected, "{path}");
        }
        assert_eq!(in_tree(&format!("/{}", "x".repeat(NAME_LIMIT + 1))), None);
    }
}
