//! A seal, its log and its trust directory made from fixed keys are the same bytes for ever.
//!
//! The files stand in `formats/seal/tests/golden`, where the reader's own tests use them. After a wanted
//! change of a format: `SYMSEAL_BLESS=1 cargo test --release -p symseal-sealer --test golden_files`.
//! The keys in `golden/` beside this file are for these tests alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{NOW, statement};
use symseal_seal::Release;
use symseal_sealer::{ArtifactKey, LogKey, TileLog, TrustInit, seal, trust_init};

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[track_caller]
fn check(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/seal/tests/golden").join(name);
    if std::env::var_os("SYMSEAL_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let golden = fs::read(&path).unwrap();
    assert_eq!(String::from_utf8_lossy(&golden), String::from_utf8_lossy(bytes), "{name}");
}

#[test]
fn the_same_keys_and_statement_give_the_same_bytes() {
    let root = ArtifactKey::load_pem(&key("root.pem")).unwrap();
    let artifact = ArtifactKey::load_pem(&key("artifact.pem")).unwrap();
    let log_key = LogKey::load_pem(&key("log.pem")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let origin = "log-00000000c0ffee00.symseal.internal".parse().unwrap();
    let mut log = TileLog::create(&at("log"), origin, log_key, &at("last-seen")).unwrap();
    let names = ["tool*".to_owned()];
    let init = TrustInit {
        root: &root,
        artifact: artifact.public(),
        names: &names,
        log: log.identity(),
        operator: "this machine",
        at: NOW,
        expires: Some(NOW.plus_days(365)),
    };
    trust_init(&at("trust"), &init).unwrap();
    for n in 0..4 {
        log.append(format!("entry {n}").as_bytes()).unwrap();
    }
    // With what every statement has, and nothing that may be left out.
    let mut statement = statement("tool", "1.0");
    statement.predicate.release = Release::new("tool", "1.0");
    statement.predicate.modules_root = None;
    statement.predicate.supersedes.clear();
    let sealed = seal(&statement, &artifact, &mut log).unwrap();
    check("seal.sigstore.json", &sealed);
    check("statement.json", &statement.to_json());
    for name in ["root.json", "policy.dsse.json", "trusted_root.json"] {
        check(name, &fs::read(at("trust").join(name)).unwrap());
    }
    for name in ["checkpoint", "tile/0/000.p/5", "tile/entries/000.p/5"] {
        check(name, &fs::read(at("log").join(name)).unwrap());
    }
}
