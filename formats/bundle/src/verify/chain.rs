//! The chain from a bundle's files to the log's checkpoint, for people: each link, what vouches for it, and the checks that say so.
//! Every check of the catalogue stands in one link, so that none can fail unseen.

use symseal_seal::checks::id;
use symseal_seal::{CheckStatus, Release};

use super::{Report, Verdict};

/// One link of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What it is about, with the values of the bundle at hand. They are what the bundle says, and not escaped.
    pub what: String,
    /// What vouches for it.
    pub held_by: &'static str,
    /// The checks that say so.
    pub checks: &'static [&'static str],
    /// Whether they do.
    pub held: Held,
}

/// Whether a link holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Each of its checks passed, but for these, which were not run.
    Holds(Vec<&'static str>),
    /// These of them failed.
    Broken(Vec<&'static str>),
    /// None was run; in a refused bundle, as it did not come to them.
    Open {
        /// Whether the bundle was refused.
        refused: bool,
    },
}

/// The links in the order of the chain. What a kit or a frame's proof adds is there where the report has checks of one.
pub fn chain(report: &Report) -> Vec<Link> {
    let all = links(report);
    let is_there =
        |link: &Link| !link.checks.iter().all(|check| super::is_of_another_object(check)) || has(report, link);
    all.into_iter().filter(is_there).collect()
}

fn has(report: &Report, link: &Link) -> bool {
    report.checks.iter().any(|check| link.checks.contains(&check.id))
}

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| "(unknown)".to_owned())
}

fn links(report: &Report) -> Vec<Link> {
    let seal = &report.seal;
    let link = |what: String, held_by, checks| Link { what, held_by, checks, held: held(report, checks) };
    let digest = |digest: Option<crate::Digest>| {
        digest.map_or_else(|| "(not recomputed)".to_owned(), |digest| digest.to_string())
    };
    let place = match (seal.log_index, seal.tree_size) {
        (Some(index), Some(size)) => format!("entry {index}, {size} entries in all"),
        _ => "entry (unknown)".to_owned(),
    };
    let policy = |version| format!("policy, version {version}");
    vec![
        link("kit".to_owned(), "whoever packed it, and the log", &[id::KIT_SEAL, id::KIT_FILES, id::KIT_LOG]),
        link("frame".to_owned(), "its table and its module's entry", &[id::FRAME_PROOF]),
        link(
            format!("{} files, {} bytes", report.files, report.bytes),
            "sizes, digests and page trees in the symbol index",
            &[id::BLOB_DIGEST, id::BLOB_EXTRA, id::PAGE_ROOT, id::PIECE_ROOT],
        ),
        link(
            "modules and tables".to_owned(),
            "ids in the files, sources in the tables",
            &[id::MODULE_BUILD_ID, id::TABLE_DERIVATION, id::TABLE_REDERIVED],
        ),
        link(
            format!("symbol index {}", digest(report.symbol_index)),
            "the bundle's manifests, and the statement",
            &[id::INDEX_SCHEMA, id::MANIFEST_DIGEST, id::STATEMENT_SUBJECT_INDEX, id::STATEMENT_MODULES],
        ),
        link(
            format!("bundle {}", digest(report.bundle)),
            "a subject of the statement",
            &[id::INDEX_DIGEST, id::STATEMENT_SUBJECT_BUNDLE],
        ),
        link("seal".to_owned(), "its form", &[id::SEAL_PRESENT, id::SEAL_STRUCTURE]),
        link(
            format!("statement of {}", or_unknown(seal.release.as_ref().map(Release::subject_name))),
            "name and version that were asked for",
            &[id::STATEMENT_TYPE, id::STATEMENT_PREDICATE, id::STATEMENT_NAME, id::STATEMENT_VERSION],
        ),
        link(
            format!("envelope {}", or_unknown(seal.dsse_ref.clone())),
            "the artifact key's signature",
            &[id::DSSE_PAYLOAD_TYPE, id::DSSE_KEYID, id::DSSE_SIGNATURE],
        ),
        link(
            format!("artifact key {}", or_unknown(seal.signer.map(|key| key.to_string()))),
            "the policy",
            &[id::TRUST_KEY, id::TRUST_KEY_VALIDITY, id::TRUST_REVOCATION, id::TRUST_THRESHOLD],
        ),
        link(
            report.policy_version.map_or_else(|| "policy".to_owned(), policy),
            "the root keys, and what was seen before",
            &[id::TRUST_ROOT, id::TRUST_ROOT_CHAIN, id::TRUST_POLICY, id::TRUST_POLICY_VERSION, id::TRUST_LOGS],
        ),
        link(
            format!("log {}", or_unknown(seal.log_origin.clone())),
            "the policy",
            &[id::LOG_ID, id::LOG_KEY_VALIDITY, id::LOG_KIND, id::LOG_INDEX],
        ),
        link(
            place,
            "envelope, signature and key, and the way to the root",
            &[id::LOG_ENTRY, id::LOG_TIMESTAMP, id::LOG_INCLUSION],
        ),
        link(
            "checkpoint".to_owned(),
            "the log's signature, witnesses, and what was seen before",
            &[id::LOG_ORIGIN, id::LOG_CHECKPOINT, id::LOG_WITNESSES, id::LOG_FRESHNESS],
        ),
    ]
}

/// The worst of the checks. One that the report does not have was not run.
fn held(report: &Report, checks: &'static [&'static str]) -> Held {
    let with = |status: CheckStatus| {
        let is = |id: &&str| report.checks.iter().any(|check| check.id == *id && check.status == status);
        checks.iter().copied().filter(is).collect::<Vec<_>>()
    };
    let broken = with(CheckStatus::Failed);
    if !broken.is_empty() {
        return Held::Broken(broken);
    }
    let (passed, skipped) = (with(CheckStatus::Passed), with(CheckStatus::Skipped));
    if passed.is_empty() {
        return Held::Open { refused: report.verdict == Verdict::Refused };
    }
    // One check may have passed for some objects, and not have been run for others.
    Held::Holds(checks.iter().copied().filter(|id| skipped.contains(id) || !passed.contains(id)).collect())
}

#[cfg(test)]
mod tests {
    use symseal_seal::{CATALOGUE, Check};

    use super::*;

    #[test]
    fn every_check_of_the_catalogue_stands_in_one_link() {
        let report = Report::refused_before_start(Check::failed(id::INDEX_DIGEST, "a", "b"));
        let links = links(&report);
        for info in CATALOGUE {
            let of = links.iter().filter(|link| link.checks.contains(&info.id)).count();
            assert_eq!(of, 1, "{}", info.id);
        }
        assert_eq!(links.iter().map(|link| link.checks.len()).sum::<usize>(), CATALOGUE.len());
    }

    #[test]
    fn a_check_that_is_not_in_the_report_was_not_checked() {
        let mut report = Report::refused_before_start(Check::failed(id::SEAL_STRUCTURE, "a seal", "junk"));
        report.checks = vec![Check::passed(id::BLOB_DIGEST, "1"), Check::failed(id::SEAL_STRUCTURE, "a seal", "junk")];
        let links = chain(&report);
        let of = |check: &str| &links.iter().find(|link| link.checks.contains(&check)).unwrap().held;
        assert_eq!(of(id::BLOB_DIGEST), &Held::Holds(vec![id::BLOB_EXTRA, id::PAGE_ROOT, id::PIECE_ROOT]));
        assert_eq!(of(id::SEAL_PRESENT), &Held::Broken(vec![id::SEAL_STRUCTURE]));
        assert_eq!(of(id::LOG_ID), &Held::Open { refused: true });
        assert!(!links.iter().any(|link| link.checks.contains(&id::KIT_SEAL)));
        report.checks.push(Check::passed(id::KIT_SEAL, "a list"));
        assert!(chain(&report).iter().any(|link| link.checks.contains(&id::KIT_SEAL)));
    }
}
