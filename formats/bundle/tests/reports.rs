//! A report leaves no question out: whatever was not checked is named, and whatever failed breaks a link of the chain.

use crate::made;
use symseal_bundle::Bundle;
use symseal_bundle::seal::checks::{Check, CheckStatus, id};
use symseal_bundle::seal::{CATALOGUE, Trust};
use symseal_bundle::verify::{Held, Parts, Report, Request, TimeSource, UtcSeconds, Verdict, chain, verify};

/// The time for which the golden trust directory was made.
const AT: UtcSeconds = UtcSeconds(1_795_176_000);

fn report(seals: &[Vec<u8>]) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _) = made::bundle(dir.path());
    let trust = Trust::load_parts(
        include_bytes!("../../seal/tests/golden/root.json"),
        include_bytes!("../../seal/tests/golden/policy.dsse.json"),
        include_bytes!("../../seal/tests/golden/trusted_root.json"),
    )
    .unwrap();
    let request = Request {
        trust: &trust,
        expect_name: None,
        expect_version: None,
        parts: Parts::default(),
        at: AT,
        time_source: TimeSource::Asked,
        signatures: seals,
        signature_files: &[],
        seen: None,
        consistency: &[],
        fragments: &[],
        identify: &made::identify,
    };
    verify(&Bundle::open(layout, None).unwrap(), &request)
}

/// Every check of a bundle stands in the report, and those that were skipped under `not_checked`.
#[track_caller]
fn is_complete(report: &Report) {
    let of_bundles = CATALOGUE.iter().filter(|info| !info.id.starts_with("kit.") && info.id != id::FRAME_PROOF);
    for info in of_bundles {
        let named = report.checks.iter().filter(|check| check.id == info.id).count();
        assert_eq!(named, 1, "{}: {:#?}", info.id, report.checks);
    }
    let skipped = report.checks.iter().filter(|check| check.status == CheckStatus::Skipped);
    let listed: Vec<(&str, &str)> = report.not_checked.iter().map(|open| (open.id, open.why.as_str())).collect();
    assert_eq!(listed, skipped.map(|check| (check.id, check.detail.as_str())).collect::<Vec<_>>());
    assert!(listed.iter().all(|(_, why)| !why.is_empty()), "{listed:#?}");
}

fn why<'r>(report: &'r Report, check: &str) -> &'r str {
    &report.not_checked.iter().find(|open| open.id == check).unwrap_or_else(|| panic!("{check}")).why
}

#[test]
fn of_a_bundle_without_a_seal_everything_about_seals_was_not_checked() {
    let report = report(&[]);
    assert_eq!((report.verdict, report.first_failure().unwrap().id), (Verdict::Refused, id::SEAL_PRESENT));
    is_complete(&report);
    assert_eq!(why(&report, id::DSSE_SIGNATURE), "the bundle has no seal that can be read");
    assert_eq!(why(&report, id::TABLE_REDERIVED), "not asked for (--rederive)");
    assert_eq!(report.checks.iter().filter(|check| check.is_failed()).count(), 1);
}

#[test]
fn a_seal_that_is_junk_breaks_a_link_of_the_chain() {
    let report = report(&[b"junk".to_vec()]);
    assert_eq!((report.verdict, report.first_failure().unwrap().id), (Verdict::Refused, id::SEAL_STRUCTURE));
    is_complete(&report);
    let broken = chain(&report).into_iter().filter(|link| matches!(link.held, Held::Broken(_)));
    let broken: Vec<Held> = broken.map(|link| link.held).collect();
    assert_eq!(broken, [Held::Broken(vec![id::SEAL_STRUCTURE])]);
}

#[test]
fn what_is_put_into_a_report_later_counts_as_what_was_there() {
    let mut report = Report::refused_before_start(Check::failed(id::INDEX_DIGEST, "a", "b"));
    is_complete(&report);
    assert_eq!(why(&report, id::BLOB_DIGEST), "verification did not come to it");
    report.verdict = Verdict::Verified;
    report.checks.retain(|check| !check.is_failed());
    // Tables that come out again, and one that does not.
    report.replace(id::TABLE_REDERIVED, vec![Check::passed(id::TABLE_REDERIVED, "2 tables")]);
    assert!(report.not_checked.iter().all(|open| open.id != id::TABLE_REDERIVED));
    assert_eq!(report.verdict, Verdict::Verified);
    report.replace(id::TABLE_REDERIVED, vec![Check::failed(id::TABLE_REDERIVED, "a", "b")]);
    assert_eq!(report.verdict, Verdict::Refused);
    report.prepend([Check::skipped(id::KIT_LOG, "no newer checkpoint")]);
    assert_eq!((report.checks[0].id, why(&report, id::KIT_LOG)), (id::KIT_LOG, "no newer checkpoint"));
}
