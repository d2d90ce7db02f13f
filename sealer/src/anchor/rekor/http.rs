//! Requests to a log: bounded answers, no redirections, a few tries where a log says that it is busy.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, StatusCode};

use super::RekorLog;
use crate::anchor::AnchorError;

/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read; those of logs are below 64 KiB.
const ANSWER_LIMIT: usize = 1 << 20;
/// Tries of a request that a busy log turns away.
const TRIES: u32 = 4;
/// The wait before the second try; it doubles from try to try.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait that a log may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// What is repeated of a log's words.
const SAID_LIMIT: usize = 400;

/// A client of one log.
pub(super) struct Http<'a> {
    log: &'a RekorLog,
    client: Client,
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    headers: HeaderMap,
}

impl Answer {
    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// `Location`.
    pub(super) fn location(&self) -> Option<&str> {
        self.header(LOCATION.as_str())
    }
}

impl<'a> Http<'a> {
    pub(super) fn new(log: &'a RekorLog) -> Result<Self, AnchorError> {
        let client = crate::online::client()
            .connect_timeout(CONNECT_LIMIT)
            .build()
            .map_err(|error| log.unreachable(error.to_string()))?;
        Ok(Self { log, client })
    }

    /// Posts JSON to a path of the log.
    pub(super) async fn post(&self, path: &str, json: &serde_json::Value) -> Result<Answer, AnchorError> {
        let url = format!("{}{path}", self.log.url);
        let body = json.to_string();
        let request = || {
            let request = self.client.post(&url).header(CONTENT_TYPE, "application/json").body(body.clone());
            self.with_token(request)
        };
        self.send(request).await
    }

    /// Gets a path of the log.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, AnchorError> {
        let url = format!("{}{path}", self.log.url);
        self.send(|| self.with_token(self.client.get(&url))).await
    }

    /// Gets a path below the URL at which the log is read, which is public.
    pub(super) async fn read(&self, path: &str) -> Result<Answer, AnchorError> {
        let url = format!("{}/{path}", self.log.read_url());
        self.send(|| self.client.get(&url)).await
    }

    fn with_token(&self, request: RequestBuilder) -> RequestBuilder {
        let Some(token) = &self.log.token else { return request };
        match HeaderValue::from_str(&format!("Bearer {token}")) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(AUTHORIZATION, value)
            }
            Err(_) => request,
        }
    }

    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Answer, AnchorError> {
        let mut wait = FIRST_WAIT;
        for tried in 1.. {
            let answer = self.once(request()).await?;
            let busy = matches!(answer.status.as_u16(), 429 | 502 | 503 | 504);
            if !busy || tried == TRIES {
                return Ok(answer);
            }
            let asked = answer.header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()).map(Duration::from_secs);
            tokio::time::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT)).await;
            wait *= 2;
        }
        Err(self.log.unreachable("no answer"))
    }

    async fn once(&self, request: RequestBuilder) -> Result<Answer, AnchorError> {
        let broken = |error: reqwest::Error| self.log.unreachable(crate::online::reasons(&error));
        let mut response = request.send().await.map_err(broken)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(self.log.answer("an answer of at most 1 MiB", "a longer one"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body, headers })
    }

    /// The refusal of an answer that is none of those that were expected.
    pub(super) fn refused(&self, answer: &Answer) -> AnchorError {
        let text = String::from_utf8_lossy(&answer.body);
        // Both APIs answer errors with JSON that has a `message`.
        let message = serde_json::from_slice::<serde_json::Value>(&answer.body)
            .ok()
            .and_then(|json| json.get("message").and_then(|message| message.as_str().map(str::to_owned)));
        let said: String =
            message.unwrap_or_else(|| text.into_owned()).chars().filter(|c| !c.is_control()).take(SAID_LIMIT).collect();
        let hint = match answer.status.as_u16() {
            401 | 403 => " (does the log take entries from this key, and with this token?)",
            405 => " (the log is frozen: take the newest one)",
            300..=399 => " (redirections are not followed: give the log's own URL)",
            _ => "",
        };
        AnchorError::Refused {
            log: self.log.url.clone(),
            status: answer.status.as_u16(),
            said: format!("{}{hint}", if said.is_empty() { "nothing" } else { said.trim() }),
        }
    }
}
