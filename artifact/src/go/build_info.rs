//! What Go's linker writes down of a build: the toolchain, the modules, and the settings (`go version -m`). (`debug/buildinfo`)

use crate::cursor::{Cursor, Damaged, Result};
use crate::told::Gathering;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// What the record's beginning is a multiple of, in its segment.
const ALIGNMENT: usize = 16;
/// Texts stand in the record itself, behind the header. (Go 1.18 and later)
const INLINE: u8 = 2;
const HEADER: usize = 32;
/// Around the text about modules, so that it is found in any file.
const SENTINEL: usize = 16;

/// Reads the first record in pieces of a file as it is loaded.
pub(crate) fn build_info<'d>(pieces: impl Iterator<Item = &'d [u8]>, into: &mut Gathering) {
    for piece in pieces {
        let Some(record) = record(piece) else { continue };
        match record.get(MAGIC.len().saturating_add(1)) {
            Some(flags) if flags & INLINE != 0 => {
                if read(record, into).is_err() {
                    into.not_read("a part of Go's build settings");
                }
            }
            _ => into.not_read("Go's build settings, as Go before 1.18 kept them"),
        }
        return;
    }
}

/// From the first record in a piece on.
fn record(piece: &[u8]) -> Option<&[u8]> {
    let mut places = memchr::memmem::find_iter(piece, MAGIC);
    places.find(|at| at % ALIGNMENT == 0).and_then(|at| piece.get(at..))
}

fn read(record: &[u8], into: &mut Gathering) -> Result<()> {
    let mut cursor = Cursor::new(record.get(HEADER..).ok_or(Damaged)?, true);
    let mut text = || cursor.uleb().and_then(|length| cursor.bytes(usize::try_from(length).map_err(|_| Damaged)?));
    let (version, modules) = (text()?, text()?);
    let inner = modules.get(SENTINEL..modules.len().saturating_sub(SENTINEL)).unwrap_or_default();
    for line in std::iter::once(version).chain(inner.split(|byte| *byte == b'\n')) {
        let line: Vec<u8> = line.iter().map(|byte| if *byte == b'\t' { b' ' } else { *byte }).collect();
        let told = into.text(&line).filter(|line| !line.is_empty());
        into.texts.build_settings.extend(told);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_settings(record: &[u8]) -> crate::BuildTexts {
        let mut gathering = Gathering::of(0);
        build_info([record].into_iter(), &mut gathering);
        gathering.texts
    }

    #[test]
    fn settings_stand_between_sentinels_behind_the_version() {
        let modules = format!("{0}path\tx\nbuild\t-ldflags=\"-X main.token=S\"\n{0}", "s".repeat(SENTINEL));
        let mut record = [MAGIC, &[8, INLINE]].concat();
        record.resize(HEADER, 0);
        record.extend(b"\x06go1.22");
        record.push(modules.len() as u8);
        record.extend(modules.as_bytes());
        let settings = read_settings(&record).build_settings;
        assert_eq!(
            settings.into_iter().collect::<Vec<_>>(),
            ["build -ldflags=\"-X main.token=S\"", "go1.22", "path x"]
        );
        for cut in 0..record.len() {
            let texts = read_settings(&record[..cut]);
            assert!(texts.build_settings.is_empty() && (cut <= MAGIC.len() || texts.not_read.len() == 1), "{cut}");
        }
    }
}
