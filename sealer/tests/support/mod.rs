//! A sealed bundle in a temporary directory: keys, log, trust directory, statement and seal.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

#[cfg(feature = "online")]
pub mod rekor;
pub mod rekor_v1;
#[cfg(feature = "online")]
pub mod witness;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use symseal_seal::trust::policy::PolicyDocument;
use symseal_seal::trust::{POLICY_FILE, ROOT_FILE, TRUSTED_ROOT_FILE, trusted_root};
use symseal_seal::{
    Check, CheckStatus, Envelope, Expectation, LogIdentity, ModuleList, Release, SealVerification, Statement,
    StatementParts, SubjectDigests, Trust, UtcSeconds, examine_seal,
};
use symseal_sealer::{ArtifactKey, LogKey, TileLog, TrustInit, mint_origin, seal, trust_init};

/// 2026-11-20T12:00:00Z.
pub const NOW: UtcSeconds = UtcSeconds(1_795_176_000);
pub const BUNDLE: [u8; 32] = [0x11; 32];
pub const INDEX: [u8; 32] = [0x22; 32];
pub const MODULES: [u8; 32] = [0x33; 32];
/// SHA-256 of the one module's id and a line feed, as sha256sum says.
const MODULE_LIST: [u8; 32] = [
    0x3d, 0x51, 0xeb, 0x31, 0xd2, 0xea, 0xa0, 0xc0, 0x16, 0x3e, 0x0e, 0x6e, 0x24, 0x0f, 0x43, 0x70, 0xd0, 0x6d, 0x48,
    0x4c, 0x91, 0xf4, 0xdb, 0x87, 0xd1, 0x47, 0x78, 0xc6, 0x14, 0x0c, 0x67, 0xe3,
];
pub const SUBJECTS: SubjectDigests = SubjectDigests {
    bundle: Some(BUNDLE),
    symbol_index: Some(INDEX),
    modules_root: Some(MODULES),
    modules: Some(ModuleList { count: 1, sha256: MODULE_LIST }),
};

pub struct World {
    pub directory: tempfile::TempDir,
    pub root: ArtifactKey,
    pub artifact: ArtifactKey,
    pub log_key: LogKey,
    pub log: TileLog,
    pub trust: Trust,
    /// root.json, policy.dsse.json, trusted_root.json
    pub trust_files: [Vec<u8>; 3],
    pub statement: Statement,
    pub seal: Vec<u8>,
}

pub fn statement(name: &str, version: &str) -> Statement {
    Statement::build(StatementParts {
        bundle: BUNDLE,
        symbol_index: INDEX,
        release: Release { channel: Some("stable".into()), sequence: Some(7), ..Release::new(name, version) },
        builder_version: "0.1.0",
        inputs: vec![("tool".into(), [0x33; 32]), ("libtool.so.1".into(), [0x44; 32])],
        modules_root: Some(MODULES),
        debug_ids: vec!["0123456789abcdef0123456789abcdef01234567".into()],
        supersedes: vec![[0x55; 32]],
    })
    .unwrap()
}

impl World {
    /// A log with `before` other entries, then the seal of `tool@1.0`.
    pub fn new(before: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let root = ArtifactKey::generate_file(&at("root.pem")).unwrap();
        let artifact = ArtifactKey::generate_file(&at("artifact.pem")).unwrap();
        let log_key = LogKey::generate_file(&at("log.pem")).unwrap();
        let origin = mint_origin().unwrap();
        let mut log = TileLog::create(&at("log"), origin, log_key.clone(), &at("last-seen")).unwrap();
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
        let trust = trust_init(&at("trust"), &init).unwrap();
        for n in 0..before {
            log.append(format!("entry {n}").as_bytes()).unwrap();
        }
        let statement = statement("tool", "1.0");
        let seal = seal(&statement, &artifact, &mut log).unwrap();
        let read = |name: &str| std::fs::read(at("trust").join(name)).unwrap();
        let trust_files = [read(ROOT_FILE), read(POLICY_FILE), read(TRUSTED_ROOT_FILE)];
        Self { root, artifact, log_key, log, trust, trust_files, statement, seal, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn examine(&self, seal: &[u8]) -> SealVerification {
        examine_seal(seal, &SUBJECTS, &self.trust, &Expectation::default(), NOW)
    }

    /// The seal as JSON, to be changed.
    pub fn seal_json(&self) -> Value {
        serde_json::from_slice(&self.seal).unwrap()
    }

    /// Ids of the checks that fail for this seal.
    pub fn failures(&self, seal: &Value) -> Vec<&'static str> {
        failures(&self.examine(&serde_json::to_vec(seal).unwrap()).checks)
    }
}

pub fn failures(checks: &[Check]) -> Vec<&'static str> {
    checks.iter().filter(|check| check.is_failed()).map(|check| check.id).collect()
}

pub fn status(checks: &[Check], id: &str) -> CheckStatus {
    checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}")).status
}

/// Whether a tool is here; says so if not, and panics where `SYMSEAL_REQUIRE` names it.
pub fn have(tool: &str, probe: &str) -> bool {
    // Some tools answer any question about themselves with a failure: that they start is enough.
    let found = Command::new(tool).arg(probe).output().is_ok();
    if !found {
        let name = std::path::Path::new(tool).file_name().unwrap().to_string_lossy().into_owned();
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|one| one.trim() == name), "{name} is required and was not found");
        println!("SKIP {name}: not found");
    }
    found
}

/// A policy of one's own, signed by the world's root, with these logs' keys beside it.
pub fn with_policy(
    world: &World,
    change: impl FnOnce(&mut PolicyDocument),
    logs: &[LogIdentity],
) -> Result<Trust, String> {
    let envelope = Envelope::parse(&world.trust_files[1]).unwrap();
    let mut policy: PolicyDocument = serde_json::from_slice(&envelope.payload).unwrap();
    change(&mut policy);
    let file = policy.to_file(&world.root.key_id().to_string(), &world.root.sign(&policy.signed_bytes()));
    let trusted = |log: &LogIdentity| trusted_root::TrustedLog {
        host: log.origin.name().to_owned(),
        id: log.id(),
        key: log.key.clone(),
        validity: (NOW, None),
    };
    let logs = trusted_root::write(&logs.iter().map(trusted).collect::<Vec<_>>());
    Trust::load_parts(&world.trust_files[0], &file, &logs).map_err(|error| error.to_string())
}
