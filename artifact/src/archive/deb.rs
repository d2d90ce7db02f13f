//! Debian packages (deb(5)): an ar file of `debian-binary`, `control.tar.*` and `data.tar.*`, of which the last one holds
//! the files. A ddeb, Ubuntu's package of debug symbols, is the same.

use std::io::{self, Read};
use std::rc::Rc;

use super::decompress::{Counted, unpack};
use super::error::Halt;
use super::kind::{ArchiveKind, archive_kind};
use super::member::{Inside, Place};
use super::reach::Payload;
use super::report::PassedOverReason;
use super::tar;
use super::walk::{NOWHERE, Walk};

const MAGIC_BYTES: usize = 8;
const HEADER_BYTES: usize = 60;

/// Visits the files of a Debian package. Any other ar file is a static library, and is reported.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    let mut magic = [0; MAGIC_BYTES];
    let read = input.read_exact(&mut magic);
    read.map_err(|error| walk.account.halt(&inside.label, "an ar file", &error))?;
    let (mut is_first, mut has_payload) = (true, false);
    while let Some((name, size)) = header(walk, inside, input)? {
        let is_package = name == b"debian-binary";
        if is_first && !is_package {
            walk.report.pass_over(inside.label.clone(), PassedOverReason::StaticLibrary);
            return Ok(());
        }
        is_first = false;
        let place = walk.begin(inside, name, Some(size))?;
        let mut content = input.take(size);
        // Of several the first counts, as it does for dpkg.
        if !has_payload && place.raw_path.starts_with(b"data.tar") {
            has_payload = true;
            payload(walk, inside, &place, (&mut content, size))?;
        }
        // What the payload's reader left, and the byte that makes the size even.
        let left = content.limit();
        let skip = left.saturating_add(size & 1);
        let skipped = io::copy(&mut input.take(skip), &mut io::sink());
        let skipped = skipped.map_err(|error| walk.account.halt(&inside.label, "more of a member", &error))?;
        if skipped < left {
            return Err(walk.account.damaged(&inside.label, "more of a member", "the end").into());
        }
    }
    if !is_first && !has_payload {
        return Err(walk.account.damaged(&inside.label, "a data.tar", "the end").into());
    }
    Ok(())
}

/// A member's name and size; none at the end.
fn header(walk: &Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<Option<(Vec<u8>, u64)>, Halt> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let read = input.take(HEADER_BYTES as u64).read_to_end(&mut header);
    let read = read.map_err(|error| walk.account.halt(&inside.label, "an ar member's header", &error))?;
    if read == 0 {
        return Ok(None);
    }
    let damaged = |found: &str| walk.account.damaged(&inside.label, "an ar member's header", found);
    if header.get(58..60) != Some(b"`\n") {
        return Err(damaged("no end of header").into());
    }
    let field = |range: std::ops::Range<usize>| header.get(range).unwrap_or_default().trim_ascii_end();
    let name = field(0..16);
    let name = name.strip_suffix(b"/").filter(|name| !name.is_empty()).unwrap_or(name);
    let size = std::str::from_utf8(field(48..58)).ok().and_then(|text| text.parse().ok());
    let size = size.ok_or_else(|| damaged("a size that is no number"))?;
    Ok(Some((name.to_vec(), size)))
}

/// The tar with the files, compressed or not. It is the package's own and no archive within it.
fn payload(walk: &mut Walk<'_>, inside: &Inside, place: &Place, input: (&mut dyn Read, u64)) -> Result<(), Halt> {
    read_payload(walk, inside, input, "a data.tar", |walk, inside, input, kind| {
        if kind.is_compression() || place.raw_path == b"data.tar" {
            return tar::read(walk, inside, input);
        }
        let what = "a payload that is packed by a method that is not read: unpack the package".to_owned();
        walk.pass_over(place.label(), PassedOverReason::Unsupported(what));
        Ok(())
    })
}

/// Unpacks a package's payload of at most so many bytes by what its first bytes say, and reads it with `read`, to its end. That is told how it was packed: as a tar
/// where it was not.
pub(super) fn read_payload(
    walk: &mut Walk<'_>,
    inside: &Inside,
    (input, packed): (&mut dyn Read, u64),
    expected: &str,
    read: impl FnOnce(&mut Walk<'_>, &Inside, &mut dyn Read, ArchiveKind) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let start = walk.position.get();
    let mut head = Vec::new();
    let read_head = input.take(16).read_to_end(&mut head);
    read_head.map_err(|error| walk.account.halt(&inside.label, expected, &error))?;
    let mut input = head.chain(input);
    let kind = archive_kind(&head).filter(|kind| kind.is_compression()).unwrap_or(ArchiveKind::Tar);
    let account = walk.account;
    let at = Rc::default();
    let mut stream = Counted::new(unpack(kind, &inside.label, &mut input, account), &at);
    if inside.is_outermost() && start != NOWHERE {
        walk.payload = Payload::new(kind, start, packed, at);
    }
    read(walk, inside, &mut stream, kind)?;
    if inside.is_outermost() {
        walk.payload = None;
    }
    let rest = io::copy(&mut stream, &mut io::sink());
    rest.map(|_| ()).map_err(|error| account.halt(&inside.label, "a sound end of the payload", &error))
}
