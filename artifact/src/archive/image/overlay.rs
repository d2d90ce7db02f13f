//! Layers upon one another: which of their files the image has in the end (OCI image-spec, "Image Layer Filesystem
//! Changeset").

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Bound;

use crate::archive::error::{Halt, LimitKind};
use crate::archive::limits::Account;
use crate::archive::member::normalised;
use crate::archive::tar::{Item, TarStream};

/// What hides a file or folder of the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// What hides everything of the layers below in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// What aufs once left in layers, without a meaning for anyone else.
const AUFS: &[u8] = b".wh..wh.";

/// Whether a file of a layer is there to hide one of the layers beneath.
pub(in crate::archive) fn is_whiteout(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name == OPAQUE || name.starts_with(WHITEOUT) && !name.starts_with(AUFS)
}

/// Memory that one entry takes beside its path; an estimate for the limit.
const ENTRY_BYTES: u64 = 96;

/// What one layer does.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Paths that are hidden, and folders whose insides are.
    whiteouts: Vec<Vec<u8>>,
    opaque: Vec<Vec<u8>>,
    entries: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    /// The tar's entry.
    number: u64,
    path: Vec<u8>,
    kind: ChangeKind,
}

#[derive(Debug)]
enum ChangeKind {
    File,
    /// A further name of a file.
    HardLink(Vec<u8>),
    Folder,
    /// A symbolic link or a device: what was there is gone.
    Other,
}

/// Names that are held in memory, in bytes.
#[derive(Debug, Default)]
pub(super) struct Held(u64);

impl Held {
    pub(super) fn add(&mut self, account: &Account<'_>, archive: &str, bytes: usize) -> Result<(), Halt> {
        self.0 = self.0.saturating_add(bytes as u64).saturating_add(ENTRY_BYTES);
        Ok(account.within(archive, LimitKind::HeaderBytes, account.limits.header_bytes, self.0)?)
    }
}

impl Changes {
    /// Reads the headers of a layer.
    pub(super) fn read(
        input: &mut dyn Read,
        archive: &str,
        account: &Account<'_>,
        held: &mut Held,
    ) -> Result<Self, Halt> {
        let mut changes = Self::default();
        let mut stream = TarStream::new(input, archive, account);
        let mut number = 0_u64;
        while let Some(entry) = stream.next()? {
            let path = normalised(&entry.path);
            account.member(archive, &crate::escaped(&path), entry.path.len())?;
            let target = if let Item::HardLink { target } = &entry.item { target.len() } else { 0 };
            held.add(account, archive, path.len().saturating_add(target))?;
            changes.add(path, entry.item, number);
            number = number.saturating_add(1);
        }
        Ok(changes)
    }

    /// Whether the layer's entry of that number has that path.
    pub(super) fn is_path_of(&self, number: u64, path: &[u8]) -> bool {
        let at = self.entries.binary_search_by_key(&number, |change| change.number);
        at.ok().and_then(|at| self.entries.get(at)).is_some_and(|change| change.path == path)
    }

    fn add(&mut self, path: Vec<u8>, item: Item, number: u64) {
        let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at.saturating_add(1));
        let (folder, name) = path.split_at_checked(name_at).unwrap_or_default();
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        if name == OPAQUE {
            self.opaque.push(folder.to_vec());
        } else if name.starts_with(AUFS) {
        } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let separator: &[u8] = if folder.is_empty() { b"" } else { b"/" };
            self.whiteouts.push([folder, separator, hidden].concat());
        } else if !path.is_empty() {
            let kind = match item {
                Item::File => ChangeKind::File,
                Item::HardLink { target } => ChangeKind::HardLink(normalised(&target)),
                Item::Folder => ChangeKind::Folder,
                Item::SymbolicLink { .. } | Item::Special => ChangeKind::Other,
            };
            self.entries.push(Change { number, path, kind });
        }
    }
}

/// The files of an image, while its layers are laid upon one another.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// Where each path's bytes are: the layer's number and the entry's.
    files: BTreeMap<Vec<u8>, (usize, u64)>,
    /// Hard links whose file is nowhere, and what they were to be links to.
    lost: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Overlay {
    pub(super) fn lay(&mut self, layer: usize, changes: &Changes) {
        // What a layer links to it still had when it was made, also where it then hides that name.
        let mut below = Self::default();
        for target in changes.entries.iter().filter_map(|change| match &change.kind {
            ChangeKind::HardLink(target) => Some(target),
            _ => None,
        }) {
            below.files.extend(self.files.get(target).map(|file| (target.clone(), *file)));
        }
        // They hide what is below, never what the layer itself brings, wherever they stand in it.
        for path in &changes.whiteouts {
            self.remove(path);
            self.remove_inside(path);
        }
        changes.opaque.iter().for_each(|folder| self.remove_inside(folder));
        for Change { number, path, kind } in &changes.entries {
            let file = match kind {
                ChangeKind::File => Some((layer, *number)),
                ChangeKind::HardLink(target) => self.files.get(target).or_else(|| below.files.get(target)).copied(),
                ChangeKind::Folder | ChangeKind::Other => None,
            };
            for files in [&mut *self, &mut below] {
                files.remove(path);
                if !matches!(kind, ChangeKind::Folder) {
                    files.remove_inside(path);
                }
            }
            match (file, kind) {
                (Some(file), _) => drop(self.files.insert(path.clone(), file)),
                (None, ChangeKind::HardLink(target)) => drop(self.lost.insert(path.clone(), target.clone())),
                (None, _) => {}
            }
        }
    }

    /// The image's files: path, layer, entry; in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = (&[u8], usize, u64)> {
        self.files.iter().map(|(path, (layer, number))| (path.as_slice(), *layer, *number))
    }

    /// The image's hard links whose file is nowhere: path and target, in the order of their paths.
    pub(super) fn lost(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lost.iter().map(|(path, target)| (path.as_slice(), target.as_slice()))
    }

    fn remove(&mut self, path: &[u8]) {
        self.files.remove(path);
        self.lost.remove(path);
    }

    fn remove_inside(&mut self, folder: &[u8]) {
        if folder.is_empty() {
            self.files.clear();
            self.lost.clear();
            return;
        }
        let start = [folder, b"/"].concat();
        // The byte behind `/`.
        let end = [folder, b"0"].concat();
        let range = (Bound::Included(start), Bound::Excluded(end));
        remove_range(&mut self.files, &range);
        remove_range(&mut self.lost, &range);
    }
}

fn remove_range<T>(map: &mut BTreeMap<Vec<u8>, T>, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) {
    let inside: Vec<Vec<u8>> = map.range(range.clone()).map(|(path, _)| path.clone()).collect();
    for path in inside {
        map.remove(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(entries: &[(&str, char)]) -> Changes {
        let mut changes = Changes::default();
        for (number, (path, kind)) in entries.iter().enumerate() {
            let (path, target) = path.split_once(" -> ").unwrap_or((path, ""));
            let item = match kind {
                'f' => Item::File,
                'd' => Item::Folder,
                'h' => Item::HardLink { target: target.as_bytes().to_vec() },
                _ => Item::SymbolicLink { target: Vec::new() },
            };
            changes.add(normalised(path.as_bytes()), item, number as u64);
        }
        changes
    }

    fn check(layers: &[&[(&str, char)]], expected: &[(&str, usize, u64)]) {
        let mut overlay = Overlay::default();
        for (number, entries) in layers.iter().enumerate() {
            overlay.lay(number, &layer(entries));
        }
        let files: Vec<_> = overlay
            .files()
            .map(|(path, layer, number)| (String::from_utf8_lossy(path).into_owned(), layer, number))
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(path, layer, number)| ((*path).to_owned(), *layer, *number)).collect();
        assert_eq!(files, expected, "{layers:?}");
    }

    #[test]
    fn a_whiteout_hides_a_file_or_a_folder_below_and_nothing_of_its_own_layer() {
        let below: &[(&str, char)] = &[("a/b", 'f'), ("a/c", 'f'), ("a.d", 'f'), ("ab", 'f')];
        check(&[below, &[("a/.wh.b", 'f')]], &[("a.d", 0, 2), ("a/c", 0, 1), ("ab", 0, 3)]);
        check(&[below, &[("./.wh.a", 'f')]], &[("a.d", 0, 2), ("ab", 0, 3)]);
        check(
            &[below, &[("a/b", 'f'), ("a/.wh.b", 'f'), (".wh.ab", 'f')]],
            &[("a.d", 0, 2), ("a/b", 1, 0), ("a/c", 0, 1)],
        );
    }

    #[test]
    fn an_opaque_folder_shows_only_what_its_own_layer_has_wherever_the_mark_stands() {
        let below: &[(&str, char)] = &[("a/b", 'f'), ("a/c/d", 'f'), ("x", 'f')];
        check(&[below, &[("a/new", 'f'), ("a/.wh..wh..opq", 'f')]], &[("a/new", 1, 0), ("x", 0, 2)]);
        check(&[below, &[(".wh..wh..opq", 'f'), ("y", 'f')]], &[("y", 1, 1)]);
        check(
            &[below, &[(".wh..wh.plnk", 'd'), ("a/.wh..wh.aufs", 'f')]],
            &[("a/b", 0, 0), ("a/c/d", 0, 1), ("x", 0, 2)],
        );
    }

    #[test]
    fn a_file_takes_the_place_of_a_folder_and_a_folder_that_of_a_file() {
        check(&[&[("a/b", 'f'), ("c", 'f')], &[("a", 'f'), ("c", 'd'), ("c/d", 'f')]], &[("a", 1, 0), ("c/d", 1, 2)]);
        check(&[&[("a/b", 'f'), ("c", 'f')], &[("a", 's'), ("c", 's')]], &[]);
        check(&[&[("a/b", 'f')], &[("a", 'd')]], &[("a/b", 0, 0)]);
    }

    #[test]
    fn a_hard_link_outlives_the_name_that_it_was_made_from() {
        check(&[&[("a", 'f'), ("b -> a", 'h')], &[(".wh.a", 'f')]], &[("b", 0, 0)]);
        check(&[&[("a", 'f')], &[("b -> ./a", 'h'), ("c -> gone", 'h')]], &[("a", 0, 0), ("b", 0, 0)]);
    }

    #[test]
    fn a_hard_link_keeps_its_file_when_its_own_layer_hides_the_name() {
        let below: &[(&str, char)] = &[("a", 'f'), ("d/x", 'f')];
        for layer in [[("b -> a", 'h'), (".wh.a", 'f')], [(".wh.a", 'f'), ("b -> a", 'h')]] {
            check(&[below, &layer], &[("b", 0, 0), ("d/x", 0, 1)]);
        }
        let chain: &[(&str, char)] = &[("b2 -> b", 'h'), (".wh.b", 'f'), (".wh.a", 'f')];
        check(&[below, &[("b -> a", 'h')], chain], &[("b2", 0, 0), ("d/x", 0, 1)]);
        check(&[below, &[("y -> d/x", 'h'), ("d/.wh..wh..opq", 'f')]], &[("a", 0, 0), ("y", 0, 1)]);
        // A name that the layer gave to something else is that one's.
        check(&[below, &[("a", 'f'), ("b -> a", 'h'), (".wh.a", 'f')]], &[("a", 1, 0), ("b", 1, 0), ("d/x", 0, 1)]);
        check(&[below, &[("a", 's'), ("b -> a", 'h')]], &[("d/x", 0, 1)]);
    }

    #[test]
    fn a_hard_link_to_nothing_is_told_unless_the_image_has_no_such_name_in_the_end() {
        let mut overlay = Overlay::default();
        overlay.lay(0, &layer(&[("b -> gone", 'h'), ("c -> gone", 'h'), ("d/e -> gone", 'h'), ("f -> gone", 'h')]));
        overlay.lay(1, &layer(&[("c", 'f'), (".wh.d", 'f')]));
        let lost: Vec<_> = overlay.lost().collect();
        assert_eq!(lost, [(&b"b"[..], &b"gone"[..]), (b"f", b"gone")]);
    }
}
