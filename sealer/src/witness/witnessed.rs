//! A log whose entries come back cosigned.

use std::time::Duration;

use symseal_seal::cosignature::Cosigned;
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::trust::PolicyLog;
use symseal_seal::{ArtifactPublicKey, Check, Envelope, LogEntry, LogIdentity, SignedCheckpoint, checks, verify_entry};

use super::ask::{CosignError, Question, counts};
use super::protocol::WitnessUrl;
use crate::anchor::{AnchorError, TransparencyLog, anchor_verified};

/// How often a newer checkpoint of a log is tried that others append to at the same time.
const RENEWALS: u32 = 4;

/// Which witnesses are asked, whose keys count, and how many must answer.
#[derive(Debug, Clone)]
pub struct Witnesses {
    urls: Vec<WitnessUrl>,
    logs: Vec<PolicyLog>,
    limit: Duration,
}

/// No witness of the log can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWitnesses {
    /// The trust directory has no witness for it.
    #[error(
        "expected a log with witnesses in the trust directory, found none for {log}: add their keys there first (symseal trust add-log --witness)"
    )]
    Unnamed {
        /// Origins of the logs that may answer.
        log: String,
    },
    /// A Rekor v1 publishes no tiles.
    #[error(
        "expected a log that publishes tiles, found the Rekor v1 {log}: it has none, from which a witness is shown that the log only grew"
    )]
    RekorV1 {
        /// Its origin.
        log: String,
    },
}

impl Witnesses {
    /// Asks at `urls` for cosignatures by the witnesses that a policy names for `logs`, the ones that may answer; each witness
    /// may take as long as `limit`.
    ///
    /// # Errors
    /// [`NoWitnesses`].
    pub fn new(urls: &[WitnessUrl], logs: &[PolicyLog], limit: Duration) -> Result<Self, NoWitnesses> {
        let origins = || logs.iter().map(|log| log.identity.origin.as_str()).collect::<Vec<_>>().join(", ");
        if !logs.is_empty() && logs.iter().all(|log| log.identity.origin.is_rekor_v1()) {
            return Err(NoWitnesses::RekorV1 { log: origins() });
        }
        if logs.iter().all(|log| log.witnesses.is_empty()) {
            let log = if logs.is_empty() { "this log".to_owned() } else { origins() };
            return Err(NoWitnesses::Unnamed { log });
        }
        let mut urls = urls.to_vec();
        urls.sort();
        urls.dedup();
        Ok(Self { urls, logs: logs.to_vec(), limit })
    }

    /// The log that answered with this entry.
    fn log_of(&self, entry: &LogEntry) -> Option<&PolicyLog> {
        let origin = entry.checkpoint.lines().next().unwrap_or_default();
        let named = |log: &&PolicyLog| log.id == entry.log_id && log.identity.origin.as_str() == origin;
        self.logs.iter().find(named).filter(|log| !log.witnesses.is_empty())
    }
}

/// A log whose entries come back with the cosignatures of witnesses.
pub struct WitnessedLog<'a> {
    log: &'a mut dyn TransparencyLog,
    witnesses: &'a Witnesses,
    failed: Vec<(WitnessUrl, CosignError)>,
}

/// What asking every witness about one entry gave.
struct Round {
    entry: LogEntry,
    /// Names of the witnesses whose cosignatures the entry has.
    cosigned: Vec<String>,
    failed: Vec<(WitnessUrl, CosignError)>,
}

impl<'a> WitnessedLog<'a> {
    /// Entries of `log`, cosigned.
    #[must_use]
    pub fn new(log: &'a mut dyn TransparencyLog, witnesses: &'a Witnesses) -> Self {
        Self { log, witnesses, failed: Vec::new() }
    }

    /// The witnesses that gave no cosignature for the last entry, and why; enough others did.
    #[must_use]
    pub fn failed(&self) -> &[(WitnessUrl, CosignError)] {
        &self.failed
    }

    /// Asks every witness about an entry, all at the same time.
    fn ask(&self, entry: &LogEntry, policy: &PolicyLog) -> Result<Round, AnchorError> {
        let signed = SignedCheckpoint::parse(&entry.checkpoint).map_err(|error| AnchorError::Wrong {
            log: self.log.name(),
            check: Check::refused_by(checks::id::LOG_CHECKPOINT, "a checkpoint", &error),
        })?;
        let question = Question {
            log: &*self.log,
            checkpoint: &entry.checkpoint,
            signed: &signed,
            witnesses: &policy.witnesses,
            limit: self.witnesses.limit,
        };
        let answers: Vec<Result<Vec<NoteSignature>, CosignError>> = std::thread::scope(|scope| {
            let ask = |url| {
                let question = &question;
                scope.spawn(move || question.ask(url))
            };
            let asked: Vec<_> = self.witnesses.urls.iter().map(ask).collect();
            let died = || CosignError::Unreachable { reason: "the client ended without an answer".to_owned() };
            asked.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(died()))).collect()
        });
        let mut failed = Vec::new();
        let mut lines = Vec::new();
        for (url, answer) in self.witnesses.urls.iter().zip(answers) {
            match answer {
                Ok(more) => lines.extend(more),
                Err(error) => failed.push((url.clone(), error)),
            }
        }
        let note = with_lines(signed.note, lines);
        let cosigned =
            policy.witnesses.iter().filter(|one| matches!(one.cosigned(&note), Cosigned::At(at) if counts(at)));
        let cosigned = cosigned.map(|one| one.name().to_owned()).collect();
        let entry = LogEntry { checkpoint: note.to_text(), ..entry.clone() };
        Ok(Round { entry, cosigned, failed })
    }

    /// The error of a log that contradicts what a witness saw, where one did.
    fn second_history(&self, round: &Round, alone: bool) -> Result<(), AnchorError> {
        let contradicts = |error: &CosignError| match error {
            CosignError::OtherHistory { .. } => true,
            CosignError::Ahead { .. } => alone,
            _ => false,
        };
        match round.failed.iter().find(|(_, error)| contradicts(error)) {
            None => Ok(()),
            Some((url, error)) => Err(AnchorError::SecondHistory {
                log: self.log.name(),
                witness: url.to_string(),
                reason: error.to_string(),
            }),
        }
    }

    /// The entry under a newer checkpoint, as a witness has seen more of the log than the one it has; `None` where that cannot
    /// be the reason.
    fn renewed(
        &self,
        round: &Round,
        envelope: &Envelope,
        key: &ArtifactPublicKey,
        log: &LogIdentity,
    ) -> Result<Option<LogEntry>, AnchorError> {
        self.second_history(round, false)?;
        if !round.failed.iter().any(|(_, error)| matches!(error, CosignError::Ahead { .. })) {
            return Ok(None);
        }
        let Some(newer) = self.log.renewed(&round.entry)? else {
            return self.second_history(round, true).map(|()| None);
        };
        if newer.proof_size <= round.entry.proof_size {
            return Ok(None);
        }
        match verify_entry(&newer, envelope, key, log) {
            Ok(_) => Ok(Some(newer)),
            Err(check) => Err(AnchorError::Wrong { log: self.log.name(), check }),
        }
    }
}

/// The note with further lines: sorted by name, and without those of signers that have one already.
fn with_lines(mut note: SignedNote, mut lines: Vec<NoteSignature>) -> SignedNote {
    let key = |line: &NoteSignature| (line.name.clone(), line.hint, line.signature.clone());
    lines.sort_by_key(key);
    for line in lines {
        if !note.signatures.iter().any(|known| (&known.name, known.hint) == (&line.name, line.hint)) {
            note.signatures.push(line);
        }
    }
    note
}

impl TransparencyLog for WitnessedLog<'_> {
    fn name(&self) -> String {
        self.log.name()
    }

    fn identities(&self) -> Vec<LogIdentity> {
        self.log.identities()
    }

    fn anchor(&mut self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError> {
        self.failed.clear();
        let mut entry = anchor_verified(self.log, envelope, key)?;
        let unnamed = || AnchorError::NoWitnesses { log: self.log.name(), found: entry.log_id };
        let policy = self.witnesses.log_of(&entry).ok_or_else(unnamed)?;
        let quorum = policy.witness_quorum;
        let enough = |round: &Round| round.cosigned.len() as u64 >= quorum;
        let mut best: Option<Round> = None;
        for _ in 0..RENEWALS {
            let round = self.ask(&entry, policy)?;
            let newer = match self.renewed(&round, envelope, key, &policy.identity) {
                // Whoever had seen more is missing then, and not more.
                Err(error) if !enough(&round) || matches!(error, AnchorError::SecondHistory { .. }) => {
                    return Err(error);
                }
                newer => newer.ok().flatten(),
            };
            if best.as_ref().is_none_or(|best| round.cosigned.len() > best.cosigned.len()) {
                best = Some(round);
            }
            match newer {
                Some(newer) => entry = newer,
                None => break,
            }
        }
        let Some(round) = best else { return Ok(entry) };
        if !enough(&round) {
            let reasons: Vec<String> =
                round.failed.iter().map(|(url, error)| format!("witness {url}: {error}")).collect();
            let found = match round.cosigned.as_slice() {
                [] => "none".to_owned(),
                names => format!("{} ({})", names.len(), names.join(", ")),
            };
            return Err(AnchorError::Witnesses { log: self.log.name(), quorum, found, reasons: reasons.join("; ") });
        }
        self.failed = round.failed;
        Ok(round.entry)
    }

    fn consistency(&self, from: u64, to: u64) -> Result<Vec<symseal_seal::Hash>, AnchorError> {
        self.log.consistency(from, to)
    }

    fn renewed(&self, entry: &LogEntry) -> Result<Option<LogEntry>, AnchorError> {
        self.log.renewed(entry)
    }
}
