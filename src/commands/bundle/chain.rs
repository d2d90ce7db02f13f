//! The chain from a bundle's files to the log's checkpoint, for people: each link, what it says, and what holds it.

use symseal_bundle::verify::{Report, Verdict};
use symseal_seal::CheckStatus;
use symseal_seal::checks::id;

use crate::output::visible;
use crate::table::Table;

/// One link: what stands on the left, what vouches for it, and the checks that say so.
struct Link {
    what: String,
    held_by: &'static str,
    checks: &'static [&'static str],
}

fn or_none(text: Option<&String>) -> String {
    text.map_or_else(|| "(unknown)".to_owned(), |text| visible(text))
}

/// The table of `--explain`.
pub(super) fn table(report: &Report) -> Table {
    let mut table = Table::new(&["link", "held by", "checks", "status"]);
    for link in links(report) {
        table.row([link.what, link.held_by.to_owned(), link.checks.join(", "), status(report, link.checks)]);
    }
    table
}

fn links(report: &Report) -> Vec<Link> {
    let seal = &report.seal;
    let link = |what: String, held_by, checks| Link { what, held_by, checks };
    let digest = |digest: Option<String>| digest.unwrap_or_else(|| "(not recomputed)".to_owned());
    let release = seal.release.as_ref().map(symseal_seal::Release::subject_name);
    let key = seal.signer.map(|key| key.to_string());
    let place = match (seal.log_index, seal.tree_size) {
        (Some(index), Some(size)) => format!("entry {index}, {size} entries in all"),
        _ => "entry (unknown)".to_owned(),
    };
    vec![
        link(
            format!("{} files, {} bytes", report.files, report.bytes),
            "sizes, digests and page trees in the symbol index",
            &[id::BLOB_DIGEST, id::PAGE_ROOT, id::BLOB_EXTRA],
        ),
        link(
            "modules and tables".to_owned(),
            "ids in the files, sources in the tables",
            &[id::MODULE_BUILD_ID, id::TABLE_DERIVATION, id::TABLE_REDERIVED],
        ),
        link(
            format!("symbol index {}", digest(report.symbol_index.map(|digest| digest.to_string()))),
            "the bundle's manifests, and a subject of the statement",
            &[id::INDEX_SCHEMA, id::MANIFEST_DIGEST, id::STATEMENT_SUBJECT_INDEX],
        ),
        link(
            format!("bundle {}", digest(report.bundle.map(|digest| digest.to_string()))),
            "a subject of the statement",
            &[id::INDEX_DIGEST, id::STATEMENT_SUBJECT_BUNDLE],
        ),
        link(
            format!("statement of {}", or_none(release.as_ref())),
            "name and version that were expected",
            &[id::STATEMENT_TYPE, id::STATEMENT_PREDICATE, id::STATEMENT_NAME, id::STATEMENT_VERSION],
        ),
        link(
            format!("envelope {}", or_none(seal.dsse_ref.as_ref())),
            "the artifact key's signature",
            &[id::DSSE_PAYLOAD_TYPE, id::DSSE_KEYID, id::DSSE_SIGNATURE],
        ),
        link(
            format!("artifact key {}", or_none(key.as_ref())),
            "the policy",
            &[id::TRUST_KEY, id::TRUST_KEY_VALIDITY, id::TRUST_REVOCATION, id::TRUST_THRESHOLD],
        ),
        link(
            report.policy_version.map_or_else(|| "policy".to_owned(), |version| format!("policy, version {version}")),
            "the root keys, and what was seen before",
            &[id::TRUST_ROOT, id::TRUST_ROOT_CHAIN, id::TRUST_POLICY, id::TRUST_POLICY_VERSION, id::TRUST_LOGS],
        ),
        link(
            format!("log {}", or_none(seal.log_origin.as_ref())),
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

/// The worst of the checks; a link of which nothing was run is open.
fn status(report: &Report, checks: &[&str]) -> String {
    let of =
        |id: &str| report.checks.iter().filter(|check| check.id == id).map(|check| check.status).collect::<Vec<_>>();
    let all: Vec<CheckStatus> = checks.iter().flat_map(|id| of(id)).collect();
    if all.contains(&CheckStatus::Failed) {
        let failed: Vec<&str> = checks.iter().copied().filter(|id| of(id).contains(&CheckStatus::Failed)).collect();
        return format!("BROKEN by {}", failed.join(", "));
    }
    let skipped: Vec<&str> = checks.iter().copied().filter(|id| of(id).contains(&CheckStatus::Skipped)).collect();
    match (all.contains(&CheckStatus::Passed), skipped.is_empty()) {
        (true, true) => "holds".to_owned(),
        (true, false) => format!("holds; not checked: {}", skipped.join(", ")),
        _ if report.verdict == Verdict::Refused => "not reached".to_owned(),
        _ => "not checked".to_owned(),
    }
}
