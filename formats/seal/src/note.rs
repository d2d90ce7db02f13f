//! C2SP signed notes, read strictly: a text, a blank line, signature lines.

use crate::encoding::{from_base64, to_base64};

/// The longest note that is read, in bytes.
pub const NOTE_LIMIT: usize = 64 * 1024;
/// The most signature lines that are read.
pub const MAX_NOTE_SIGNATURES: usize = 64;

/// A note and its signature lines, none of them verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    /// What is signed; ends with a line feed.
    pub text: String,
    /// At least one.
    pub signatures: Vec<NoteSignature>,
}

/// One signature line: `— <name> <base64(hint ‖ signature)>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The signer's name.
    pub name: String,
    /// The first four bytes of the signer's key hash.
    pub hint: [u8; 4],
    /// The signature's bytes.
    pub signature: Vec<u8>,
}

/// A note is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Larger than [`NOTE_LIMIT`].
    #[error("expected a note of at most {NOTE_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// It has a control character other than the line feed.
    #[error("expected no control character but the line feed, found U+{found:04X}")]
    ControlCharacter {
        /// The character.
        found: u32,
    },
    /// No blank line between text and signatures, or no line feed at the end.
    #[error("expected a text, a blank line and signature lines, each ended by a line feed")]
    Layout,
    /// A signature line has another form.
    #[error("expected signature lines \"— name base64\", found {found:?}")]
    SignatureLine {
        /// The line.
        found: String,
    },
    /// Too many signature lines.
    #[error("expected at most {MAX_NOTE_SIGNATURES} signature lines, found more")]
    TooManySignatures,
}

impl SignedNote {
    /// Reads a note. The last blank line separates text and signatures.
    ///
    /// # Errors
    /// [`NoteError`] says what is wrong with it.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        check_text(note)?;
        let (before, after) = note.rsplit_once("\n\n").ok_or(NoteError::Layout)?;
        let signatures = NoteSignature::parse_lines(after)?;
        Ok(Self { text: format!("{before}\n"), signatures })
    }

    /// The note as bytes of a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut note = format!("{}\n", self.text);
        for signature in &self.signatures {
            let mut bytes = signature.hint.to_vec();
            bytes.extend_from_slice(&signature.signature);
            note.push_str(&format!("\u{2014} {} {}\n", signature.name, to_base64(&bytes)));
        }
        note
    }
}

/// What holds of a note and of any part of it.
fn check_text(note: &str) -> Result<(), NoteError> {
    if note.len() > NOTE_LIMIT {
        return Err(NoteError::TooLarge { found: note.len() });
    }
    match note.chars().find(|c| c.is_control() && *c != '\n') {
        Some(found) => Err(NoteError::ControlCharacter { found: found.into() }),
        None => Ok(()),
    }
}

impl NoteSignature {
    /// Reads signature lines that stand alone, as a witness answers them: at least one, each ended by a line feed.
    ///
    /// # Errors
    /// [`NoteError`] says what is wrong with them.
    pub fn parse_lines(lines: &str) -> Result<Vec<Self>, NoteError> {
        check_text(lines)?;
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Layout)?;
        let mut signatures = Vec::new();
        for line in lines.split('\n') {
            if signatures.len() == MAX_NOTE_SIGNATURES {
                return Err(NoteError::TooManySignatures);
            }
            let signature = Self::parse(line)
                .ok_or_else(|| NoteError::SignatureLine { found: line.chars().take(120).collect() })?;
            signatures.push(signature);
        }
        Ok(signatures)
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, encoded) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c == '+') {
            return None;
        }
        let bytes = from_base64(encoded)?;
        let (hint, signature) = bytes.split_first_chunk::<4>()?;
        if signature.is_empty() {
            return None;
        }
        Some(Self { name: name.to_owned(), hint: *hint, signature: signature.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blank_line_separates_text_and_signatures() {
        let note = SignedNote::parse("a\n\nb\n\n\u{2014} n AAAAAAE=\n").unwrap();
        assert_eq!(note.text, "a\n\nb\n");
        assert_eq!(note.signatures, [NoteSignature { name: "n".into(), hint: [0; 4], signature: vec![1] }]);
        assert_eq!(note.to_text(), "a\n\nb\n\n\u{2014} n AAAAAAE=\n");
    }

    #[test]
    fn other_layouts_are_refused() {
        for bad in [
            "",
            "a\n",
            "a\n\n",
            "a\n\n\n",
            "a\n\u{2014} n AAAAAAE=\n",
            "a\n\n\u{2014} n AAAAAAE=",
            "a\r\n\r\n\u{2014} n AAAAAAE=\r\n",
            "a\n\n- n AAAAAAE=\n",
            "a\n\n\u{2014}  AAAAAAE=\n",
            "a\n\n\u{2014} n  AAAAAAE=\n",
            "a\n\n\u{2014} n AAAAAAE= \n",
            "a\n\n \u{2014} n AAAAAAE=\n",
            "a\n\n\u{2014} n+m AAAAAAE=\n",
            "a\n\n\u{2014} n\u{a0}m AAAAAAE=\n",
            "a\n\n\u{2014} n AAAAAA==\n",
            "a\n\n\u{2014} n AAAAAAE\n",
            "a\n\n\u{2014} n AAAAAAE=\ntrailing\n",
            "a\u{0}\n\n\u{2014} n AAAAAAE=\n",
            "a\u{7f}\n\n\u{2014} n AAAAAAE=\n",
        ] {
            assert!(SignedNote::parse(bad).is_err(), "{bad:?}");
        }
        let many = format!("a\n\n{}", "\u{2014} n AAAAAAE=\n".repeat(MAX_NOTE_SIGNATURES + 1));
        assert_eq!(SignedNote::parse(&many), Err(NoteError::TooManySignatures));
        assert!(matches!(SignedNote::parse(&"a".repeat(NOTE_LIMIT + 1)), Err(NoteError::TooLarge { .. })));
    }
}
