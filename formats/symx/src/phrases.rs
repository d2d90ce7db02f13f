//! Names in phrases: what many names of a table share is kept once, and a name is the numbers of its phrases.

use alloc::vec::Vec;

/// Bytes of a phrase's record: a byte of length, the text, zeroes.
pub(crate) const PHRASE_BYTES: usize = 32;
/// The longest phrase, in bytes.
pub(crate) const MAX_PHRASE: usize = PHRASE_BYTES - 1;
/// Phrases below this number have codes of one byte, all others of two.
pub(crate) const SHORT_CODES: usize = 192;
/// As many phrases as codes can number.
pub(crate) const MAX_PHRASES: usize = SHORT_CODES + (256 - SHORT_CODES) * 256;
/// A longer name reads as absent: a few bytes of codes may stand for much text.
pub(crate) const MAX_NAME_BYTES: usize = 1 << 24;

/// The phrases of a table, by number.
pub(crate) type Phrases<'a> = &'a [[u8; PHRASE_BYTES]];

/// The numbers that the codes of a name stand for. A code of which a byte is missing stands for a number that no phrase has.
#[derive(Clone, Debug)]
pub(crate) struct Codes<'a> {
    bytes: core::slice::Iter<'a, u8>,
}

impl<'a> Codes<'a> {
    pub(crate) fn new(coded: &'a [u8]) -> Self {
        Self { bytes: coded.iter() }
    }
}

impl Iterator for Codes<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = usize::from(*self.bytes.next()?);
        let Some(above) = first.checked_sub(SHORT_CODES) else { return Some(first) };
        let low = self.bytes.next();
        Some(low.map_or(MAX_PHRASES, |low| SHORT_CODES + above * 256 + usize::from(*low)))
    }
}

/// The code of phrase `number`, which is below [`MAX_PHRASES`].
pub(crate) fn put_code(out: &mut Vec<u8>, number: u16) {
    match usize::from(number).checked_sub(SHORT_CODES) {
        None => out.push(number as u8),
        Some(above) => out.extend([(SHORT_CODES + above / 256) as u8, above as u8]),
    }
}

/// The text of a phrase; `None` where its record has an impossible length.
#[inline(always)]
pub(crate) fn phrase_text(record: &[u8; PHRASE_BYTES]) -> Option<&[u8]> {
    let [len, text @ ..] = record;
    text.get(..usize::from(*len)).filter(|text| !text.is_empty())
}

/// Appends what `record` stands for to a name; `None` where there is no such text, or too much of it.
#[inline(always)]
pub(crate) fn append(out: &mut Vec<u8>, record: &[u8; PHRASE_BYTES]) -> Option<()> {
    let [len, text @ ..] = record;
    let (end, len) = (out.len(), usize::from(*len));
    if len == 0 || len > MAX_PHRASE || end + len > MAX_NAME_BYTES {
        return None;
    }
    // A copy of constant size is two instructions; what it has too much goes again.
    out.extend_from_slice(text);
    out.truncate(end + len);
    Some(())
}

/// The text of a name in phrases; `None` where a code stands for nothing.
#[inline]
pub(crate) fn decode(out: &mut Vec<u8>, coded: &[u8], phrases: Phrases<'_>) -> Option<()> {
    Codes::new(coded).try_for_each(|number| append(out, phrases.get(number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_one_code() {
        let mut coded = Vec::new();
        for number in 0..MAX_PHRASES {
            put_code(&mut coded, number as u16);
        }
        assert!(Codes::new(&coded).eq(0..MAX_PHRASES));
        assert_eq!(coded.len(), SHORT_CODES + 2 * (MAX_PHRASES - SHORT_CODES));
        assert!(Codes::new(&[255]).eq([MAX_PHRASES]), "a code that breaks off");
    }

    #[test]
    fn impossible_phrases_are_no_text() {
        let mut out = Vec::new();
        let phrases = [[0; PHRASE_BYTES], [32; PHRASE_BYTES], [31; PHRASE_BYTES]];
        assert_eq!(decode(&mut out, &[0], &phrases), None);
        assert_eq!(decode(&mut out, &[1], &phrases), None);
        assert_eq!(decode(&mut out, &[2], &phrases), Some(()));
        assert_eq!(out, [31; MAX_PHRASE]);
        assert_eq!(decode(&mut out, &[3], &phrases), None, "no such phrase");
        assert_eq!(phrase_text(&phrases[0]), None);
    }

    #[test]
    fn a_name_beyond_the_bound_is_absent() {
        let phrases = [[31; PHRASE_BYTES]];
        let fits = MAX_NAME_BYTES / MAX_PHRASE;
        assert_eq!(decode(&mut Vec::new(), &alloc::vec![0; fits], &phrases), Some(()));
        assert_eq!(decode(&mut Vec::new(), &alloc::vec![0; fits + 1], &phrases), None);
    }
}
