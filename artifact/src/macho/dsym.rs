//! Which files belong to one dSYM bundle: a folder whose name ends with `.dSYM`, as dsymutil makes it.
//!
//! | place in the bundle | what |
//! | --- | --- |
//! | `Contents/Resources/DWARF/*` | Mach-O files with the debug information, mostly one, named like the binary |
//! | `Contents/Info.plist` | name and version of the binary |
//! | `Contents/Resources/Relocations/*/*.yml` | addresses to relocate, for a later run of dsymutil |
//! | `Contents/Resources/*.plist`, `Remarks/`, `Python/`, `Swift/` | UUID maps, optimisation remarks, scripts, interfaces |

use std::collections::BTreeMap;

/// What a file of a dSYM bundle is, by its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DsymRole {
    /// A Mach-O file with the debug information.
    Dwarf,
    /// The bundle's `Info.plist`.
    InfoPlist,
    /// Addresses for a later run of dsymutil.
    Relocations,
    /// Anything else, scripts for a debugger included.
    Other,
}

/// A file's place in a dSYM bundle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DsymPlace<'p> {
    /// The bundle's folder, with everything before it: `build/App.dSYM`.
    pub root: &'p str,
    /// The folder's own name: `App.dSYM`.
    pub name: &'p str,
    /// The path in the bundle: `Contents/Info.plist`.
    pub path: &'p str,
    /// What the file is.
    pub role: DsymRole,
}

/// The place of a file in the innermost dSYM bundle that its path leads through; none for a file outside of any. Parts
/// of `path` are separated by `/`. The ending of the folder may be in any case, as file systems on macOS ignore it.
pub fn dsym_place(path: &str) -> Option<DsymPlace<'_>> {
    let mut found = None;
    let mut start = 0;
    // The last part is the file itself, which is no bundle.
    for (at, _) in path.match_indices('/') {
        let name = path.get(start..at).unwrap_or_default();
        if is_bundle(name)
            && let (Some(root), Some(inner)) = (path.get(..at), path.get(at.saturating_add(1)..))
            && !inner.is_empty()
        {
            found = Some(DsymPlace { root, name, path: inner, role: role(inner) });
        }
        start = at.saturating_add(1);
    }
    found
}

/// The dSYM bundles among the files of a directory or archive: for each bundle's root the places of its files, by path.
pub fn dsym_bundles<'p>(paths: impl IntoIterator<Item = &'p str>) -> BTreeMap<&'p str, Vec<DsymPlace<'p>>> {
    let mut bundles: BTreeMap<&str, Vec<DsymPlace<'_>>> = BTreeMap::new();
    for place in paths.into_iter().filter_map(dsym_place) {
        bundles.entry(place.root).or_default().push(place);
    }
    for places in bundles.values_mut() {
        places.sort_unstable();
        places.dedup();
    }
    bundles
}

fn is_bundle(name: &str) -> bool {
    const ENDING: &str = ".dsym";
    let split = name.len().checked_sub(ENDING.len()).filter(|stem| *stem > 0);
    split.and_then(|at| name.get(at..)).is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING))
}

fn role(path: &str) -> DsymRole {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["Contents", "Resources", "DWARF", _] => DsymRole::Dwarf,
        ["Contents", "Info.plist"] => DsymRole::InfoPlist,
        ["Contents", "Resources", "Relocations", .., _] => DsymRole::Relocations,
        _ => DsymRole::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<(&str, &str, &str, DsymRole)>) {
        let found = dsym_place(path).map(|place| (place.root, place.name, place.path, place.role));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn a_file_has_its_place_and_role_in_its_bundle() {
        let root = "out/App.dSYM";
        for (path, role) in [
            ("Contents/Resources/DWARF/App", DsymRole::Dwarf),
            ("Contents/Info.plist", DsymRole::InfoPlist),
            ("Contents/Resources/Relocations/aarch64/App.yml", DsymRole::Relocations),
            ("Contents/Resources/Python/App.py", DsymRole::Other),
            ("Contents/Resources/DWARF/deep/App", DsymRole::Other),
            ("Contents/Resources/F1E2.plist", DsymRole::Other),
        ] {
            check(&format!("{root}/{path}"), Some((root, "App.dSYM", path, role)));
        }
        check("app.DSYM/x", Some(("app.DSYM", "app.DSYM", "x", DsymRole::Other)));
        let inner = "a.dSYM/Contents/b.dSYM/Contents/Info.plist";
        check(inner, Some(("a.dSYM/Contents/b.dSYM", "b.dSYM", "Contents/Info.plist", DsymRole::InfoPlist)));
    }

    #[test]
    fn other_files_have_none() {
        for path in ["", "/", "App", "App.dSYM", "App.dSYM/", ".dSYM/x", "dir/App.dSYM.zip/x", "größe/x", "ö.dSY/x"]
        {
            check(path, None);
        }
    }

    #[test]
    fn bundles_gather_their_files_whatever_their_order() {
        let paths = ["b/App.dSYM/Contents/Info.plist", "b/App", "a/App.dSYM/Contents/Resources/DWARF/App"];
        let twice = paths.iter().rev().chain(&paths).copied();
        let bundles = dsym_bundles(twice);
        let found: Vec<(&str, Vec<DsymRole>)> =
            bundles.iter().map(|(root, places)| (*root, places.iter().map(|place| place.role).collect())).collect();
        assert_eq!(found, [("a/App.dSYM", vec![DsymRole::Dwarf]), ("b/App.dSYM", vec![DsymRole::InfoPlist])]);
    }
}
