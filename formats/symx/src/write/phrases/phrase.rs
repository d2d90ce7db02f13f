//! A phrase while phrases are learned and sought.

use crate::phrases::{MAX_PHRASE, PHRASE_BYTES};

/// A text of at most [`MAX_PHRASE`] bytes, with zeroes behind it. In the order of texts: of two that differ in zeroes at their ends alone the shorter one
/// is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Phrase {
    text: [u8; MAX_PHRASE],
    len: u8,
}

/// The same text and length as four numbers, which compare as phrases do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key([u64; PHRASE_BYTES / 8]);

impl Phrase {
    pub(super) fn single(byte: u8) -> Self {
        let mut text = [0; MAX_PHRASE];
        text[0] = byte;
        Self { text, len: 1 }
    }

    pub(super) fn text(&self) -> &[u8] {
        self.text.get(..self.len()).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// One behind the other; `None` where that is too long.
    pub(super) fn followed_by(&self, other: &Self) -> Option<Self> {
        let mut joined = *self;
        joined.text.get_mut(self.len()..self.len() + other.len())?.copy_from_slice(other.text());
        joined.len += other.len;
        Some(joined)
    }

    pub(super) fn key(&self) -> Key {
        let mut bytes = [0; PHRASE_BYTES];
        let (text, len) = bytes.split_at_mut(MAX_PHRASE);
        text.copy_from_slice(&self.text);
        len.copy_from_slice(&[self.len]);
        Key::new(&bytes, self.len())
    }

    /// The record of the section.
    pub(super) fn record(&self) -> [u8; PHRASE_BYTES] {
        let mut record = [0; PHRASE_BYTES];
        let (len, text) = record.split_at_mut(1);
        len.copy_from_slice(&[self.len]);
        text.copy_from_slice(&self.text);
        record
    }
}

impl Key {
    /// What a text begins with: its first bytes, zeroes behind its end, and how many bytes it has.
    #[inline(always)]
    pub(super) fn new(start: &[u8; PHRASE_BYTES], len: usize) -> Self {
        let (words, _) = start.as_chunks::<8>();
        let mut key = [0; PHRASE_BYTES / 8];
        for (key, word) in key.iter_mut().zip(words) {
            *key = u64::from_be_bytes(*word);
        }
        let [.., last] = &mut key;
        *last = *last & !0xff | len.min(MAX_PHRASE) as u64;
        Self(key)
    }

    #[inline(always)]
    pub(super) fn first(self) -> u64 {
        let Self([first, ..]) = self;
        first
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        let Self([.., last]) = self;
        (last & 0xff) as usize
    }

    #[inline(always)]
    pub(super) fn is_at_most(self, other: Self) -> bool {
        let (Self([a, b, c, d]), Self([e, f, g, h])) = (self, other);
        if a != e {
            return a < e;
        }
        if b != f {
            return b < f;
        }
        if c != g { c < g } else { d <= h }
    }

    /// With how many equal bytes both begin.
    #[inline(always)]
    pub(super) fn common(self, other: Self) -> usize {
        let (Self([a, b, c, d]), Self([e, f, g, h])) = (self, other);
        let bytes = |unlike: u64| unlike.leading_zeros() as usize / 8;
        let equal = if a != e {
            bytes(a ^ e)
        } else if b != f {
            8 + bytes(b ^ f)
        } else if c != g {
            16 + bytes(c ^ g)
        } else {
            24 + bytes(d ^ h)
        };
        equal.min(self.len()).min(other.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn phrase(text: &[u8]) -> Phrase {
        let mut bytes = text.iter().map(|byte| Phrase::single(*byte));
        let first = bytes.next().unwrap();
        bytes.fold(first, |joined, byte| joined.followed_by(&byte).unwrap())
    }

    #[test]
    fn phrases_and_their_keys_are_in_the_order_of_texts() {
        let texts: [&[u8]; 9] =
            [b"a", b"a\0", b"a\0\0", b"a\0b", b"ab", b"abcdefghi", b"abcdefgh", b"\xff", &[b'z'; MAX_PHRASE]];
        for one in texts {
            for other in texts {
                assert_eq!(phrase(one).cmp(&phrase(other)), one.cmp(other));
                assert_eq!(phrase(one).key().is_at_most(phrase(other).key()), one <= other);
                let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
                assert_eq!(phrase(one).key().common(phrase(other).key()), common);
            }
        }
        let long = phrase(&[b'z'; MAX_PHRASE]);
        assert!(long.followed_by(&phrase(b"a")).is_none());
        let record: Vec<u8> = [&[2][..], b"ab", &[0; MAX_PHRASE - 2]].concat();
        assert_eq!(phrase(b"ab").record().as_slice(), record);
    }
}
