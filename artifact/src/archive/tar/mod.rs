//! tar: POSIX ustar and pax (IEEE 1003.1-2017, pax), GNU (its manual, "Basic Tar Format"), and what came before.
//!
//! Headers are decoded by the `tar` crate. Its own iteration reads long names and extension records to their end, however
//! large they are, and gives up on some sparse files; so the order of blocks is kept here.

mod extensions;
mod sparse;
mod stream;

use std::io::Read;

use super::error::Halt;
use super::member::Inside;
use super::walk::Walk;
pub(super) use stream::{Item, TarStream};

/// Visits the files of a tar.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    let mut stream = TarStream::new(input, &inside.label, walk.account);
    while let Some(entry) = stream.next()? {
        let size = matches!(entry.item, Item::File).then_some(entry.size);
        let mut place = walk.begin(inside, entry.path, size)?;
        // What is stored is not what is read.
        place.reach = place.reach.filter(|_| !stream.has_holes());
        let report = &mut walk.report;
        match entry.item {
            Item::File => walk.member(&place, &mut stream)?,
            Item::HardLink { target } => report.hard_link(place.label(), inside.place(target, None).label()),
            Item::SymbolicLink { .. } => report.symbolic_links = report.symbolic_links.saturating_add(1),
            Item::Folder => report.folders = report.folders.saturating_add(1),
            Item::Special => report.special_files = report.special_files.saturating_add(1),
        }
    }
    Ok(())
}
