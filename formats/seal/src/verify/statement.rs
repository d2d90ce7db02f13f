//! The checks of what was signed: the statement and its subjects.

use super::run::{Run, shortened_plain};
use super::{Expectation, SubjectDigests};
use crate::checks::{Check, id};
use crate::encoding::{Hash, to_hex};
use crate::statement::{INDEX_SUBJECT, PREDICATE_TYPE, Predicate, STATEMENT_TYPE, Statement};

impl Run {
    pub(super) fn statement(
        &mut self,
        statement: &Statement,
        subjects: &SubjectDigests,
        expectation: &Expectation<'_>,
    ) {
        let release = &statement.predicate.release;
        self.push(Check::compare(id::STATEMENT_TYPE, STATEMENT_TYPE, shortened_plain(&statement.statement_type)));
        self.push(Check::compare(id::STATEMENT_PREDICATE, PREDICATE_TYPE, shortened_plain(&statement.predicate_type)));
        let bundle = statement.subject_digest(&release.subject_name());
        let index = statement.subject_digest(INDEX_SUBJECT);
        let subject = release.subject_name();
        self.push(subject_check(id::STATEMENT_SUBJECT_BUNDLE, &subject, bundle, subjects.bundle));
        self.push(subject_check(id::STATEMENT_SUBJECT_INDEX, INDEX_SUBJECT, index, subjects.symbol_index));
        self.push(modules_check(&statement.predicate, subjects));
        self.facts.signed_modules_root.clone_from(&statement.predicate.modules_root);
        for (check, asked, claimed, signed) in [
            (id::STATEMENT_NAME, expectation.name, expectation.claimed_name, &release.name),
            (id::STATEMENT_VERSION, expectation.version, expectation.claimed_version, &release.version),
        ] {
            self.push(release_check(check, asked, claimed, signed));
        }
        self.facts.signed_bundle_sha256 = bundle.map(|hash| to_hex(&hash));
        self.facts.signed_index_sha256 = index.map(|hash| to_hex(&hash));
        self.facts.release = Some(release.clone());
    }
}

/// Compares a name or a version with what was asked for; or with what the bundle says of itself, which answers nobody's question.
fn release_check(check: &'static str, asked: Option<&str>, claimed: Option<&str>, signed: &str) -> Check {
    const NOT_ASKED: &str = "none in particular was asked for";
    match (asked, claimed) {
        (Some(asked), _) => Check::compare(check, asked, signed),
        (None, Some(claimed)) if claimed != signed => {
            Check::failed(check, claimed, signed).with_detail(format!("{NOT_ASKED}; the symbol index says otherwise"))
        }
        (None, Some(_)) => Check::skipped(check, format!("{NOT_ASKED}; seal and symbol index say {signed}")),
        (None, None) => Check::skipped(check, format!("{NOT_ASKED}; the seal says {signed}")),
    }
}

/// Compares what a statement says of the modules with the symbol index: their list, and the root over their entries.
fn modules_check(signed: &Predicate, subjects: &SubjectDigests) -> Check {
    let list = |count: u64, sha256: &str| format!("{count} debug ids with sha256 {sha256}");
    let signed_list = list(signed.modules.count, &shortened_plain(&signed.modules.sha256));
    let found_list = subjects.modules.map(|found| list(found.count, &to_hex(&found.sha256)));
    let signed_root = signed.modules_root.as_deref().map(shortened_plain);
    let found_root = subjects.modules_root.map(|root| to_hex(&root));
    if let Some(found) = found_list.as_ref().filter(|found| **found != signed_list) {
        return Check::failed(id::STATEMENT_MODULES, found, signed_list).with_detail("as the symbol index has them");
    }
    match (signed_root, found_root) {
        (Some(signed), Some(found)) => Check::compare(id::STATEMENT_MODULES, found, signed),
        (None, _) if found_list.is_some() => Check::passed(id::STATEMENT_MODULES, signed_list)
            .with_detail("the statement names no root over them: a frame of the bundle cannot be proved"),
        (signed, _) => {
            let root = signed.unwrap_or_else(|| "none".to_owned());
            let why =
                format!("signed as {signed_list} and the root {root}, not recomputed: there is nothing to compare");
            Check::skipped(id::STATEMENT_MODULES, why)
        }
    }
}

/// Compares a signed subject with a recomputed digest.
fn subject_check(check: &'static str, name: &str, signed: Option<Hash>, computed: Option<Hash>) -> Check {
    let text = |hash: &Hash| format!("sha256:{}", to_hex(hash));
    match (signed, computed) {
        (None, _) => Check::failed(check, format!("exactly one subject {name} with a sha256"), "none, or several"),
        (Some(signed), None) => {
            Check::skipped(check, format!("signed as {}, not recomputed: the file is not here", text(&signed)))
        }
        (Some(signed), Some(computed)) => {
            Check::compare(check, text(&computed), text(&signed)).with_detail(format!("subject {name}"))
        }
    }
}
