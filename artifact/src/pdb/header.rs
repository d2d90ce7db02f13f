//! The fixed parts of the two streams that identify a PDB. (LLVM, "The PDB Info Stream", "The PDB DBI Stream")

/// `FeatureSig::MinimalDebugInfo`: the linker left debug information in the object files (`/DEBUG:FASTLINK`).
const MINIMAL_DEBUG_INFO: u32 = 0x494e_494d;
/// `FeatureSig::VC110`: behind it stand no others.
const VC110: u32 = 20_091_201;

/// "No such stream".
pub(crate) const NO_STREAM: u16 = 0xffff;

/// What the header of the DBI stream says that `pdb2` keeps to itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DbiHeader {
    /// 0 = unknown.
    pub(crate) age: u32,
    pub(crate) machine: u16,
    /// Private symbols were stripped (`/PDBSTRIPPED`).
    pub(crate) is_stripped: bool,
    debug_header_at: usize,
    debug_header_size: usize,
}

impl DbiHeader {
    const SIZE: usize = 64;

    pub(crate) fn parse(stream: &[u8]) -> Option<Self> {
        let signature = u32_at(stream, 0)?;
        // Older headers, of compilers before 1997, start otherwise.
        if signature != u32::MAX || stream.len() < Self::SIZE {
            return None;
        }
        // The substreams, in order: modules, section contributions, section map, files, type servers, edit-and-continue,
        // the optional debug header. The field of the type server in between is an index.
        let mut sizes = [24, 28, 32, 36, 40, 52].into_iter().map(|at| u32_at(stream, at));
        let before = sizes.try_fold(Self::SIZE, |at, size| at.checked_add(usize::try_from(size?).ok()?))?;
        Some(Self {
            age: u32_at(stream, 8)?,
            machine: u16_at(stream, 58)?,
            is_stripped: u16_at(stream, 56)? & 2 != 0,
            debug_header_at: before,
            debug_header_size: usize::try_from(u32_at(stream, 48)?).ok()?,
        })
    }

    /// The number of a stream that the optional debug header names by its place in it.
    pub(crate) fn extra_stream(&self, stream: &[u8], place: usize) -> Option<u16> {
        let header = stream.get(self.debug_header_at..)?;
        let header = header.get(..self.debug_header_size.min(header.len()))?;
        u16_at(header, place.checked_mul(2)?).filter(|number| *number != NO_STREAM)
    }
}

/// Whether the info stream says that the debug information stands in the object files.
pub(crate) fn is_fastlink(info: &[u8]) -> bool {
    let features = NameMap::parse(info).map_or(&[][..], |map| map.behind);
    let numbers = features.chunks_exact(4).filter_map(|bytes| u32_at(bytes, 0));
    numbers.take_while(|feature| *feature != VC110).any(|feature| feature == MINIMAL_DEBUG_INFO)
}

/// The number of the stream of that name.
pub(crate) fn named_stream(info: &[u8], name: &[u8]) -> Option<u16> {
    named_streams(info).find_map(|(text, number)| {
        let is_named = text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0));
        is_named.then_some(number)
    })
}

/// The named streams: what begins with the name, which ends in a zero byte, and the stream's number.
pub(crate) fn named_streams(info: &[u8]) -> impl Iterator<Item = (&[u8], u16)> {
    let map = NameMap::parse(info);
    map.into_iter().flat_map(|map| {
        map.entries.chunks_exact(8).filter_map(move |entry| {
            let text = map.texts.get(usize::try_from(u32_at(entry, 0)?).ok()?..)?;
            let number = u16::try_from(u32_at(entry, 4)?).ok().filter(|number| *number != NO_STREAM)?;
            Some((text, number))
        })
    })
}

/// The map of named streams in the info stream, behind a header of 28 bytes, and the features behind it.
struct NameMap<'s> {
    texts: &'s [u8],
    /// Offset of a name in `texts` and number of a stream, 4 bytes each.
    entries: &'s [u8],
    /// One number for each feature.
    behind: &'s [u8],
}

impl<'s> NameMap<'s> {
    fn parse(info: &'s [u8]) -> Option<Self> {
        let size = usize::try_from(u32_at(info, 28)?).ok()?;
        let (texts, map) = info.get(32..)?.split_at_checked(size)?;
        // Entries, places for entries, and two bit sets: which places are taken, and which were.
        let count = usize::try_from(u32_at(map, 0)?).ok()?;
        let present = bit_words(map, 8)?;
        let deleted = bit_words(map, present)?;
        let (entries, behind) = map.get(deleted..)?.split_at_checked(count.checked_mul(8)?)?;
        Some(Self { texts, entries, behind })
    }
}

/// Where a bit set, a count and as many words, ends.
fn bit_words(map: &[u8], at: usize) -> Option<usize> {
    let words = usize::try_from(u32_at(map, at)?).ok()?;
    at.checked_add(4)?.checked_add(words.checked_mul(4)?)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|bytes| u16::from_le_bytes(*bytes))
}
