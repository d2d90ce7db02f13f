//! Rekor v1: `POST /api/v1/log/entries` with a `dsse` 0.0.1 entry.
//!
//! Source: rekor, `openapi.yaml` and `pkg/types/dsse/v0.0.1`. The envelope is submitted as its canonical
//! JSON, so that the entry's `envelopeHash` can be made again. An entry that stands in the log already is
//! answered with 409 and its path in `Location`.

use serde_json::json;
use symseal_seal::encoding::to_base64;
use symseal_seal::entry::dsse_v001;
use symseal_seal::{ArtifactPublicKey, Envelope, LogEntry};

use super::RekorLog;
use super::http::{Answer, Http};
use crate::anchor::{AnchorError, parse_rekor_v1_answer};

const PATH: &str = "/api/v1/log/entries";

pub(super) async fn create(
    log: &RekorLog,
    http: &Http<'_>,
    envelope: &Envelope,
    key: &ArtifactPublicKey,
) -> Result<LogEntry, AnchorError> {
    let submitted = String::from_utf8_lossy(&envelope.to_json()).into_owned();
    let request = json!({
        "kind": "dsse",
        "apiVersion": "0.0.1",
        "spec": {"proposedContent": {
            "envelope": submitted,
            "verifiers": [to_base64(key.to_pem().as_bytes())],
        }},
    });
    let answer = http.post(PATH, &request).await?;
    let entry = match answer.status.as_u16() {
        200 | 201 => parse(log, &answer)?,
        409 => {
            let known = http.get(&known_path(log, &answer)?).await?;
            if known.status.as_u16() != 200 {
                return Err(http.refused(&known));
            }
            parse(log, &known)?
        }
        _ => return Err(http.refused(&answer)),
    };
    // The verifier takes any hash of a submitted text; here the text is known.
    if entry.canonicalized_body != dsse_v001(envelope, &envelope.digest(), key) {
        return Err(log.answer("the dsse 0.0.1 entry of this envelope", "another entry"));
    }
    Ok(entry)
}

fn parse(log: &RekorLog, answer: &Answer) -> Result<LogEntry, AnchorError> {
    parse_rekor_v1_answer(&answer.body)
        .map_err(|error| log.answer("a Rekor v1 entry with its proof as the answer", error.to_string()))
}

/// The path in `Location`, which must be that of an entry of this very log.
fn known_path(log: &RekorLog, answer: &Answer) -> Result<String, AnchorError> {
    let location = answer.location().unwrap_or_default();
    let path = location.strip_prefix(&log.url).unwrap_or(location);
    let uuid = path.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    // 64 digits of the leaf hash, with 16 of the tree id before it.
    if (64..=80).contains(&uuid.len()) && uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(path.to_owned());
    }
    let found = format!("{:?}", location.chars().take(120).collect::<String>());
    Err(log.answer("the Location of an entry that it has already", found))
}
