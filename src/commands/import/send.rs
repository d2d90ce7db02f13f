//! Asking a server for what it has, and sending what it has not, patiently.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;

use super::journal::Kept;
use super::report::Fate;
use crate::symbols_server::{Answered, SymbolsServer};

/// How often a file is asked for or sent again when there is no answer, or one that says to come again.
const ATTEMPTS: u32 = 5;

/// The pause behind the first attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// Files in a row with which the server itself failed, from which on it is the server and not the files.
const FAILED_IN_A_ROW: u32 = 16;

/// A server, and how it fared lately.
#[derive(Debug)]
pub(super) struct Sender {
    server: SymbolsServer,
    failed: AtomicU32,
}

impl Sender {
    pub(super) fn new(server: SymbolsServer) -> Self {
        Self { server, failed: AtomicU32::new(0) }
    }

    /// Where the server is.
    pub(super) fn url(&self) -> &reqwest::Url {
        self.server.url()
    }

    /// Whether the server has a file. One that does not want to say has none: it will say why when the file is sent.
    ///
    /// # Errors
    /// There is no answer, or none but that it cannot answer now.
    pub(super) async fn has(&self, kept: &Kept) -> Result<bool> {
        for (kind, digest) in [("manifests", &kept.manifest), ("blobs", &kept.file)] {
            let answer = patiently(|| self.server.ask(kind, digest)).await?;
            if is_passing(answer.status) {
                bail!("the server answers {} when asked for {digest}", answer.status);
            }
            if answer.status != 200 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends a file, unless the server has it.
    ///
    /// # Errors
    /// The server cannot be reached, takes nothing from this caller, or fails with every file.
    pub(super) async fn send(&self, name: &str, bytes: &Bytes, kept: &Kept) -> Result<Fate> {
        if self.has(kept).await? {
            return Ok(Fate::Already);
        }
        let size = bytes.len() as u64;
        let answer = patiently(|| self.server.put(name, size, bytes.clone().into())).await?;
        let fate = fate(&answer)?;
        if !matches!(fate, Fate::Failed(_)) {
            self.failed.store(0, Ordering::Relaxed);
        } else if self.failed.fetch_add(1, Ordering::Relaxed) + 1 >= FAILED_IN_A_ROW {
            bail!("the server failed with {FAILED_IN_A_ROW} files in a row, the last time with {}", why(&answer));
        }
        Ok(fate)
    }
}

/// The last answer to something that is asked again while there is none, or one that may be another soon.
async fn patiently(mut ask: impl AsyncFnMut() -> reqwest::Result<Answered>) -> Result<Answered> {
    let (mut pause, mut attempt) = (PAUSE, 1);
    loop {
        let wait = match ask().await {
            Err(error) if attempt >= ATTEMPTS => return Err(error.into()),
            Err(_) => None,
            Ok(answer) if attempt >= ATTEMPTS || !(is_passing(answer.status) || answer.status == 500) => {
                return Ok(answer);
            }
            Ok(answer) => answer.wait,
        };
        tokio::time::sleep(wait.unwrap_or(pause)).await;
        (attempt, pause) = (attempt + 1, pause * 2);
    }
}

/// Whether a status says nothing of the file: the server has too much to do, or what stands before it does not reach it.
fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

/// What a server's last word on a file means. An error where it holds for every file.
fn fate(answer: &Answered) -> Result<Fate> {
    let status = answer.status;
    let is_taken_down = answer.body["error"]["code"] == "taken-down" || matches!(status, 410 | 451);
    Ok(match status {
        200 => Fate::Already,
        201 => Fate::Imported,
        _ if is_taken_down => Fate::TakenDown(format!("the server has taken it down: {}", why(answer))),
        // Whatever is sent it leads elsewhere.
        300..=399 => bail!("the server answers {status}: {}", why(answer)),
        401 | 403 | 507 => bail!("the server refuses with {status}: {}", why(answer)),
        status if is_passing(status) => bail!("the server answers {status}: {}", why(answer)),
        500.. => Fate::Failed(format!("the server failed with it: {status}: {}", why(answer))),
        status => Fate::Refused(format!("the server refuses it with {status}: {}", why(answer))),
    })
}

fn why(answer: &Answered) -> &str {
    answer.body["error"]["message"].as_str().unwrap_or("no reason was given")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_on_one_file_ends_no_run_and_one_on_the_caller_does() {
        let answered = |status, code: &str| {
            let body = json!({ "error": { "code": code, "message": "because" } });
            fate(&Answered { status, body, wait: None })
        };
        for (status, code) in [(403, "taken-down"), (410, ""), (451, "")] {
            assert!(matches!(answered(status, code), Ok(Fate::TakenDown(why)) if why.contains("because")), "{status}");
        }
        for status in [400, 404, 409, 413, 415, 422] {
            assert!(matches!(answered(status, ""), Ok(Fate::Refused(why)) if why.contains("because")), "{status}");
        }
        assert!(matches!(answered(500, "interrupted"), Ok(Fate::Failed(_))));
        for (status, code) in
            [(302, ""), (308, ""), (401, ""), (403, "denied"), (403, "seal-required"), (429, ""), (503, ""), (507, "")]
        {
            assert!(answered(status, code).is_err(), "{status}");
        }
    }
}
