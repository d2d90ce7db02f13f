//! A sealed bundle verifies, and whatever is changed is refused by a check that names it.

use std::path::Path;

use crate::inputs::{Release, build};
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::seal::Trust;
use symseal_bundle::seal::checks::id;
use symseal_bundle::verify::{Parts, Report, Request, TimeSource, UtcSeconds, Verdict, verify};
use symseal_bundle::{Bundle, Digest, LayoutDir, oci};
use symseal_module::DebugId;
use symseal_sealer::{ArtifactKey, LogKey, TileLog, TrustInit, mint_origin, trust_init};

fn identify(bytes: &[u8]) -> Vec<DebugId> {
    symseal_artifact::ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default()
}

fn now() -> UtcSeconds {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    UtcSeconds(now.as_secs() as i64)
}

struct Sealed {
    dir: tempfile::TempDir,
    layout: LayoutDir,
    digest: Digest,
    trust: Trust,
}

fn sealed() -> Option<Sealed> {
    let release = Release::make()?;
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    let digest = build(&[release.dir.path().to_owned()], &layout).unwrap().digest;
    let key = ArtifactKey::generate().unwrap();
    let (log_dir, last_seen) = (dir.path().join("log"), dir.path().join("last-seen"));
    let mut log = TileLog::create(&log_dir, mint_origin().unwrap(), LogKey::generate().unwrap(), &last_seen).unwrap();
    let init = TrustInit {
        root: &key,
        artifact: key.public(),
        names: &["app".to_owned()],
        log: log.identity(),
        operator: "this test",
        at: now(),
        expires: None,
    };
    let trust = trust_init(&dir.path().join("trust"), &init).unwrap();
    let options = SealOptions { channel: Some("stable".to_owned()), sequence: Some(7), supersedes: vec![] };
    seal_bundle(&layout, &digest, &key, &mut log, &options).unwrap();
    Some(Sealed { dir, layout, digest, trust })
}

impl Sealed {
    fn verify<'a>(&'a self, change: impl FnOnce(&mut Request<'a>)) -> Report {
        let bundle = Bundle::open(self.layout.clone(), Some(&self.digest)).unwrap();
        report(&bundle, &self.trust, change)
    }
}

fn report<'a>(bundle: &Bundle, trust: &'a Trust, change: impl FnOnce(&mut Request<'a>)) -> Report {
    let mut request = Request {
        trust,
        expect_name: None,
        expect_version: None,
        parts: Parts::default(),
        at: now(),
        time_source: TimeSource::Clock,
        signatures: &[],
        signature_files: &[],
        seen: None,
        consistency: &[],
        fragments: &[],
        identify: &identify,
    };
    change(&mut request);
    verify(bundle, &request)
}

#[track_caller]
fn refused_by(report: &Report, expected: &str) {
    assert_eq!(report.verdict, Verdict::Refused);
    assert!(report.checks.iter().any(|check| check.is_failed() && check.id == expected), "{:#?}", report.checks);
}

#[test]
fn a_sealed_bundle_is_verified_as_a_whole_and_in_parts() {
    let Some(sealed) = sealed() else { return };
    let report = sealed.verify(|_| {});
    assert_eq!(report.verdict, Verdict::Verified, "{:#?}", report.checks);
    assert_eq!(report.bundle, Some(sealed.digest));
    assert_eq!(report.seal.signed_bundle_sha256, Some(sealed.digest.hex()));
    let release = report.seal.release.as_ref().unwrap();
    assert_eq!((release.channel.as_deref(), release.sequence), (Some("stable"), Some(7)));
    assert!(report.seal.signer.is_some() && report.seal.rekor_tile_ref.is_some());

    let both_off = Parts { dsse: false, rekor: false };
    assert_eq!(sealed.verify(|request| request.parts = both_off).verdict, Verdict::Verified);
    for parts in [Parts { dsse: true, rekor: false }, Parts { dsse: false, rekor: true }] {
        let report = sealed.verify(|request| request.parts = parts);
        assert_eq!(report.verdict, Verdict::Partial, "{:#?}", report.checks);
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["verdict"], "verified");
}

#[test]
fn another_name_version_or_key_is_refused() {
    let Some(sealed) = sealed() else { return };
    assert_eq!(sealed.verify(|request| request.expect_name = Some("app")).verdict, Verdict::Verified);
    refused_by(&sealed.verify(|request| request.expect_name = Some("other")), id::STATEMENT_NAME);
    refused_by(&sealed.verify(|request| request.expect_version = Some("1.1")), id::STATEMENT_VERSION);
    let Some(other) = self::sealed() else { return };
    let bundle = Bundle::open(sealed.layout.clone(), None).unwrap();
    refused_by(&report(&bundle, &other.trust, |_| {}), id::TRUST_KEY);
}

#[test]
fn an_unsealed_bundle_is_refused_and_says_what_to_do() {
    let Some(release) = Release::make() else { return };
    let Some(sealed) = sealed() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    build(&[release.path("full.so")], &layout).unwrap();
    let unsealed = report(&Bundle::open(layout, None).unwrap(), &sealed.trust, |_| {});
    refused_by(&unsealed, id::SEAL_PRESENT);
    assert!(unsealed.first_failure().unwrap().detail.contains("symseal bundle seal"));
}

#[test]
fn a_seal_of_another_bundle_is_refused() {
    let Some(sealed) = sealed() else { return };
    let bundle = Bundle::open(sealed.layout.clone(), None).unwrap();
    let seals = bundle.seals();
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let Some(release) = Release::make() else { return };
    build(&[release.path("full.so")], &layout).unwrap();
    let other = Bundle::open(layout, None).unwrap();
    let report = report(&other, &sealed.trust, |request| request.signatures = &seals);
    refused_by(&report, id::STATEMENT_SUBJECT_BUNDLE);
    refused_by(&report, id::STATEMENT_SUBJECT_INDEX);
}

#[test]
fn a_flipped_bit_in_any_blob_of_a_sealed_bundle_is_refused() {
    let Some(sealed) = sealed() else { return };
    let blobs = sealed.dir.path().join("layout/blobs/sha256");
    for blob in std::fs::read_dir(blobs).unwrap() {
        let path = blob.unwrap().path();
        let sound = std::fs::read(&path).unwrap();
        if sound == oci::EMPTY_JSON {
            continue;
        }
        flip(&path, &sound);
        match Bundle::open(sealed.layout.clone(), Some(&sealed.digest)) {
            Err(error) => assert!(error.to_check().is_some(), "{error}"),
            Ok(bundle) => {
                let report = report(&bundle, &sealed.trust, |_| {});
                assert_eq!(report.verdict, Verdict::Refused, "{} was changed", path.display());
            }
        }
        std::fs::write(&path, &sound).unwrap();
    }
    assert_eq!(sealed.verify(|_| {}).verdict, Verdict::Verified);
}

fn flip(path: &Path, sound: &[u8]) {
    let mut bytes = sound.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn one_good_seal_among_others_is_enough() {
    let Some(sealed) = sealed() else { return };
    symseal_builder::attach_seal(&sealed.layout, &sealed.digest, b"no seal at all").unwrap();
    let bundle = Bundle::open(sealed.layout.clone(), Some(&sealed.digest)).unwrap();
    assert_eq!(bundle.seals().len(), 2);
    assert_eq!(sealed.verify(|_| {}).verdict, Verdict::Verified);
}
