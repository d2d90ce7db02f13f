//! The loaded bytes of a file by address, relocated as the loader would at its stated base.

use crate::headers::ObjectHeaders;
use crate::proportion::in_proportion;
use memchr::memmem;

/// What a process would have in memory, read only.
pub(crate) struct Image<'d> {
    /// Stated address and bytes, sorted.
    parts: Vec<(u64, &'d [u8])>,
    /// Words that the loader writes: address and value, sorted. Only those whose value is not in place.
    relocated: Vec<(u64, u64)>,
    /// Bytes of the file that they are in.
    file_bytes: u64,
    pub(crate) is_64: bool,
    pub(crate) is_little_endian: bool,
}

impl<'d> Image<'d> {
    pub(crate) fn new(headers: &dyn ObjectHeaders<'d>) -> Self {
        let mut parts = headers.loaded();
        parts.sort_by_key(|part| part.0);
        let mut relocated = headers.relocated_words();
        relocated.sort_unstable();
        let file_bytes = headers.file_bytes();
        Self { parts, relocated, file_bytes, is_64: headers.is_64(), is_little_endian: headers.is_little_endian() }
    }

    /// Bytes of an address.
    pub(crate) fn word_size(&self) -> u8 {
        if self.is_64 { 8 } else { 4 }
    }

    /// The bytes from `svma` to the end of what is loaded there in one piece.
    pub(crate) fn from(&self, svma: u64) -> Option<&'d [u8]> {
        let behind = self.parts.partition_point(|part| part.0 <= svma);
        let (start, bytes) = self.parts.get(behind.checked_sub(1)?)?;
        let rest = bytes.get(usize::try_from(svma - start).ok()?..)?;
        (!rest.is_empty()).then_some(rest)
    }

    /// The number of `size` bytes (at most 8) at `svma`, as stored.
    pub(crate) fn number(&self, svma: u64, size: u8) -> Option<u64> {
        crate::cursor::Cursor::new(self.from(svma)?, self.is_little_endian).unsigned(size).ok()
    }

    /// The address that stands at `svma`, relocated.
    pub(crate) fn word(&self, svma: u64) -> Option<u64> {
        if let Ok(at) = self.relocated.binary_search_by_key(&svma, |word| word.0) {
            return self.relocated.get(at).map(|word| word.1);
        }
        self.number(svma, self.word_size())
    }

    /// The parts that are searched: those of one file lie beside each other.
    fn searched(&self) -> impl Iterator<Item = &(u64, &'d [u8])> + '_ {
        in_proportion(self.file_bytes, self.parts.iter(), |part| part.1.len())
    }

    /// Addresses of aligned words that hold `value`.
    pub(crate) fn words_with(&self, value: u64) -> impl Iterator<Item = u64> + '_ {
        let size = usize::from(self.word_size());
        let little = value.to_le_bytes();
        let wanted: Vec<u8> = if self.is_little_endian {
            little.iter().take(size).copied().collect()
        } else {
            little.iter().take(size).rev().copied().collect()
        };
        let relocated = self.relocated.iter().filter(move |word| word.1 == value).map(|word| word.0);
        let in_place = self.searched().flat_map(move |(start, bytes)| {
            // A part starts at any address; words lie at multiples of their size.
            let skip = (size - (*start % size as u64) as usize) % size;
            let wanted = wanted.clone();
            let words = bytes.get(skip..).unwrap_or_default().chunks_exact(size).enumerate();
            words
                .filter(move |(_, word)| *word == wanted.as_slice())
                .map(move |(at, _)| start + (skip + at * size) as u64)
        });
        relocated.chain(in_place)
    }

    /// Addresses of multiples of 4 where one of the texts of 4 bytes starts.
    pub(crate) fn starts_of(&self, texts: &[[u8; 4]]) -> impl Iterator<Item = u64> {
        let mut found: Vec<u64> = Vec::new();
        for text in texts {
            let finder = memmem::Finder::new(text);
            let hits = self
                .searched()
                .flat_map(|(start, bytes)| finder.find_iter(bytes).map(move |at| start.saturating_add(at as u64)));
            // Chance alone gives one in 2^32; a file full of them is searched no further.
            found.extend(hits.filter(|svma| svma.is_multiple_of(4)).take(MOST_CANDIDATES));
        }
        found.sort_unstable();
        found.into_iter()
    }
}

/// Places in a file that may be the table's start.
const MOST_CANDIDATES: usize = 4096;
