//! Asking one witness: a few rounds until both sides speak of the same tree, and what it answers, verified.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::header::CONTENT_TYPE;
use symseal_seal::cosignature::{Cosigned, Witness};
use symseal_seal::encoding::to_hex;
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::{SignedCheckpoint, UtcSeconds};

use super::protocol::{
    WITNESS_ANSWER_LIMIT, WitnessAnswer, WitnessAnswerError, WitnessUrl, parse_witness_answer, request,
};
use crate::anchor::TransparencyLog;
use crate::online;

/// Requests to one witness about one checkpoint: the first asks for the size that it has, and while others have a checkpoint
/// of the same log cosigned that size changes.
const ROUNDS: u32 = 4;
/// So far may a witness's clock be ahead: verifiers count no cosignature from later than that.
const CLOCKS_DIFFER_BY_DAYS: u32 = 1;

/// A witness gave no cosignature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CosignError {
    /// It could not be reached, or did not answer in time.
    #[error("{reason}")]
    Unreachable {
        /// What happened.
        reason: String,
    },
    /// It said no, or nothing that can be read.
    #[error(transparent)]
    Answer(#[from] WitnessAnswerError),
    /// It signed, and nothing of it holds under a key that the policy names for the log.
    #[error("expected a cosignature by {expected}, found {found}")]
    NotCosigned {
        /// Names and key hints of the policy's witnesses.
        expected: String,
        /// What the lines are.
        found: String,
    },
    /// It has seen a larger tree of this log.
    #[error("expected a witness that has seen at most {size} entries, found one that has seen {seen}")]
    Ahead {
        /// Size of the tree that it saw.
        seen: u64,
        /// Size of the tree of the checkpoint.
        size: u64,
    },
    /// It has seen a tree that this one does not continue.
    #[error(
        "expected a witness that has seen the beginning of this tree of {size} entries, found one that has seen {seen} others"
    )]
    OtherHistory {
        /// Size of the tree that it saw.
        seen: u64,
        /// Size of the tree of the checkpoint.
        size: u64,
    },
    /// It names another size each time, or none that helps.
    #[error(
        "expected its cosignature within {ROUNDS} requests, found status 409 each time, at last with the size {seen}"
    )]
    Unsettled {
        /// The size that it named last.
        seen: u64,
    },
    /// The log gave no proof that its tree continues the one that the witness saw.
    #[error("it has seen {seen} entries, and the log does not prove that it continues them: {reason}")]
    NoProof {
        /// Size of the tree that the witness saw.
        seen: u64,
        /// What the log said.
        reason: String,
    },
}

/// What the witnesses are asked to cosign, and who may.
pub(super) struct Question<'a> {
    pub(super) log: &'a dyn TransparencyLog,
    /// The checkpoint as the log gave it.
    pub(super) checkpoint: &'a str,
    pub(super) signed: &'a SignedCheckpoint,
    pub(super) witnesses: &'a [Witness],
    /// How long one witness may take, all its requests together.
    pub(super) limit: Duration,
}

impl Question<'_> {
    /// The lines of one witness's answer that hold under a known key: at least one.
    pub(super) fn ask(&self, url: &WitnessUrl) -> Result<Vec<NoteSignature>, CosignError> {
        let end = Instant::now() + self.limit;
        let size = self.signed.checkpoint.size;
        let mut old = 0;
        for _ in 0..ROUNDS {
            let proof = match old {
                0 => Vec::new(),
                _ => self
                    .log
                    .consistency(old, size)
                    .map_err(|error| CosignError::NoProof { seen: old, reason: error.to_string() })?,
            };
            let body = request(old, &proof, self.checkpoint);
            match post(url, body, end.saturating_duration_since(Instant::now()), self.limit)? {
                Ok(WitnessAnswer::Cosignatures(lines)) => return self.verified(lines),
                Ok(WitnessAnswer::Has(seen)) if seen > size => return Err(CosignError::Ahead { seen, size }),
                // The specification's answer for another root of the same size.
                Ok(WitnessAnswer::Has(seen)) if seen == old && seen == size => {
                    return Err(CosignError::OtherHistory { seen, size });
                }
                Ok(WitnessAnswer::Has(seen)) => old = seen,
                Err(WitnessAnswerError::Inconsistent) if old > 0 => {
                    return Err(CosignError::OtherHistory { seen: old, size });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(CosignError::Unsettled { seen: old })
    }

    /// The lines that hold; those of strangers are dropped.
    fn verified(&self, lines: Vec<NoteSignature>) -> Result<Vec<NoteSignature>, CosignError> {
        let mut found = Vec::new();
        let mut held = Vec::new();
        for line in lines {
            let signer = format!("{}+{}", line.name, to_hex(&line.hint));
            match judge(&self.signed.note.text, self.witnesses, &line) {
                Ok(()) => held.push(line),
                Err(reason) => found.push(format!("{signer}, {reason}")),
            }
        }
        if held.is_empty() {
            let expected: Vec<String> =
                self.witnesses.iter().map(|one| format!("{}+{}", one.name(), to_hex(&one.hint()))).collect();
            found.truncate(4);
            return Err(CosignError::NotCosigned { expected: expected.join(" or "), found: found.join("; ") });
        }
        Ok(held)
    }
}

/// Whether a line is a known witness's over this text, at a time that verifiers count.
fn judge(text: &str, witnesses: &[Witness], line: &NoteSignature) -> Result<(), String> {
    let alone = SignedNote { text: text.to_owned(), signatures: vec![line.clone()] };
    let mut result = Err("whom the trust directory does not name".to_owned());
    for witness in witnesses {
        match witness.cosigned(&alone) {
            Cosigned::At(time) if counts(time) => return Ok(()),
            Cosigned::At(time) => result = Err(format!("of {time}, which is no time to have seen it")),
            Cosigned::Bad => result = Err("which does not verify".to_owned()),
            Cosigned::Absent => {}
        }
    }
    result
}

/// Whether verifiers will count a cosignature of this time from now on.
pub(super) fn counts(time: UtcSeconds) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = UtcSeconds(i64::try_from(now).unwrap_or(i64::MAX));
    time.0 > 0 && time <= now.plus_days(CLOCKS_DIFFER_BY_DAYS)
}

/// One request within `left` of the whole `limit`. The outer error is of the way there, the inner one of the answer.
fn post(
    url: &WitnessUrl,
    body: String,
    left: Duration,
    limit: Duration,
) -> Result<Result<WitnessAnswer, WitnessAnswerError>, CosignError> {
    let late = || CosignError::Unreachable { reason: format!("no answer within {} seconds", limit.as_secs_f32()) };
    if left.is_zero() {
        return Err(late());
    }
    let ask = async || {
        let broken = |error: reqwest::Error| CosignError::Unreachable { reason: online::reasons(&error) };
        let client = online::client().build().map_err(broken)?;
        let request = client.post(format!("{url}/add-checkpoint")).body(body);
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if bytes.len().saturating_add(chunk.len()) > WITNESS_ANSWER_LIMIT {
                return Ok(Err(WitnessAnswerError::TooLarge));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(parse_witness_answer(status, content_type.as_deref(), &bytes))
    };
    // What else goes wrong there than the time running out has its own words above.
    online::within(left, ask, |reason| CosignError::Unreachable { reason })
}
