//! tar: POSIX ustar and pax (IEEE 1003.1-2017, pax), GNU (its manual, "Basic Tar Format"), and what came before.
//!
//! Headers are decoded by the `tar` crate. Its own iteration reads long names and extension records to their end, however
//! large they are, and gives up on some sparse files; so the order of blocks is kept here.

mod extensions;
mod sparse;
mod stream;

use std::io::Read;

use super::error::Halt;
use super::image::{self, Signs};
use super::member::{Inside, Place, is_apple_double};
use super::report::{ArchiveReport, PassedOverReason};
use super::walk::Walk;
pub(super) use stream::{Entry, Item, TarStream};

/// What is said of tars one behind the other. (GNU's manual, "Ignoring Blocks of Zeros")
const GOES_ON: &str =
    "what follows behind the end of its first tar: unpack it (tar -i), or put tars together by tar --concatenate";
/// What is said of a layer that is read alone.
const WHITEOUT: &str =
    "a whiteout of a container image: what it hides in the layers beneath is not hidden, as they are read as tars";
/// What is said of images that cannot be read twice.
const IMAGES: &str = "its container images as such, with their whiteouts: unpack it, and name the image";

/// What is said of a tar in a file of its own that has no end. (POSIX: two blocks of zeros. GNU tar reads one without them and says nothing.)
const NO_END: &str = "it ends behind a member, without the zeros that end a tar, as one that was cut short does: more members may be missing";

/// Visits the files of a tar in a file of its own, and tells where that may have been cut short: what packed it would say so otherwise.
pub(super) fn read_alone(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    if !visit(walk, inside, input)? {
        walk.pass_over(inside.label.clone(), PassedOverReason::Damaged(NO_END.to_owned()));
    }
    Ok(())
}

/// Visits the files of a tar. Where they are images' that could not be read as such, that is told.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    visit(walk, inside, input).map(|_| ())
}

/// The same, and whether the tar had its end.
fn visit(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<bool, Halt> {
    let mut stream = TarStream::new(input, &inside.label, walk.account);
    let mut signs = Signs::default();
    let archives = |walk: &Walk<'_>| (walk.report.archives, walk.report.passed_over.len());
    let before = archives(walk);
    while let Some(entry) = stream.next()? {
        let size = matches!(entry.item, Item::File).then_some(entry.size);
        let mut place = walk.begin(inside, entry.path, size)?;
        // What is stored is not what is read.
        place.reach = place.reach.filter(|_| !stream.has_holes());
        match entry.item {
            Item::File if image::is_whiteout(&place.raw_path) && !is_apple_double(&place.raw_path) => {
                walk.pass_over(place.label(), PassedOverReason::Unsupported(WHITEOUT.to_owned()));
            }
            Item::File => {
                signs.see(&place.raw_path);
                walk.member(&place, &mut stream)?;
            }
            other => count(&mut walk.report, inside, &place, other),
        }
    }
    if signs.are_images(before != archives(walk)) {
        walk.pass_over(inside.label.clone(), PassedOverReason::Unsupported(IMAGES.to_owned()));
    }
    let is_ended = stream.is_ended();
    if is_ended && stream.goes_on()? {
        walk.pass_over(inside.label.clone(), PassedOverReason::Unsupported(GOES_ON.to_owned()));
    }
    Ok(is_ended)
}

/// Counts a member that has no bytes of its own.
pub(super) fn count(report: &mut ArchiveReport, inside: &Inside, place: &Place, item: Item) {
    match item {
        Item::File => {}
        Item::HardLink { target } => report.hard_link(place.label(), inside.place(target, None).label()),
        Item::SymbolicLink { target } => {
            let target = beside(&place.raw_path, &target);
            report.symbolic_link(place.label(), inside.place(target, None).label());
        }
        Item::Folder => report.folders = report.folders.saturating_add(1),
        Item::Special => report.special_files = report.special_files.saturating_add(1),
    }
}

/// The path that a symbolic link leads to, from the archive's root.
pub(super) fn beside(path: &[u8], target: &[u8]) -> Vec<u8> {
    let folder = path.iter().rposition(|byte| *byte == b'/').and_then(|at| path.get(..at));
    let folder = folder.filter(|_| !target.starts_with(b"/")).unwrap_or_default();
    [folder, b"/", target].concat()
}
