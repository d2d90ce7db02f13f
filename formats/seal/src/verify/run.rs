//! One seal under examination: which checks are run, and how they are put in order.

use super::facts::{SealFacts, SealVerification};
use super::{Expectation, SubjectDigests};
use crate::checkpoint::{Checkpoint, LogIdentity};
use crate::checks::{CATALOGUE, Check, CheckGroup, CheckStatus, Parts, describe, id};
use crate::encoding::{sha256, to_hex};
use crate::sigstore::SigstoreBundle;
use crate::statement::{STATEMENT_TYPE, Statement};
use crate::time::UtcSeconds;
use crate::trust::Trust;

/// Why what needs a memory was not checked.
pub(super) const NO_STATE: &str = "nothing is known of what was seen before: no state directory was given";

/// One seal under examination.
pub(super) struct Run {
    pub(super) parts: Parts,
    pub(super) checks: Vec<Check>,
    pub(super) facts: SealFacts,
    pub(super) checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl Run {
    pub(super) fn examine(
        bundle_json: &[u8],
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        at: UtcSeconds,
    ) -> Self {
        let mut run =
            Self { parts: expectation.parts, checks: Vec::new(), facts: SealFacts::default(), checkpoints: Vec::new() };
        let seal = match SigstoreBundle::parse(bundle_json) {
            Ok(seal) => {
                run.push(Check::passed(id::SEAL_STRUCTURE, "a Sigstore bundle v0.3"));
                Some(seal)
            }
            Err(error) => {
                run.push(Check::failed(id::SEAL_STRUCTURE, "a Sigstore bundle v0.3", error.to_string()));
                None
            }
        };
        for check in trust.checks(at) {
            run.push(check);
        }
        match expectation.seen {
            Some(seen) => seen.trust_checks(trust).into_iter().for_each(|check| run.push(check)),
            None => {
                for check in [id::TRUST_ROOT_CHAIN, id::TRUST_POLICY_VERSION] {
                    run.push(Check::skipped(check, NO_STATE));
                }
            }
        }
        if let Some(seal) = &seal {
            run.seal(seal, subjects, trust, expectation, at);
        }
        run
    }

    pub(super) fn holds(&self) -> bool {
        !self.checks.iter().any(Check::is_failed)
    }

    pub(super) fn passed(&self, id: &str) -> bool {
        self.checks.iter().any(|check| check.id == id && check.status == CheckStatus::Passed)
    }

    pub(super) fn push(&mut self, check: Check) {
        let group = describe(check.id).map_or(CheckGroup::Seal, |info| info.group);
        if self.parts.covers(group) {
            self.checks.push(check);
        }
    }

    /// Puts the checks into the catalogue's order and notes those that were not run.
    pub(super) fn finish(mut self) -> SealVerification {
        let mut checks = Vec::new();
        for info in CATALOGUE.iter().filter(|info| info.group != CheckGroup::Content && info.id != id::SEAL_PRESENT) {
            let why = if self.parts.covers(info.group) { "the seal could not be read" } else { "not asked for" };
            let run = self.checks.iter().position(|check| check.id == info.id);
            checks.push(run.map_or_else(|| Check::skipped(info.id, why), |n| self.checks.swap_remove(n)));
        }
        SealVerification { checks, facts: self.facts, checkpoints: self.checkpoints }
    }

    fn seal(
        &mut self,
        seal: &SigstoreBundle,
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        at: UtcSeconds,
    ) {
        self.facts.dsse_ref = Some(seal.envelope.reference());
        let statement = Statement::parse(&seal.envelope.payload);
        let key = trust.policy.key(&seal.hint);
        self.key(seal, key, trust, statement.as_ref().ok(), at);
        self.envelope(seal, key);
        match &statement {
            Ok(statement) => self.statement(statement, subjects, expectation),
            Err(error) => {
                self.push(Check::failed(id::STATEMENT_TYPE, STATEMENT_TYPE, error.to_string()));
                for info in CATALOGUE.iter().filter(|info| info.id.starts_with("statement.")) {
                    if info.id != id::STATEMENT_TYPE {
                        self.push(Check::skipped(info.id, "the statement could not be read"));
                    }
                }
            }
        }
        self.log(seal, key, trust, expectation, at);
        self.push(match key {
            None => Check::skipped(id::TRUST_REVOCATION, "the key is not in the policy"),
            Some(key) => self.revocation(key, seal, subjects, trust),
        });
    }
}

/// What is printed of a text that came from outside.
pub(super) fn shortened(text: &str) -> String {
    format!("{:?}", shortened_plain(text))
}

/// Long texts are cut, but never so that two different ones look the same.
pub(super) fn shortened_plain(text: &str) -> String {
    if text.chars().count() <= 200 && !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let start: String = text.chars().take(80).flat_map(char::escape_default).collect();
    format!("{start}… (sha256 {})", to_hex(&sha256(text.as_bytes())))
}
