//! The place of each module's files in a bundle, where two modules' files belong at one.

use std::collections::BTreeSet;

use crate::index::{FileEntry, ModuleEntry, SymbolIndex};

use super::fold;

/// Two modules may have files that belong at one place: builds of one library with one time stamp, names that differ in
/// case alone. The first module, by platform and id, has the place; the others' files go below `module/<debug id>/`.
///
/// What was put there before is first taken back: so the places depend on the modules alone, and not on which of them were
/// in one index earlier (`docs/formats/bundle.md`, "Joining").
pub fn keep_apart(index: &mut SymbolIndex) {
    let mut seen = BTreeSet::new();
    let mut keep = |id: &str, module: &mut ModuleEntry| {
        take_back(id, module);
        let mut is_moved = false;
        for file in &mut module.files {
            if !seen.insert(fold(&file.path)) {
                file.path = format!("{}{}", below(id), file.path);
                is_moved = true;
                seen.insert(fold(&file.path));
            }
        }
        if is_moved {
            module.files.sort_by(by_place);
        }
    };
    for map in [&mut index.linux, &mut index.macos, &mut index.windows] {
        map.iter_mut().for_each(|(id, module)| keep(id, module));
    }
}

/// Puts the files of the module `id` where they belong if it is the only one.
pub fn take_back(id: &str, module: &mut ModuleEntry) {
    let below = below(id);
    let mut is_moved = false;
    for file in &mut module.files {
        if let Some(path) = file.path.strip_prefix(&below) {
            file.path = path.to_owned();
            is_moved = true;
        }
    }
    if is_moved {
        module.files.sort_by(by_place);
    }
}

/// Whether a file of the module `id` was put below `module/<debug id>/`.
pub fn is_kept_apart(id: &str, path: &str) -> bool {
    path.starts_with(&below(id))
}

/// The order of a module's files in an index.
fn by_place(a: &FileEntry, b: &FileEntry) -> std::cmp::Ordering {
    (a.role, &a.path).cmp(&(b.role, &b.path))
}

fn below(id: &str) -> String {
    format!("module/{}/", id.replace(':', "-"))
}
