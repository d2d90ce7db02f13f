//! `trusted_root.json`: the logs' public keys, in the form that Sigstore's clients read.
//!
//! The file is not signed. A key in it counts only where a policy pins its log id, so that nothing
//! but a start or end of validity could be changed here, and those only narrow the policy's own.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{TrustError, TrustFile};
use crate::checkpoint::LogIdentity;
use crate::encoding::{from_base64, to_base64};
use crate::keys::{LogId, LogPublicKey};
use crate::origin::host_of_url;
use crate::time::UtcSeconds;

/// `mediaType` of the file.
pub const TRUSTED_ROOT_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.trustedroot+json;version=0.1";
/// The `keyDetails` that are read: Rekor v2's keys, and those of Rekor v1.
const KNOWN_DETAILS: [&str; 2] = ["PKIX_ED25519", "PKIX_ECDSA_P256_SHA_256"];
/// The most logs that are read.
const MAX_LOGS: usize = 1024;

/// A log that the file names, with a key of a known kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedLog {
    /// The host of its `baseUrl`.
    pub host: String,
    /// Its id, as stated.
    pub id: LogId,
    /// Its key.
    pub key: LogPublicKey,
    /// First second of validity, and last if bounded.
    pub validity: (UtcSeconds, Option<UtcSeconds>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TrustedRootJson {
    media_type: String,
    #[serde(default)]
    tlogs: Vec<TlogJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TlogJson {
    #[serde(default)]
    base_url: String,
    #[serde(default)]
    hash_algorithm: String,
    public_key: PublicKeyJson,
    log_id: LogIdJson,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublicKeyJson {
    raw_bytes: String,
    key_details: String,
    #[serde(default)]
    valid_for: Option<ValidForJson>,
}

#[derive(Serialize, Deserialize)]
struct ValidForJson {
    #[serde(default)]
    start: Option<UtcSeconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<UtcSeconds>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogIdJson {
    key_id: String,
}

/// Reads the file. Logs with keys of other kinds are passed over: no policy can name one, and one that
/// tries misses its key by name.
///
/// # Errors
/// [`TrustError`] with [`TrustFile::TrustedRoot`].
pub fn parse(bytes: &[u8]) -> Result<Vec<TrustedLog>, TrustError> {
    let refused = |expected: &str, found: String| TrustError::new(TrustFile::TrustedRoot, expected, found);
    let json: TrustedRootJson = serde_json::from_slice(bytes)
        .map_err(|error| refused("the JSON of a Sigstore trusted root", error.to_string()))?;
    if json.media_type != TRUSTED_ROOT_MEDIA_TYPE {
        return Err(refused(TRUSTED_ROOT_MEDIA_TYPE, super::root::shortened(&json.media_type)));
    }
    if json.tlogs.len() > MAX_LOGS {
        return Err(refused("at most 1024 logs", json.tlogs.len().to_string()));
    }
    let mut logs = Vec::new();
    for tlog in json.tlogs.iter().filter(|tlog| KNOWN_DETAILS.contains(&tlog.public_key.key_details.as_str())) {
        let host = host_of_url(&tlog.base_url)
            .ok_or_else(|| refused("a baseUrl with a host", super::root::shortened(&tlog.base_url)))?;
        if tlog.hash_algorithm != "SHA2_256" {
            return Err(refused("hashAlgorithm SHA2_256", super::root::shortened(&tlog.hash_algorithm)));
        }
        let key = from_base64(&tlog.public_key.raw_bytes)
            .and_then(|spki| LogPublicKey::from_spki(&spki).ok())
            .filter(|key| key.details() == tlog.public_key.key_details)
            .ok_or_else(|| {
                let expected = format!("the base64 of a {} SPKI", tlog.public_key.key_details);
                refused(&expected, super::root::shortened(&tlog.public_key.raw_bytes))
            })?;
        let id = LogId::parse(&tlog.log_id.key_id)
            .ok_or_else(|| refused("the base64 of a 32-byte log id", super::root::shortened(&tlog.log_id.key_id)))?;
        let validity = tlog.public_key.valid_for.as_ref();
        // Sigstore's clients fail without a start, so we do not accept what they would not.
        let start = validity
            .and_then(|validity| validity.start)
            .ok_or_else(|| refused("validFor.start of every log key", format!("none for {host}")))?;
        logs.push(TrustedLog { host: host.into(), id, key, validity: (start, validity.and_then(|v| v.end)) });
    }
    Ok(logs)
}

impl From<&TrustedLog> for TlogJson {
    fn from(log: &TrustedLog) -> Self {
        Self {
            base_url: format!("https://{}", log.host),
            hash_algorithm: "SHA2_256".into(),
            public_key: PublicKeyJson {
                raw_bytes: to_base64(&log.key.spki()),
                key_details: log.key.details().into(),
                valid_for: Some(ValidForJson { start: Some(log.validity.0), end: log.validity.1 }),
            },
            log_id: LogIdJson { key_id: log.id.to_string() },
        }
    }
}

impl TrustedLog {
    /// The entry of a log whose key is valid from `start`.
    #[must_use]
    pub fn new(log: &LogIdentity, start: UtcSeconds) -> Self {
        Self { host: log.origin.name().to_owned(), id: log.id(), key: log.key.clone(), validity: (start, None) }
    }
}

/// The file for one log, valid from `start`.
#[must_use]
pub fn one_log(log: &LogIdentity, start: UtcSeconds) -> Vec<u8> {
    write(&[TrustedLog::new(log, start)])
}

/// A trusted root with a log more; everything else in it stays as it is. A log with the same id is replaced.
///
/// # Errors
/// [`TrustError`] where the file is none.
pub fn with_log(file: &[u8], log: &TrustedLog) -> Result<Vec<u8>, TrustError> {
    let mut root = without_id(file, log.id)?;
    let tlogs = root.entry("tlogs").or_insert_with(|| Value::Array(Vec::new()));
    if let (Some(tlogs), Ok(tlog)) = (tlogs.as_array_mut(), serde_json::to_value(TlogJson::from(log))) {
        tlogs.push(tlog);
    }
    Ok(crate::canonical_json(&root))
}

/// A trusted root without the log of this id; everything else in it stays as it is.
///
/// # Errors
/// [`TrustError`] where the file is none.
pub fn without_log(file: &[u8], id: LogId) -> Result<Vec<u8>, TrustError> {
    Ok(crate::canonical_json(&without_id(file, id)?))
}

fn without_id(file: &[u8], id: LogId) -> Result<Map<String, Value>, TrustError> {
    parse(file)?;
    let mut root: Map<String, Value> = serde_json::from_slice(file).map_err(|error| {
        TrustError::new(TrustFile::TrustedRoot, "the JSON of a Sigstore trusted root", error.to_string())
    })?;
    if let Some(tlogs) = root.get_mut("tlogs").and_then(Value::as_array_mut) {
        let id = id.to_string();
        tlogs.retain(|tlog| tlog.pointer("/logId/keyId").and_then(Value::as_str) != Some(&id));
    }
    Ok(root)
}

/// The file for several logs.
#[must_use]
pub fn write(logs: &[TrustedLog]) -> Vec<u8> {
    crate::canonical_json(&TrustedRootJson {
        media_type: TRUSTED_ROOT_MEDIA_TYPE.into(),
        tlogs: logs.iter().map(TlogJson::from).collect(),
    })
}
