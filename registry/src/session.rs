//! One repository of one registry, over HTTP: authorization, retries, and errors that say what to do.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oci_client::RegistryOperation;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::Mutex;

use crate::challenge::{self, Challenge, bearer};
use crate::client::client;
use crate::options::Progress;
use crate::{Options, Reference, RegistryError};

/// The wait before the second try; it doubles from try to try.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// The longest wait that we choose ourselves.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The longest wait that a registry may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Tries while the registry was never reached: a wrong address should be told quickly.
const TRIES_UNREACHED: u32 = 2;

/// Refusals after which a request asks no more, however often others renewed the header meanwhile.
const MOST_REFUSALS: u32 = 8;

/// Bytes of an error answer that are read.
const MESSAGE_LIMIT: usize = 16 << 10;

/// A client of one repository.
pub(crate) struct Session {
    http: Client,
    /// Where the registry's API is, without a slash at the end.
    root: String,
    base: Url,
    reference: Reference,
    /// What a token must allow, such as `repository:team/app:pull,push`.
    scopes: Vec<String>,
    pub(crate) options: Options,
    authorization: Mutex<Authorization>,
    reached: AtomicBool,
}

/// What was found out about the registry's wishes.
struct Authorization {
    header: Option<HeaderValue>,
    /// How often it was asked for: a request that was refused under an older header tries the newer one first.
    generation: u64,
}

/// What there is to try after a refusal.
enum Renewal {
    /// A header that this request asked for: where it is refused as well, there is nothing more to ask.
    Asked,
    /// One that another request got meanwhile. It may have expired since, so that it says nothing of the credentials.
    ByAnother,
    Nothing,
}

/// What a request must get.
#[derive(Clone, Copy)]
pub(crate) struct Expect {
    /// For the error.
    pub(crate) text: &'static str,
    /// Statuses that are answers.
    pub(crate) statuses: &'static [StatusCode],
}

impl Session {
    /// A client of `reference`'s repository. Nothing is sent yet.
    pub(crate) fn new(
        reference: &Reference,
        operation: RegistryOperation,
        options: &Options,
    ) -> Result<Self, RegistryError> {
        let root = reference.base_url(options.tls);
        let protocol = |problem: String| RegistryError::Protocol { url: root.clone(), problem };
        let http = client()
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.stall_timeout)
            .redirect(options.redirections.policy())
            .build()
            .map_err(|error| protocol(error.to_string()))?;
        let base = Url::parse(&root).map_err(|error| protocol(error.to_string()))?;
        // A password is sent only to a registry that asks for one.
        let header = match &options.auth {
            RegistryAuth::Bearer(token) => bearer(token),
            RegistryAuth::Basic(..) | RegistryAuth::Anonymous => None,
        };
        let may = match operation {
            RegistryOperation::Push => "pull,push",
            RegistryOperation::Pull => "pull",
        };
        let scopes = vec![format!("repository:{}:{may}", reference.repository())];
        Ok(Self {
            http,
            root,
            base,
            reference: reference.clone(),
            scopes,
            options: options.clone(),
            authorization: Mutex::new(Authorization { header, generation: 0 }),
            reached: AtomicBool::new(false),
        })
    }

    /// The same, with a token that also allows to pull from other repositories of the registry: a mount needs that.
    pub(crate) fn and_pull_from(mut self, repositories: impl IntoIterator<Item = String>) -> Self {
        self.scopes.extend(repositories.into_iter().map(|repository| format!("repository:{repository}:pull")));
        self
    }

    /// The reference that this session was made for.
    pub(crate) fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The URL of a path below the repository, such as `blobs/sha256:…`.
    pub(crate) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let text = format!("{}/v2/{}/{path}", self.root, self.reference.repository());
        Url::parse(&text).map_err(|error| RegistryError::Protocol { url: text, problem: error.to_string() })
    }

    /// Where an answer's `Location` leads; it may be relative.
    pub(crate) fn location(&self, response: &Response) -> Result<Url, RegistryError> {
        let text = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        text.and_then(|text| response.url().join(text).ok()).ok_or_else(|| RegistryError::Protocol {
            url: response.url().to_string(),
            problem: "the answer has no Location to go on at".to_owned(),
        })
    }

    /// Sends a request until it is answered with what is expected; a failure that may pass is tried again.
    ///
    /// `finish` adds headers and body, anew for every try.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &Url,
        expect: Expect,
        finish: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let mut tried = 0;
        loop {
            tried += 1;
            match self.send_once(method.clone(), url, expect, &finish).await {
                Ok(response) => return Ok(response),
                Err(failure) => self.wait_or_give_up(failure, tried).await?,
            }
        }
    }

    /// One try, with the question for credentials when the registry asks for them.
    pub(crate) async fn send_once(
        &self,
        method: Method,
        url: &Url,
        expect: Expect,
        finish: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Failure> {
        let (mut asked, mut refusals) = (false, 0);
        loop {
            let (header, generation) = {
                let authorization = self.authorization.lock().await;
                (authorization.header.clone(), authorization.generation)
            };
            let mut request = finish(self.http.request(method.clone(), url.clone()));
            // Credentials are the registry's alone: an upload location elsewhere does not get them.
            if let Some(header) = header.filter(|_| url.origin() == self.base.origin()) {
                request = request.header(AUTHORIZATION, header);
            }
            let response = request.send().await.map_err(|error| Failure::unsent(url, &error))?;
            self.reached.store(true, Ordering::Relaxed);
            let status = response.status();
            if expect.statuses.contains(&status) {
                return Ok(response);
            }
            refusals += 1;
            let may_ask = !asked && refusals < MOST_REFUSALS && url.origin() == self.base.origin();
            let renewal = if status == StatusCode::UNAUTHORIZED && may_ask {
                self.authorize(generation, response.headers()).await?
            } else {
                Renewal::Nothing
            };
            match renewal {
                Renewal::Asked => asked = true,
                Renewal::ByAnother => {}
                Renewal::Nothing => return Err(Failure::of(response, expect.text).await.with_who(&self.options.auth)),
            }
        }
    }

    /// Waits before the next try; the error, when there is none.
    pub(crate) async fn wait_or_give_up(&self, failure: Failure, tried: u32) -> Result<(), RegistryError> {
        let reached = self.reached.load(Ordering::Relaxed);
        let tries = if reached { self.options.tries.max(1) } else { TRIES_UNREACHED.min(self.options.tries.max(1)) };
        if !failure.may_pass || tried >= tries {
            return Err(failure.into_error(tried));
        }
        let wait = failure.retry_after.unwrap_or_else(|| backoff(tried));
        self.options.tell(Progress::Retry { reason: failure.error.to_string() });
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Answers the registry's challenge, unless another request did while this one was refused.
    async fn authorize(&self, refused_generation: u64, refusal: &HeaderMap) -> Result<Renewal, Failure> {
        let mut authorization = self.authorization.lock().await;
        if authorization.generation != refused_generation {
            return Ok(Renewal::ByAnother);
        }
        for challenge in challenge::challenges(refusal) {
            if let Challenge::Bearer { realm, .. } = &challenge
                && !Url::parse(realm).is_ok_and(|realm| self.options.redirections.allow(&self.base, &realm))
            {
                let problem =
                    "as the server of tokens: expected one at the same place, or by https at a host with a name"
                        .to_owned();
                return Err(Failure::lasting(RegistryError::Protocol { url: realm.clone(), problem }));
            }
            let answer = challenge::answer(&self.http, &challenge, &self.options.auth, &self.scopes).await;
            let header = answer.map_err(|failure| failure.with_who(&self.options.auth))?;
            if header.is_some() && header != authorization.header {
                authorization.header = header;
                authorization.generation += 1;
                return Ok(Renewal::Asked);
            }
        }
        Ok(Renewal::Nothing)
    }
}

/// A try that failed.
pub(crate) struct Failure {
    error: RegistryError,
    /// Whether another try may succeed.
    pub(crate) may_pass: bool,
    retry_after: Option<Duration>,
    /// The status, where there was an answer.
    pub(crate) status: Option<StatusCode>,
}

impl Failure {
    /// The connection was not made, or broke.
    pub(crate) fn broken(url: &Url, error: &dyn std::error::Error) -> Self {
        let error = RegistryError::Unreachable { url: shown(url), reason: innermost(error), tries: 1 };
        Self { error, may_pass: true, retry_after: None, status: None }
    }

    /// A request failed before its answer; one that is led to a forbidden place will be led there again.
    fn unsent(url: &Url, error: &reqwest::Error) -> Self {
        if error.is_redirect() {
            let (url, problem) = (shown(url), innermost(error));
            return Self::lasting(RegistryError::Protocol { url, problem });
        }
        Self::broken(url, error)
    }

    /// An answer that another try may better.
    pub(crate) fn again(url: &Url, reason: &str) -> Self {
        let error = RegistryError::Unreachable { url: shown(url), reason: reason.to_owned(), tries: 1 };
        Self { error, may_pass: true, retry_after: None, status: None }
    }

    /// Nothing that another try would change.
    pub(crate) fn lasting(error: RegistryError) -> Self {
        Self { error, may_pass: false, retry_after: None, status: None }
    }

    pub(crate) async fn of(response: Response, expected: &'static str) -> Self {
        let (status, url) = (response.status(), shown(response.url()));
        let asks_for_credentials = response.headers().contains_key(WWW_AUTHENTICATE);
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(seconds);
        let message = message(response).await;
        let may_pass = status.is_server_error() && status != StatusCode::INSUFFICIENT_STORAGE
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let error = match status {
            StatusCode::UNAUTHORIZED => RegistryError::Unauthorized { url, message, who: String::new() },
            // Quotas and takedowns are 403 as well: what the registry says of them is worth more than a guess.
            StatusCode::FORBIDDEN if asks_for_credentials || message.is_empty() => {
                RegistryError::Unauthorized { url, message, who: String::new() }
            }
            StatusCode::FORBIDDEN => RegistryError::Forbidden { url, message, who: String::new() },
            _ => RegistryError::Refused { url, expected, status: status.as_u16(), message },
        };
        Self { error, may_pass, retry_after, status: Some(status) }
    }

    /// Says in a refusal who was refused.
    fn with_who(mut self, auth: &RegistryAuth) -> Self {
        if let RegistryError::Unauthorized { who, .. } | RegistryError::Forbidden { who, .. } = &mut self.error {
            *who = match auth {
                RegistryAuth::Anonymous => "a caller without credentials".to_owned(),
                RegistryAuth::Basic(user, _) if user == challenge::IDENTITY_TOKEN_USER => {
                    "an identity token".to_owned()
                }
                RegistryAuth::Basic(user, _) => format!("the user {user:?}"),
                RegistryAuth::Bearer(_) => "a bearer token".to_owned(),
            };
        }
        self
    }

    pub(crate) fn into_error(self, tried: u32) -> RegistryError {
        match self.error {
            RegistryError::Unreachable { url, reason, .. } => RegistryError::Unreachable { url, reason, tries: tried },
            error => error,
        }
    }
}

/// `Retry-After` in seconds, bounded. Its other form, a date, is left to our own waits.
fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

/// Doubles from try to try, with a random half, so that many clients do not come back at once.
fn backoff(tried: u32) -> Duration {
    let wait = FIRST_WAIT.saturating_mul(1 << tried.saturating_sub(1).min(10)).min(LONGEST_WAIT);
    let random = RandomState::new().hash_one(tried) % 1000;
    wait / 2 + wait / 2 * u32::try_from(random).unwrap_or_default() / 1000
}

/// A URL for people: its query may be what lets somebody in, as that of a store that a registry led to.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// What the system said at the bottom of a chain of errors.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The registry's own words of an error answer.
async fn message(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MESSAGE_LIMIT {
            break;
        }
    }
    let json = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let errors = json.as_ref().and_then(|json| json.get("errors")?.as_array());
    let one = |error: &serde_json::Value| {
        let field = |name| error.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        format!("{} {}", field("code"), field("message")).trim().to_owned()
    };
    match errors {
        Some(errors) if !errors.is_empty() => errors.iter().map(one).collect::<Vec<_>>().join("; "),
        _ => String::from_utf8_lossy(&bytes).trim().chars().take(300).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_bounded() {
        for tried in 1..40 {
            let wait = backoff(tried);
            assert!(wait >= FIRST_WAIT / 2 && wait <= LONGEST_WAIT, "{tried}: {wait:?}");
        }
        assert_eq!(seconds("7"), Some(Duration::from_secs(7)));
        assert_eq!(seconds("999999"), Some(LONGEST_RETRY_AFTER));
        assert_eq!(seconds("Fri, 20 Nov 2026 11:00:00 GMT"), None);
    }
}
