//! What a witness is asked and what it answers: C2SP tlog-witness, `POST <prefix>/add-checkpoint`.

use std::fmt;
use std::str::FromStr;

use symseal_seal::encoding::decimal;
use symseal_seal::note::{NOTE_LIMIT, NoteError, NoteSignature};

use crate::anchor::is_host_and_path;

/// Bytes of an answer that are read: as many as a note may have.
pub const WITNESS_ANSWER_LIMIT: usize = NOTE_LIMIT;
/// `Content-Type` of the answer that gives the size which the witness has.
const SIZE_TYPE: &str = "text/x.tlog.size";
/// Characters that are repeated of a witness's words.
const SAID_LIMIT: usize = 200;

/// Where a witness is asked: its submission prefix, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WitnessUrl(String);

/// The text is no URL of a witness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a witness as https://HOST[/PATH] (without user, query or fragment), found {found:?}")]
pub struct WitnessUrlError {
    found: String,
}

impl FromStr for WitnessUrl {
    type Err = WitnessUrlError;

    fn from_str(text: &str) -> Result<Self, WitnessUrlError> {
        let after = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match after {
            Some(after) if is_host_and_path(after) => Ok(Self(text.trim_end_matches('/').to_owned())),
            _ => Err(WitnessUrlError { found: text.chars().take(120).collect() }),
        }
    }
}

impl fmt::Display for WitnessUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The body of a request: the size of the tree that the witness is said to have, the proof that the checkpoint's tree begins
/// with that one, and the checkpoint.
#[cfg(any(feature = "online", test))]
pub(super) fn request(old: u64, proof: &[symseal_seal::Hash], checkpoint: &str) -> String {
    let mut body = format!("old {old}\n");
    for hash in proof {
        body.push_str(&symseal_seal::encoding::to_base64(hash));
        body.push('\n');
    }
    body.push('\n');
    body.push_str(checkpoint);
    body
}

/// What a witness answers where it has read the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessAnswer {
    /// It saw the checkpoint: its signature lines, none of them verified yet.
    Cosignatures(Vec<NoteSignature>),
    /// It has a tree of this size, and was told of another one.
    Has(u64),
}

/// A witness did not take the checkpoint, or its answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WitnessAnswerError {
    /// Longer than any answer.
    #[error("expected an answer of at most {WITNESS_ANSWER_LIMIT} bytes, found more")]
    TooLarge,
    /// Status 200, and no signature lines.
    #[error("expected signature lines, found an answer that cannot be read: {reason}")]
    Lines {
        /// What is wrong with them.
        reason: String,
    },
    /// Status 409, and no size.
    #[error("expected the size of the tree that the witness has ({SIZE_TYPE}), found {found}")]
    Size {
        /// The media type or the text.
        found: String,
    },
    /// Status 404.
    #[error(
        "expected a witness that knows the log, found status 404: it knows no log of this origin, or nothing is there"
    )]
    UnknownLog,
    /// Status 403.
    #[error("expected a witness that knows the log's key, found status 403: it knows another key of this log")]
    UnknownKey,
    /// Status 422.
    #[error(
        "expected a witness that takes the log's consistency proof, found status 422: the tree that it saw is no part of this one"
    )]
    Inconsistent,
    /// Status 300 to 399.
    #[error("expected a witness at this URL, found status {status}: redirections are not followed")]
    Redirected {
        /// The status.
        status: u16,
    },
    /// Any other status.
    #[error("expected status 200, found {status}: {said}")]
    Status {
        /// The status.
        status: u16,
        /// What the witness said.
        said: String,
    },
}

/// Reads an answer. Nothing of it is verified.
///
/// # Errors
/// [`WitnessAnswerError`].
pub fn parse_witness_answer(
    status: u16,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<WitnessAnswer, WitnessAnswerError> {
    if body.len() > WITNESS_ANSWER_LIMIT {
        return Err(WitnessAnswerError::TooLarge);
    }
    match status {
        200 => {
            let unread = |reason: String| WitnessAnswerError::Lines { reason };
            let text = std::str::from_utf8(body).map_err(|error| unread(error.to_string()))?;
            let lines = NoteSignature::parse_lines(text).map_err(|error: NoteError| unread(error.to_string()))?;
            Ok(WitnessAnswer::Cosignatures(lines))
        }
        409 => {
            let media_type = content_type.map(|text| text.split(';').next().unwrap_or_default().trim());
            if media_type != Some(SIZE_TYPE) {
                return Err(WitnessAnswerError::Size {
                    found: shown(content_type.unwrap_or("no media type").as_bytes()),
                });
            }
            let text = body.strip_suffix(b"\n").unwrap_or(body);
            let size = std::str::from_utf8(text).ok().and_then(decimal);
            size.map(WitnessAnswer::Has).ok_or_else(|| WitnessAnswerError::Size { found: shown(body) })
        }
        403 => Err(WitnessAnswerError::UnknownKey),
        404 => Err(WitnessAnswerError::UnknownLog),
        422 => Err(WitnessAnswerError::Inconsistent),
        300..=399 => Err(WitnessAnswerError::Redirected { status }),
        _ => Err(WitnessAnswerError::Status { status, said: shown(body) }),
    }
}

/// The beginning of a text from outside, in quotes.
fn shown(text: &[u8]) -> String {
    let start = text.get(..4 * SAID_LIMIT).unwrap_or(text);
    format!("{:?}", String::from_utf8_lossy(start).trim().chars().take(SAID_LIMIT).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_lines_of_the_specification() {
        let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert_eq!(request(0, &[], "log\n1\n"), "old 0\n\nlog\n1\n");
        assert_eq!(request(20, &[[0; 32]; 2], "log\n"), format!("old 20\n{zeros}\n{zeros}\n\nlog\n"));
    }

    #[test]
    fn a_size_is_a_number_of_its_media_type() {
        let read = |media_type, body: &str| parse_witness_answer(409, media_type, body.as_bytes());
        assert_eq!(read(Some(SIZE_TYPE), "42\n"), Ok(WitnessAnswer::Has(42)));
        assert_eq!(read(Some("text/x.tlog.size; charset=utf-8"), "0"), Ok(WitnessAnswer::Has(0)));
        assert_eq!(read(Some(SIZE_TYPE), "18446744073709551615\n"), Ok(WitnessAnswer::Has(u64::MAX)));
        for (media_type, body) in [
            (None, "42\n"),
            (Some("text/plain"), "42\n"),
            (Some(SIZE_TYPE), ""),
            (Some(SIZE_TYPE), "-1\n"),
            (Some(SIZE_TYPE), "042\n"),
            (Some(SIZE_TYPE), "42\n\n"),
            (Some(SIZE_TYPE), " 42\n"),
            (Some(SIZE_TYPE), "18446744073709551616\n"),
        ] {
            let refused = read(media_type, body);
            assert!(matches!(refused, Err(WitnessAnswerError::Size { .. })), "{media_type:?} {body:?} {refused:?}");
        }
    }

    #[test]
    fn an_answer_of_another_kind_is_told() {
        let read = |status, body: &[u8]| parse_witness_answer(status, None, body).unwrap_err();
        assert!(matches!(read(200, b"\xFF\n"), WitnessAnswerError::Lines { .. }));
        assert!(matches!(read(200, b""), WitnessAnswerError::Lines { .. }));
        assert!(matches!(read(200, "\u{2014} w AAAAAAE=".as_bytes()), WitnessAnswerError::Lines { .. }));
        assert_eq!(read(200, &vec![b'\n'; WITNESS_ANSWER_LIMIT + 1]), WitnessAnswerError::TooLarge);
        assert_eq!(read(403, b""), WitnessAnswerError::UnknownKey);
        assert_eq!(read(404, b""), WitnessAnswerError::UnknownLog);
        assert_eq!(read(422, b""), WitnessAnswerError::Inconsistent);
        assert_eq!(read(302, b""), WitnessAnswerError::Redirected { status: 302 });
        let said = read(500, b"\x1b[31mno\n").to_string();
        assert!(said.contains("500") && said.contains("no") && !said.contains('\x1b'), "{said}");
    }

    #[test]
    fn a_witness_is_asked_at_a_host_and_a_path() {
        let parse = |text: &str| text.parse::<WitnessUrl>();
        assert_eq!(parse("https://w.example/").unwrap().to_string(), "https://w.example");
        assert_eq!(parse("http://127.0.0.1:7380/a/b").unwrap().to_string(), "http://127.0.0.1:7380/a/b");
        for bad in ["", "w.example", "https://", "https://u:p@w.example", "https://w.example?x", "ftp://w.example"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
