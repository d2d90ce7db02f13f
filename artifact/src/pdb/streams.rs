//! The named streams of a PDB, out of which debuggers take whole files: sources, visualizers, and where to fetch sources from.

use pdb2::StreamIndex;

use super::header;
use super::identity::{INFO_STREAM, PdbFile, stream};
use crate::told::Gathering;

/// More names than any linker gives.
const MOST_STREAMS: usize = 65_536;
/// Bytes of a name that are looked at: more than paths have.
const LONGEST_NAME: usize = 4096;
/// Whole source files and visualizers, by their paths. (LLVM, "The PDB Info Stream", "Named Streams"; `/natvis` and `/sourcelink` of `link`)
const FILES: &[u8] = b"/src/files/";
const SOURCE_LINK: &[u8] = b"sourcelink";

/// Names and sizes of all, and the text of Source Link. What is read of streams is no more than twice the file, as they may share their pages.
pub(super) fn named_streams(file: &PdbFile<'_>, into: &mut Gathering) {
    let Ok(mut pdb) = file.open() else { return };
    let Ok(information) = stream(&mut pdb, INFO_STREAM, "PDB info stream") else { return };
    let mut left = file.bytes().saturating_mul(2);
    for (at, (name, number)) in header::named_streams(&information).enumerate() {
        let is_within = at < MOST_STREAMS && left > 0;
        let Some(contents) = is_within.then(|| pdb.raw_stream(StreamIndex(number))) else {
            into.not_read("a part of the named streams of a program database");
            return;
        };
        let Ok(Some(contents)) = contents else { continue };
        let bytes = contents.len() as u64;
        left = left.saturating_sub(bytes);
        // Many names may lie in the same long text.
        let Some(name) = name.get(..LONGEST_NAME).unwrap_or(name).split(|byte| *byte == 0).next() else { continue };
        if let Some(path) = name.strip_prefix(FILES) {
            into.embedded_source(path, bytes);
        }
        if name.starts_with(SOURCE_LINK) {
            let text = into.text(contents.as_slice());
            into.texts.source_links.extend(text);
        }
        if let Some(name) = into.text(name) {
            into.texts.streams.insert(name, bytes);
        }
    }
}
