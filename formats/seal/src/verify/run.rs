//! One seal under examination: which checks are run, and how they are put in order.

use std::cmp::Reverse;

use super::facts::{SealFacts, SealVerification};
use super::fragments::Fragments;
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
    /// All that were run; of a part that was not asked for nothing is reported, but what is asked for may rest on it.
    checks: Vec<Check>,
    pub(super) facts: SealFacts,
    pub(super) checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl Run {
    pub(super) fn examine(
        bundle_json: &[u8],
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        fragments: &Fragments,
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
                run.push(Check::refused_by(id::SEAL_STRUCTURE, "a Sigstore bundle v0.3", &error));
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
            run.seal(seal, subjects, trust, expectation, fragments, at);
        }
        run
    }

    pub(super) fn holds(&self) -> bool {
        self.failures() == 0
    }

    fn failures(&self) -> usize {
        self.checks.iter().filter(|check| check.is_failed() && self.parts.covers(group(check.id))).count()
    }

    /// How far the seal came, to be compared with others.
    pub(super) fn reach(&self) -> impl Ord + use<> {
        let is_known = self.facts.signer.is_some();
        (self.holds(), is_known, self.passed(id::DSSE_SIGNATURE), Reverse(self.failures()))
    }

    /// Whether a check of that group failed, asked for or not.
    pub(super) fn fails(&self, of: CheckGroup) -> bool {
        self.checks.iter().any(|check| check.is_failed() && group(check.id) == of)
    }

    pub(super) fn passed(&self, id: &str) -> bool {
        self.checks.iter().any(|check| check.id == id && check.status == CheckStatus::Passed)
    }

    pub(super) fn push(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Puts a check in the place of the one with its id.
    pub(super) fn replace(&mut self, check: Check) {
        self.checks.retain(|known| known.id != check.id);
        self.checks.push(check);
    }

    /// The first check that failed, of a part that was asked for.
    pub(super) fn first_failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.is_failed() && self.parts.covers(group(check.id)))
    }

    /// Puts the checks into the catalogue's order and notes those that were not run.
    pub(super) fn finish(mut self) -> SealVerification {
        let mut checks = Vec::new();
        for info in CATALOGUE.iter().filter(|info| info.group != CheckGroup::Content && info.id != id::SEAL_PRESENT) {
            if !self.parts.covers(info.group) {
                checks.push(Check::skipped(info.id, "not asked for"));
                continue;
            }
            let run = self.checks.iter().position(|check| check.id == info.id);
            let unread = || Check::skipped(info.id, "the seal could not be read");
            checks.push(run.map_or_else(unread, |n| self.checks.swap_remove(n)));
        }
        SealVerification { checks, facts: self.facts, checkpoints: self.checkpoints }
    }

    fn seal(
        &mut self,
        seal: &SigstoreBundle,
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        fragments: &Fragments,
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
                self.push(Check::refused_by(id::STATEMENT_TYPE, STATEMENT_TYPE, &error));
                for info in CATALOGUE.iter().filter(|info| info.id.starts_with("statement.")) {
                    if info.id != id::STATEMENT_TYPE {
                        self.push(Check::skipped(info.id, "the statement could not be read"));
                    }
                }
            }
        }
        self.log(seal, key, trust, expectation, fragments, at);
        self.push(match key {
            None => Check::skipped(id::TRUST_REVOCATION, "the key is not in the policy"),
            Some(key) => self.revocation(key, seal, subjects, trust),
        });
    }
}

fn group(id: &str) -> CheckGroup {
    describe(id).map_or(CheckGroup::Seal, |info| info.group)
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
