//! A log's files over HTTP: what C2SP tlog-tiles publishes below a prefix.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::LogError;
use crate::online;

/// How long one file may take to come.
const FILE_LIMIT: Duration = Duration::from_secs(30);
/// The most bytes of a file that are read: 256 entries of 64 KiB with their lengths.
const BYTES_LIMIT: usize = 17 << 20;
/// The most files that are kept: more than the proofs of one command take.
const KEPT: usize = 512;
/// What a Rekor v2, and a server of ours, has below its own URL.
const REKOR_READS: &str = "/api/v2";

/// Where a log is read over HTTP.
#[derive(Debug)]
pub(super) struct RemoteLog {
    prefix: String,
    /// What was read: proofs share tiles, and a tile never changes.
    read: Mutex<HashMap<String, Vec<u8>>>,
}

impl RemoteLog {
    /// The log at `url`, its read prefix or the URL of a Rekor v2: the one of both that has a checkpoint, which is given
    /// along.
    pub(super) fn open(url: &str) -> Result<(Self, Vec<u8>), LogError> {
        let url = url.trim_end_matches('/');
        for prefix in [url.to_owned(), format!("{url}{REKOR_READS}")] {
            let log = Self { prefix, read: Mutex::default() };
            if let Some(checkpoint) = log.read(super::CHECKPOINT_FILE)? {
                return Ok((log, checkpoint));
            }
        }
        let reason =
            format!("no checkpoint there, nor below {REKOR_READS}; expected the prefix under which a log is read");
        Err(LogError::Unreachable { url: url.to_owned(), reason })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A file of the log; `None` where there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        // Nobody panics with the lock; whoever did would leave whole files.
        let known = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known().get(name) {
            return Ok(Some(bytes.clone()));
        }
        let bytes = self.fetch(name)?;
        let mut known = known();
        if let Some(bytes) = bytes.as_ref().filter(|_| known.len() < KEPT) {
            known.insert(name.to_owned(), bytes.clone());
        }
        Ok(bytes)
    }

    fn fetch(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        let url = format!("{}/{name}", self.prefix);
        let failed = |reason: String| LogError::Unreachable { url: url.clone(), reason };
        online::within(
            FILE_LIMIT,
            async || {
                let broken = |error: reqwest::Error| failed(online::reasons(&error));
                let client = online::client().build().map_err(broken)?;
                let mut response = client.get(&url).send().await.map_err(broken)?;
                match response.status().as_u16() {
                    200 => {}
                    404 | 410 => return Ok(None),
                    status @ 300..=399 => {
                        return Err(failed(format!(
                            "status {status}: redirections are not followed; give the log's own URL"
                        )));
                    }
                    status => return Err(failed(format!("expected status 200, found {status}"))),
                }
                let mut bytes = Vec::new();
                while let Some(chunk) = response.chunk().await.map_err(broken)? {
                    if bytes.len().saturating_add(chunk.len()) > BYTES_LIMIT {
                        return Err(failed(format!("expected at most {BYTES_LIMIT} bytes, found more")));
                    }
                    bytes.extend_from_slice(&chunk);
                }
                Ok(Some(bytes))
            },
            failed,
        )
    }
}
