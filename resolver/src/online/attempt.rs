//! One request for a file: bounded in bytes and time, and taken up where an earlier one broke off.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LOCATION, RANGE};
use reqwest::redirect::{Action, Attempt};
use reqwest::{Response, StatusCode, Url};

use super::budget::Held;
use super::cache::Part;
use super::download::{Downloads, left_alone};
use super::server::{Server, shown};

/// Redirections that are followed.
const REDIRECTIONS: usize = 5;

/// Why a try ended without the file.
pub(super) enum Ended {
    /// The server has none.
    Absent,
    /// It broke off; another try may go on from there.
    Broken(String),
    /// No further try helps.
    Failed(String),
    /// It is larger than what is taken, as its server said before any of it came.
    Declared(String),
    /// It is larger than what is taken, which was found by taking it.
    TooLarge(String),
    /// The other downloads under way leave no room for it, and nothing of this try is left.
    NoRoom,
    /// The host of this URL cannot be reached, keeps silent, or took its time to fail: no further try helps, nor does asking for another file there.
    Silent(Box<Url>, String),
}

impl Downloads {
    /// A try that ends when this time is over, where it is bounded.
    pub(super) async fn attempt_within(
        &self,
        left: Option<Duration>,
        server: &Server,
        url: &Url,
        into: (&mut Part, &mut Held),
    ) -> Result<String, Ended> {
        let Some(left) = left else { return self.attempt(server, url, into).await };
        let in_time = tokio::time::timeout(left, self.attempt(server, url, into)).await;
        in_time.unwrap_or_else(|_| {
            let most = self.file_time.unwrap_or_default().as_secs_f64();
            Err(Ended::Failed(format!("{}: not all of it came within {most} s (DEBUGINFOD_MAXTIME)", shown(url))))
        })
    }

    async fn attempt(&self, server: &Server, url: &Url, (part, held): (&mut Part, &mut Held)) -> Result<String, Ended> {
        let mut at = part.length().map_err(disk)?;
        let mut range = HeaderMap::new();
        if let Some(etag) = part.etag().filter(|_| at > 0).and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            range.extend([(RANGE, header_of(&format!("bytes={at}-"))), (IF_RANGE, etag)]);
        } else if at > 0 {
            part.begin_anew().map_err(disk)?;
            at = 0;
        }
        let mut asked = Instant::now();
        let mut answer = self.ask(url, server.headers(), &range).await?;
        for _ in 0..REDIRECTIONS {
            // Somewhere else, where nobody is to learn what was meant for this server.
            let Some(elsewhere) = redirected(&answer) else { break };
            if self.silent.contain(&elsewhere) {
                return Err(Ended::Failed(format!(
                    "{}: it sends its clients on: {}",
                    shown(url),
                    left_alone(&elsewhere)
                )));
            }
            part.touch().map_err(disk)?;
            asked = Instant::now();
            answer = self.ask(&elsewhere, &HeaderMap::new(), &range).await?;
        }
        match answer.status() {
            StatusCode::OK => {
                if at > 0 {
                    part.begin_anew().map_err(disk)?;
                }
                part.set_etag(answer.headers().get(ETAG)).map_err(disk)?;
            }
            StatusCode::PARTIAL_CONTENT if at > 0 && begins_at(&answer, at) => {}
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                part.begin_anew().map_err(disk)?;
                let ended = Ended::Broken(format!("{}: another part came than was asked for", shown(url)));
                return Err(self.after(asked.elapsed(), answer.url(), ended));
            }
            StatusCode::NOT_FOUND => return Err(Ended::Absent),
            status => {
                let ended = Ended::Failed(format!("{}: expected 200 or 404, found {status}", shown(url)));
                return Err(self.after(asked.elapsed(), answer.url(), ended));
            }
        }
        let from = answer.url().clone();
        part.touch().map_err(disk)?;
        self.receive(&mut answer, &from, (part, held)).await?;
        // What came is looked at now, which takes its time.
        part.touch().map_err(disk)?;
        Ok(shown(&from))
    }

    /// The head of an answer.
    async fn ask(&self, url: &Url, headers: &HeaderMap, range: &HeaderMap) -> Result<Response, Ended> {
        let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let client = if is_here { &self.direct } else { &self.client };
        let request = client.get(url.clone()).headers(headers.clone()).headers(range.clone());
        // Bytes as they are: ranges are of these.
        let sent = request.header(ACCEPT_ENCODING, "identity").send();
        let asked = Instant::now();
        match tokio::time::timeout(self.silence, sent).await {
            Err(_) => Err(silent(url, self.silence)),
            Ok(Err(error)) if error.is_timeout() && !error.is_connect() => Err(silent(url, self.silence)),
            Ok(Err(error)) => {
                let is_dead = error.is_connect();
                let why = match is_dead && error.is_timeout() {
                    true => format!("{}: no connection within {} s", shown(url), self.connect.as_secs_f64()),
                    false => format!("{}: {}", shown(url), root_of(&error)),
                };
                Err(match is_dead {
                    true => Ended::Silent(Box::new(url.clone()), why),
                    false => self.after(asked.elapsed(), error.url().unwrap_or(url), Ended::Failed(why)),
                })
            }
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    async fn receive(
        &self,
        answer: &mut Response,
        url: &Url,
        (part, held): (&mut Part, &mut Held),
    ) -> Result<(), Ended> {
        let too_large = |bytes: u64| format!("{}: {bytes} bytes are larger than {}", shown(url), self.bound());
        let mut length = part.length().map_err(disk)?;
        // At least so long.
        let all = answer.content_length().map_or(length, |rest| length.saturating_add(rest));
        if all > self.most.0 {
            return Err(Ended::Declared(too_large(all)));
        }
        // Who says how long it is waits for nobody once it has begun.
        if !held.grow_to(all) {
            return Err(Ended::NoRoom);
        }
        let (began, mut heard, mut came) = (Instant::now(), Instant::now(), 0_u64);
        let (mut since, mut received) = (Instant::now(), 0_u64);
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                // What came is kept. A server that falls silent within an answer would do so in the next one.
                Err(error) if is_timeout(&error) => return Err(silent(url, self.silence)),
                Err(error) => {
                    let ended = Ended::Broken(format!("{}: {}", shown(url), root_of(&error)));
                    // Of a large file much may have come, for long, and the rest may come next time.
                    let idle = if came < self.floor.bytes { began.elapsed() } else { heard.elapsed() };
                    return Err(self.after(idle, url, ended));
                }
            };
            heard = Instant::now();
            let bytes = chunk.len() as u64;
            length = length.saturating_add(bytes);
            received = received.saturating_add(bytes);
            came = came.saturating_add(bytes);
            if length > self.most.0 {
                return Err(Ended::TooLarge(too_large(length)));
            }
            if !held.grow_to(length) {
                part.begin_anew().map_err(disk)?;
                return Err(Ended::NoRoom);
            }
            part.append(&chunk).map_err(disk)?;
            if since.elapsed() > self.floor.time {
                if received < self.floor.bytes {
                    let why = format!("{}: {received} bytes in {:?} are too slow", shown(url), self.floor.time);
                    return Err(Ended::Silent(Box::new(url.clone()), why));
                }
                (since, received) = (Instant::now(), 0);
            }
        }
    }

    /// A failure that took its time counts like silence: the next file would cost as much. So do those that took it together.
    fn after(&self, waited: Duration, url: &Url, ended: Ended) -> Ended {
        match ended {
            Ended::Broken(why) | Ended::Failed(why) if self.silent.is_slow_to_fail(url, waited) => {
                Ended::Silent(Box::new(url.clone()), format!("{why}, after {:.1} s", waited.as_secs_f64()))
            }
            other => other,
        }
    }
}

fn silent(url: &Url, silence: Duration) -> Ended {
    let why = format!("{}: no answer within {} s", shown(url), silence.as_secs_f64());
    Ended::Silent(Box::new(url.clone()), why)
}

fn disk(error: std::io::Error) -> Ended {
    Ended::Failed(format!("the cache cannot be written to: {error}"))
}

fn header_of(text: &str) -> HeaderValue {
    // Digits and letters alone.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Redirections are followed without asking as far as they stay with one server.
pub(super) fn within_one_origin(attempt: Attempt<'_>) -> Action {
    if attempt.previous().len() > REDIRECTIONS {
        return attempt.error("too many redirections");
    }
    let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if stays { attempt.follow() } else { attempt.stop() }
}

/// Where an answer leads that is a redirection to another server.
fn redirected(answer: &Response) -> Option<Url> {
    let location = answer.headers().get(LOCATION).filter(|_| answer.status().is_redirection())?;
    let url = answer.url().join(location.to_str().ok()?).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(url)
}

/// A time-out may lie below what reqwest says of a body.
fn is_timeout(error: &reqwest::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    std::iter::from_fn(|| {
        let this = source?;
        source = this.source();
        Some(this)
    })
    .any(|error| {
        let of_request = error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout);
        let of_system = error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::TimedOut);
        of_request || of_system
    })
}

/// Whether a part begins where it was asked to.
fn begins_at(answer: &Response, at: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()) == Some(at)
}

/// What an error comes down to: its own text repeats the URL, with all that is secret in it.
fn root_of(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
