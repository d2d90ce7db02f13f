//! The client of Rekor v1 against the recorded answer of a real server (rekor-server 1.5.4); the server itself is run by
//! `tests/certify`.
#![cfg(feature = "online")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use symseal_seal::{Envelope, LogEntry, LogIdentity, LogPublicKey, SigstoreBundle};
use symseal_sealer::{AnchorError, ArtifactKey, RekorLog, RekorVersion, anchor_verified};

use crate::support::rekor::{reply, serve};

const ANSWER: &str = include_str!("golden/rekor_v1_answer.json");
const SEAL: &[u8] = include_bytes!("../../formats/seal/tests/golden/seal.sigstore.json");
const PATH: &str = "/api/v1/log/entries";

fn uuid() -> String {
    let answer: serde_json::Value = serde_json::from_str(ANSWER).unwrap();
    answer.as_object().unwrap().keys().next().unwrap().clone()
}

fn identity() -> LogIdentity {
    let key = LogPublicKey::from_pem(include_str!("golden/rekor_v1.pub")).unwrap();
    LogIdentity { origin: include_str!("golden/rekor_v1.origin").trim().parse().unwrap(), key }
}

/// Asks a server that answers a post by `status` with `location`, and a get by the recorded answer; what came of it, and
/// the requests.
fn ask(
    version: Option<RekorVersion>,
    status: u16,
    location: String,
    envelope: &Envelope,
) -> (Result<LogEntry, AnchorError>, Vec<String>) {
    let artifact =
        ArtifactKey::load_pem(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/artifact.pem")).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let url = serve(move |method, path, stream| {
        told.lock().unwrap().push(format!("{method} {path}"));
        match (method, path) {
            ("POST", PATH) => {
                let headers = format!("Location: {location}\r\n");
                reply(stream, status, &headers, if status == 201 { ANSWER.as_bytes() } else { b"" });
            }
            ("GET", path) if path == format!("{PATH}/{}", uuid()) => reply(stream, 200, "", ANSWER.as_bytes()),
            _ => reply(stream, 404, "", b""),
        }
    });
    let mut log = RekorLog::new(&url, version, vec![identity()]).unwrap();
    let answer = anchor_verified(&mut log, envelope, artifact.public());
    let seen = seen.lock().unwrap().clone();
    (answer, seen)
}

#[test]
fn a_new_entry_and_a_known_one_are_the_same() {
    let envelope = SigstoreBundle::parse(SEAL).unwrap().envelope;
    let v1 = Some(RekorVersion::V1);
    let (new, seen) = ask(v1, 201, String::new(), &envelope);
    let new = new.unwrap();
    assert_eq!((new.proof_index, seen), (4, vec![format!("POST {PATH}")]));
    let known = format!("{PATH}/{}", uuid());
    let (again, seen) = ask(v1, 409, known.clone(), &envelope);
    assert_eq!(again.unwrap(), new);
    assert_eq!(seen, [format!("POST {PATH}"), format!("GET {known}")]);
    // A server whose version is not said is asked as v2 first.
    let (again, seen) = ask(None, 409, known, &envelope);
    assert_eq!(again.unwrap(), new);
    assert_eq!(seen.first().map(String::as_str), Some("POST /api/v2/log/entries"));
}

#[test]
fn a_true_entry_of_another_envelope_is_refused() {
    let mut envelope = SigstoreBundle::parse(SEAL).unwrap().envelope;
    envelope.payload.push(b' ');
    let (answer, _) = ask(Some(RekorVersion::V1), 201, String::new(), &envelope);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("the dsse 0.0.1 entry of this envelope"), "{error}");
}

#[test]
fn a_known_entry_that_is_gone_is_an_error() {
    let envelope = SigstoreBundle::parse(SEAL).unwrap().envelope;
    let (answer, _) = ask(Some(RekorVersion::V1), 409, format!("{PATH}/{}", "ab".repeat(40)), &envelope);
    assert!(matches!(answer, Err(AnchorError::Refused { status: 404, .. })), "{answer:?}");
}
