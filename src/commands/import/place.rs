//! What the path of a file in a symbol store says that the file is.

use std::fmt;

use clap::ValueEnum;

/// How a store is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layout {
    /// `NAME/ID/FILE`, of SymStore and symsrv.
    Symstore,
    /// `FI/NAME/ID/FILE`, the two-tier form, which has an index2.txt.
    Symstore2,
    /// `NAME/ID/NAME.sym`, of Breakpad's tools.
    Breakpad,
    /// `ab/cdef…/debuginfo`, of Sentry's symsorter.
    Unified,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symstore => "symstore",
            Self::Symstore2 => "symstore2",
            Self::Breakpad => "breakpad",
            Self::Unified => "unified",
        })
    }
}

/// What a path says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file of a module.
    File(Placed),
    /// The store's own bookkeeping.
    Administration,
    /// Something that no symbol server of ours has a use for.
    NotTaken(&'static str),
}

/// What the path of a module's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// `app.pdb`; none where the layout has no names.
    pub(super) name: Option<String>,
    /// The id that stands in the path, in lower case.
    pub(super) id: String,
    pub(super) kind: Kind,
}

/// What a file is by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program, a library or a debug file, maybe packed.
    Native,
    /// A symbol file of Breakpad.
    SymbolFile,
    /// `file.ptr`: where the file is.
    Pointer,
}

/// Files that SymStore and symbol servers keep beside the symbols.
const ADMINISTRATION: [&str; 4] = ["pingme.txt", "index2.txt", "refs.ptr", "index.txt"];
/// Folder of SymStore's transactions.
const ADMINISTRATION_FOLDER: &str = "000admin";
/// What the unified layout calls a debug file, and the program or library that it belongs to.
pub(super) const DATABASE: &str = "debuginfo";
pub(super) const IMAGE: &str = "executable";
/// Folders of symsorter's bookkeeping.
const SORTER_FOLDERS: [&str; 2] = ["bundles", "refs"];

impl Layout {
    /// Reads a path below the store's root, `/` between its parts.
    pub(super) fn place(self, path: &str) -> Place {
        let parts: Vec<&str> = path.split('/').collect();
        if is_administration(path) {
            return Place::Administration;
        }
        match self {
            Self::Unified => unified(&parts),
            Self::Symstore2 => two_tiers(&parts),
            Self::Symstore | Self::Breakpad => named(&parts),
        }
    }
}

/// Whether SymStore keeps a file or a folder for itself.
pub(super) fn is_administration(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or(path);
    let last = path.rsplit('/').next().unwrap_or(path);
    first.eq_ignore_ascii_case(ADMINISTRATION_FOLDER)
        || ADMINISTRATION.iter().any(|name| last.eq_ignore_ascii_case(name))
}

fn named(parts: &[&str]) -> Place {
    // Stores of several products lie in folders.
    let [.., name, id, file] = parts else {
        return Place::NotTaken("no path of a symbol store: expected NAME/ID/FILE");
    };
    let kind = if file.eq_ignore_ascii_case("file.ptr") {
        Kind::Pointer
    } else if is_symbol_file(name, file) {
        Kind::SymbolFile
    } else if is_called(name, file) {
        Kind::Native
    } else {
        return Place::NotTaken("its name is not that of its folder: expected NAME/ID/NAME");
    };
    Place::File(Placed { name: Some((*name).to_owned()), id: id.to_lowercase(), kind })
}

fn two_tiers(parts: &[&str]) -> Place {
    let [.., tier, name, _, _] = parts else {
        return Place::NotTaken("no path of a two-tier symbol store: expected FI/NAME/ID/FILE");
    };
    let beginning: String = name.chars().take(2).collect();
    if !tier.eq_ignore_ascii_case(&beginning) {
        return Place::NotTaken("its first folder is not the beginning of its name: expected FI/NAME/ID/FILE");
    }
    named(parts)
}

fn unified(parts: &[&str]) -> Place {
    if parts.iter().any(|part| SORTER_FOLDERS.contains(part)) || parts.last() == Some(&"meta") {
        return Place::Administration;
    }
    let [.., first, rest, kind] = parts else {
        return Place::NotTaken("no path of the unified layout: expected AB/CDEF…/KIND");
    };
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if first.len() != 2 || !is_hex(first) || !is_hex(rest) {
        return Place::NotTaken("no path of the unified layout: expected AB/CDEF…/KIND");
    }
    let kind = match *kind {
        IMAGE | DATABASE => Kind::Native,
        "breakpad" => Kind::SymbolFile,
        "sourcebundle" => return Place::NotTaken("a bundle of sources: publish them with symseal publish --sources"),
        _ => return Place::NotTaken("no executable, debuginfo or breakpad file"),
    };
    Place::File(Placed { name: None, id: format!("{first}{rest}").to_lowercase(), kind })
}

/// `app.sym` for `app.pdb`, else `.sym` behind the name.
fn is_symbol_file(name: &str, file: &str) -> bool {
    let (name, file) = (name.to_lowercase(), file.to_lowercase());
    let stem = name.strip_suffix(".pdb").unwrap_or(&name);
    file.strip_suffix(".sym").is_some_and(|file| file == stem || file == name)
}

/// Packed files have an underscore in the place of their last letter.
fn is_called(name: &str, file: &str) -> bool {
    let (name, file) = (name.to_lowercase(), file.to_lowercase());
    let packed = file.strip_suffix('_');
    let mut letters = name.chars();
    letters.next_back();
    name == file || packed.is_some_and(|packed| packed == letters.as_str() || packed == name)
}

/// The layout of a store, by the paths of some of its files.
pub(super) fn told_by<'p>(paths: impl Iterator<Item = &'p str>) -> Option<Layout> {
    let mut seen = [(Layout::Unified, 0), (Layout::Breakpad, 0), (Layout::Symstore, 0)];
    for path in paths {
        let parts: Vec<&str> = path.split('/').collect();
        if path.eq_ignore_ascii_case("index2.txt") {
            return Some(Layout::Symstore2);
        }
        if is_administration(path) {
            continue;
        }
        let found = match (unified(&parts), named(&parts)) {
            (Place::File(_), _) => Layout::Unified,
            (_, Place::File(Placed { kind: Kind::SymbolFile, .. })) => Layout::Breakpad,
            (_, Place::File(_)) => Layout::Symstore,
            _ => continue,
        };
        if let Some((_, count)) = seen.iter_mut().find(|(layout, _)| *layout == found) {
            *count += 1;
        }
    }
    seen.into_iter().filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count).map(|(layout, _)| layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: Option<&str>, id: &str, kind: Kind) -> Place {
        Place::File(Placed { name: name.map(str::to_owned), id: id.to_owned(), kind })
    }

    #[test]
    fn each_layout_has_its_paths() {
        let id = "D6FEA1B2C3D4E5F60718293A4B5C6D7E1";
        let low = id.to_lowercase();
        for (layout, path, expected) in [
            (Layout::Symstore, format!("App.pdb/{id}/App.pd_"), file(Some("App.pdb"), &low, Kind::Native)),
            (Layout::Symstore, format!("app.pdb/{id}/file.ptr"), file(Some("app.pdb"), &low, Kind::Pointer)),
            (Layout::Symstore2, format!("ap/app.pdb/{id}/APP.PDB"), file(Some("app.pdb"), &low, Kind::Native)),
            (Layout::Breakpad, format!("app.pdb/{id}/app.sym"), file(Some("app.pdb"), &low, Kind::SymbolFile)),
            (
                Layout::Breakpad,
                format!("x/libapp.so/{id}/libapp.so.sym"),
                file(Some("libapp.so"), &low, Kind::SymbolFile),
            ),
            (Layout::Unified, "d6/fea1b2/debuginfo".into(), file(None, "d6fea1b2", Kind::Native)),
            (Layout::Unified, "p/d6/fea1b2/breakpad".into(), file(None, "d6fea1b2", Kind::SymbolFile)),
            (Layout::Symstore, "000Admin/history.txt".into(), Place::Administration),
            (Layout::Symstore2, "index2.txt".into(), Place::Administration),
            (Layout::Unified, "d6/fea1b2/meta".into(), Place::Administration),
            (Layout::Unified, "bundles/x".into(), Place::Administration),
        ] {
            assert_eq!(layout.place(&path), expected, "{path}");
        }
        for (layout, path) in [
            (Layout::Symstore, "app.pdb/D6FE/other.pdb"),
            (Layout::Symstore, "app.pdb"),
            (Layout::Symstore2, "xy/app.pdb/D6FE/app.pdb"),
            (Layout::Unified, "d6/fea1b2/sourcebundle"),
            (Layout::Unified, "app.pdb/D6FE/app.pdb"),
        ] {
            assert!(matches!(layout.place(path), Place::NotTaken(_)), "{path}");
        }
    }

    #[test]
    fn a_layout_is_told_by_its_paths() {
        let told = |paths: &[&str]| told_by(paths.iter().copied());
        assert_eq!(told(&["app.pdb/D6FE1/app.pd_", "000Admin/server.txt"]), Some(Layout::Symstore));
        assert_eq!(told(&["index2.txt", "ap/app.pdb/D6FE1/app.pdb"]), Some(Layout::Symstore2));
        assert_eq!(told(&["app.pdb/D6FE1/app.sym"]), Some(Layout::Breakpad));
        assert_eq!(told(&["d6/fea1b2/debuginfo", "d6/fea1b2/meta"]), Some(Layout::Unified));
        assert_eq!(told(&["readme.txt", "a/b"]), None);
    }
}
