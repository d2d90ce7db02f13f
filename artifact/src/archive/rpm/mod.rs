//! RPM packages (format 3 to 6 of rpm.org's reference): a lead, two headers, and a cpio archive, mostly compressed.

mod cpio;
mod header;

use std::collections::HashMap;
use std::io::{self, Read};

use super::deb::read_payload;
use super::error::Halt;
use super::member::{Inside, Place, normalised};
use super::report::{MAX_HARD_LINK_BYTES, PassedOverReason};
use super::walk::Walk;
use cpio::{CpioStream, Item};
use header::{FileIdentity, Header};

/// The lead's size. What it says stands in the header as well.
const LEAD_BYTES: usize = 96;
/// The signature is padded to so many bytes.
const SIGNATURE_ALIGNMENT: u64 = 8;

/// Visits the files of an RPM package.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    let mut lead = [0; LEAD_BYTES];
    let read = input.read_exact(&mut lead);
    read.map_err(|error| walk.account.halt(&inside.label, "an RPM package's lead", &error))?;
    let sizes = header::sizes(input, &inside.label, walk.account, "signature")?;
    let signatures = Header::read(input, &sizes, &inside.label, walk.account)?;
    let padding = sizes.bytes().next_multiple_of(SIGNATURE_ALIGNMENT).saturating_sub(sizes.bytes());
    let skipped = io::copy(&mut input.take(padding), &mut io::sink());
    let skipped = skipped.map_err(|error| walk.account.halt(&inside.label, "a signature", &error))?;
    if skipped < padding {
        return Err(walk.account.damaged(&inside.label, "a signature", "the end").into());
    }
    let sizes = header::sizes(input, &inside.label, walk.account, "header")?;
    let header = Header::read(input, &sizes, &inside.label, walk.account)?;
    let signatures = signatures.file_signatures(&header, walk.account.limits);
    // It goes to the file's end.
    let input = (input, u64::MAX);
    read_payload(walk, inside, input, "a payload", |walk, inside, input, _| {
        payload(walk, inside, input, (&header, &signatures))
    })
}

fn payload(
    walk: &mut Walk<'_>,
    inside: &Inside,
    input: &mut dyn Read,
    (header, signatures): (&Header, &HashMap<Vec<u8>, String>),
) -> Result<(), Halt> {
    let mut magic = Vec::new();
    let read = input.take(cpio::MAGIC_BYTES as u64).read_to_end(&mut magic);
    read.map_err(|error| walk.account.halt(&inside.label, "a payload", &error))?;
    if !cpio::is_magic(&magic) {
        // A delta RPM.
        let what = "an RPM payload that is no cpio archive packed with gzip, xz, zstd, bzip2 or LZMA";
        walk.report.pass_over(inside.label.clone(), PassedOverReason::Unsupported(what.to_owned()));
        return Ok(());
    }
    let mut input = magic.chain(input);
    let mut stream = CpioStream::new(&mut input, &inside.label, walk.account, header);
    // Names that came before the one that has the bytes, by the file that they are names of.
    let mut earlier: HashMap<FileIdentity, Vec<String>> = HashMap::new();
    let mut earlier_bytes = 0_usize;
    while let Some(entry) = stream.next()? {
        let size = matches!(entry.item, Item::File { .. }).then_some(entry.size);
        let signature = signatures.get(&normalised(&entry.path)).cloned();
        let place = Place { signature, ..walk.begin(inside, entry.path, size)? };
        let report = &mut walk.report;
        match entry.item {
            Item::File { identity } => {
                for name in identity.and_then(|identity| earlier.remove(&identity)).unwrap_or_default() {
                    report.hard_link(name, place.label());
                }
                walk.member(&place, &mut stream)?;
            }
            Item::HardLink { identity } => {
                let name = place.label();
                earlier_bytes = earlier_bytes.saturating_add(name.len());
                match earlier_bytes <= MAX_HARD_LINK_BYTES {
                    true => earlier.entry(identity).or_default().push(name),
                    false => report.hard_links = report.hard_links.saturating_add(1),
                }
            }
            Item::SymbolicLink => report.symbolic_links = report.symbolic_links.saturating_add(1),
            Item::Folder => report.folders = report.folders.saturating_add(1),
            Item::Special => report.special_files = report.special_files.saturating_add(1),
        }
    }
    // Of empty files no name has bytes.
    let empty = earlier.values().map(|names| names.len() as u64).fold(0, u64::saturating_add);
    walk.report.hard_links = walk.report.hard_links.saturating_add(empty);
    Ok(())
}
