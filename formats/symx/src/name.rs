//! A name of a table, which may be put together from phrases.

use crate::data::{stored, text_of};
use crate::phrases::{self, Codes, Phrases, phrase_text};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A name as a table has it: whole, or as numbers of phrases. It is read, and its text made, when that is asked for.
///
/// Two names are equal where their texts are. What cannot be read in a damaged table reads as the empty text.
#[derive(Clone, Copy, Default)]
pub struct Name<'a> {
    section: &'a [u8],
    place: u32,
    /// `None` where names are whole.
    phrases: Option<Phrases<'a>>,
}

impl<'a> Name<'a> {
    #[inline(always)]
    pub(crate) fn at(section: &'a [u8], place: u32, phrases: Option<Phrases<'a>>) -> Self {
        Self { section, place, phrases }
    }

    /// Where the name lies in its table. Names of one table are the same name where they lie at the same place.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.stored().is_empty()
    }

    /// The text, borrowed where the table has it whole.
    pub fn text(&self) -> Cow<'a, str> {
        match self.phrases {
            None => Cow::Borrowed(text_of(self.stored())),
            Some(phrases) => Cow::Owned(self.decoded(phrases)),
        }
    }

    /// The text, put into `buffer` where the table has it in phrases: a buffer serves many names without allocating.
    pub fn text_in<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b str
    where
        'a: 'b,
    {
        let Some(phrases) = self.phrases else { return text_of(self.stored()) };
        buffer.clear();
        match phrases::decode(buffer, self.stored(), phrases) {
            Some(()) => text_of(buffer),
            None => "",
        }
    }

    /// The text in pieces, without a buffer. They are not looked at: in a damaged table they may be no UTF-8, or break off.
    pub fn pieces(&self) -> Pieces<'a> {
        match self.phrases {
            None => Pieces { whole: Some(text_of(self.stored()).as_bytes()), codes: Codes::new(&[]), phrases: &[] },
            Some(phrases) => Pieces { whole: None, codes: Codes::new(self.stored()), phrases },
        }
    }

    /// What the table has of the name: its text, or the codes of its phrases. One name of one table is one slice.
    #[inline]
    pub fn stored(&self) -> &'a [u8] {
        stored(self.section, self.place)
    }

    fn decoded(&self, phrases: Phrases<'a>) -> String {
        let stored = self.stored();
        let mut text = Vec::with_capacity(stored.len() * 8);
        match phrases::decode(&mut text, stored, phrases) {
            Some(()) => String::from_utf8(text).unwrap_or_default(),
            None => String::new(),
        }
    }
}

/// The pieces of a name's text.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    whole: Option<&'a [u8]>,
    codes: Codes<'a>,
    phrases: Phrases<'a>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.whole.take().or_else(|| phrase_text(self.phrases.get(self.codes.next()?)?))
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Name<'_> {}

impl PartialEq<str> for Name<'_> {
    fn eq(&self, other: &str) -> bool {
        self.text() == other
    }
}

impl PartialEq<&str> for Name<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.text() == *other
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}
