//! The checks of what was signed: the statement and its subjects.

use super::run::{Run, shortened_plain};
use super::{Expectation, SubjectDigests};
use crate::checks::{Check, id};
use crate::encoding::{Hash, to_hex};
use crate::statement::{INDEX_SUBJECT, PREDICATE_TYPE, STATEMENT_TYPE, Statement};

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
        let signed_root = &statement.predicate.modules_root;
        self.push(match (signed_root, subjects.modules_root) {
            (Some(signed), Some(found)) => {
                Check::compare(id::STATEMENT_MODULES, shortened_plain(signed), to_hex(&found))
            }
            (Some(signed), None) => {
                Check::passed(id::STATEMENT_MODULES, shortened_plain(signed)).with_detail("as signed, not recomputed")
            }
            (None, _) => {
                Check::passed(id::STATEMENT_MODULES, "none").with_detail("a frame of the bundle cannot be proved")
            }
        });
        self.facts.signed_modules_root.clone_from(signed_root);
        for (check, asked, found) in [
            (id::STATEMENT_NAME, expectation.name, &release.name),
            (id::STATEMENT_VERSION, expectation.version, &release.version),
        ] {
            self.push(match asked {
                Some(asked) => Check::compare(check, asked, found.as_str()),
                None => Check::passed(check, found.as_str()).with_detail("none in particular was asked for"),
            });
        }
        self.facts.signed_bundle_sha256 = bundle.map(|hash| to_hex(&hash));
        self.facts.signed_index_sha256 = index.map(|hash| to_hex(&hash));
        self.facts.release = Some(release.clone());
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
