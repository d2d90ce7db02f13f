//! zip and zip64 (PKWARE's APPNOTE 6.3.10), by the central directory, which alone says what the members are.

use std::cell::RefCell;
use std::io::{self, Read, SeekFrom};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ReaderAt, ZipArchive, ZipLocator};

use super::ReadSeek;
use super::decompress::{Ratio, Unpacked};
use super::error::{Halt, LimitKind};
use super::member::{Inside, Place};
use super::reach::Reach;
use super::report::PassedOverReason;
use super::walk::Walk;

/// Visits the files of a zip.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn ReadSeek) -> Result<(), Halt> {
    let damaged = |walk: &Walk<'_>, error: &rawzip::Error| zip_halt(walk, inside, error);
    let size = input.seek(SeekFrom::End(0)).map_err(|error| walk.account.halt(&inside.label, "a zip", &error))?;
    let input = AtOffsets(RefCell::new((input, size)));
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = ZipLocator::new().locate_in_reader(input, &mut buffer, size);
    let archive = archive.map_err(|(_, error)| damaged(walk, &error))?;
    check_overlaps(walk, inside, &archive, &mut buffer)?;
    let ratio = Ratio::default();
    let mut entries = archive.entries(&mut buffer);
    while let Some(record) = entries.next_entry().map_err(|error| damaged(walk, &error))? {
        let raw_path = record.file_path().as_ref().to_vec();
        let size = record.uncompressed_size_hint();
        let kind = Kind::of(&record);
        let mut place = walk.begin(inside, with_slashes(raw_path), (kind == Kind::File).then_some(size))?;
        match kind {
            Kind::Folder => walk.report.folders = walk.report.folders.saturating_add(1),
            Kind::SymbolicLink => walk.report.symbolic_links = walk.report.symbolic_links.saturating_add(1),
            Kind::File if record.flags().is_encrypted() => unsupported(walk, &place, "an encrypted member"),
            Kind::File => {
                let (method, wayfinder) = (record.compression_method(), record.wayfinder());
                let entry = archive.get_entry(wayfinder).map_err(|error| damaged(walk, &error))?;
                let (start, end) = entry.compressed_data_range();
                if inside.is_outermost() && [CompressionMethod::STORE, CompressionMethod::DEFLATE].contains(&method) {
                    let is_deflated = method == CompressionMethod::DEFLATE;
                    place.reach = Some(Reach::in_zip(is_deflated, start, end.saturating_sub(start), size));
                }
                let packed = ratio.packed(entry.reader());
                let decoder: Box<dyn Read + '_> = match method {
                    CompressionMethod::STORE => Box::new(packed),
                    CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(packed)),
                    other => {
                        let name = other.name().unwrap_or("unknown");
                        unsupported(walk, &place, &format!("zip method {} ({name})", other.as_u16()));
                        continue;
                    }
                };
                let checked = entry.verifying_reader(decoder);
                let mut content = Unpacked::new(checked, ratio.clone(), walk.account, &inside.label);
                let before = ratio.counted();
                let read = walk.member(&place, &mut content);
                // Its bytes do not count against the members behind it, which are streams of their own.
                if walk.past_bomb(&place, read, |archive| archive == inside.label)? {
                    ratio.go_back(before);
                }
            }
        }
    }
    Ok(())
}

/// Members whose bytes overlap let a small zip unpack to anything (D. Fifield, "A better zip bomb", 2019). No program makes
/// them.
fn check_overlaps<R: ReaderAt>(
    walk: &Walk<'_>,
    inside: &Inside,
    archive: &ZipArchive<R>,
    buffer: &mut [u8],
) -> Result<(), Halt> {
    let account = walk.account;
    let mut ranges = Vec::new();
    let mut entries = archive.entries(buffer);
    while let Some(record) = entries.next_entry().map_err(|error| zip_halt(walk, inside, &error))? {
        let found = (ranges.len() as u64).saturating_add(1);
        account.within(&inside.label, LimitKind::Members, account.limits.members, found)?;
        let start = record.local_header_offset();
        let wayfinder = record.wayfinder();
        let entry = archive.get_entry(wayfinder).map_err(|error| zip_halt(walk, inside, &error))?;
        let (_, end) = entry.compressed_data_range();
        ranges.push((start, end));
    }
    ranges.sort_unstable();
    let overlap = ranges.windows(2).find(|pair| matches!(pair, [(_, end), (next, _)] if next < end));
    if let Some([(start, end), (next, _)]) = overlap {
        let found = format!("members at {start:#x}..{end:#x} and from {next:#x}");
        return Err(account.damaged(&inside.label, "members that do not overlap", found).into());
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    SymbolicLink,
}

impl Kind {
    fn of(record: &rawzip::ZipFileHeaderRecord<'_>) -> Self {
        if record.is_dir() {
            Self::Folder
        } else if record.mode().is_symlink() {
            Self::SymbolicLink
        } else {
            Self::File
        }
    }
}

fn unsupported(walk: &mut Walk<'_>, place: &Place, what: &str) {
    walk.pass_over(place.label(), PassedOverReason::Unsupported(what.to_owned()));
}

/// Some Windows programs write `\` between a path's parts, against the format's rule.
fn with_slashes(mut path: Vec<u8>) -> Vec<u8> {
    if !path.contains(&b'/') {
        path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    path
}

fn zip_halt(walk: &Walk<'_>, inside: &Inside, error: &rawzip::Error) -> Halt {
    match error.kind() {
        rawzip::ErrorKind::IO(error) => walk.account.halt(&inside.label, "a zip", error),
        rawzip::ErrorKind::Eof => walk.account.damaged(&inside.label, "more of a zip", "the end").into(),
        _ => walk.account.damaged(&inside.label, "a sound zip", error.to_string()).into(),
    }
}

/// The input with its position: a seek throws away what was read ahead, so none is made that goes nowhere.
struct AtOffsets<'i>(RefCell<(&'i mut dyn ReadSeek, u64)>);

impl ReaderAt for AtOffsets<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut input = self.0.try_borrow_mut().map_err(|_| io::Error::other("the zip is being read already"))?;
        let (reader, at) = &mut *input;
        if *at != offset {
            *at = u64::MAX;
            reader.seek(SeekFrom::Start(offset))?;
            *at = offset;
        }
        let read = reader.read(buffer)?;
        *at = at.saturating_add(read as u64);
        Ok(read)
    }
}
