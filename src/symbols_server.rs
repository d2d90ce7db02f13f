//! A server that takes files by themselves, without a bundle.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, Response, Url, header};
use serde_json::{Value, json};
use symseal_bundle::Digest;
use symseal_resolver::without_secrets;

use crate::http_client;

/// The environment variable with a token, for a server that asks for one.
const TOKEN: &str = "SYMSEAL_TOKEN";

/// The longest that a server that is asked too much is waited for, in seconds.
const LONGEST_WAIT: u64 = 120;

/// A repository of loose files on a server.
#[derive(Debug, Clone)]
pub(crate) struct SymbolsServer {
    client: Client,
    url: Url,
    repository: String,
    token: Option<String>,
}

/// What a server says to a file.
#[derive(Debug)]
pub(crate) struct Answered {
    /// HTTP status: 201 taken, 200 there already.
    pub(crate) status: u16,
    /// What else it says, an error among it.
    pub(crate) body: Value,
    /// How long to wait before asking again, where it says that.
    pub(crate) wait: Option<Duration>,
}

/// A repository that files without a bundle may be in: `loose`, or one below it.
///
/// # Errors
/// What was expected, for the command line.
pub(crate) fn loose_repository(text: &str) -> std::result::Result<String, String> {
    // A tag behind it, or a digest, is no part of a repository's name.
    let is_name =
        symseal_registry::Reference::parse(&format!("localhost/{text}")).is_ok_and(|it| it.repository() == text);
    let is_loose = is_name && (text == "loose" || text.starts_with("loose/"));
    if is_loose { Ok(text.to_owned()) } else { Err("expected loose, or a name below it such as loose/team".to_owned()) }
}

impl SymbolsServer {
    /// Refuses to send a token over the network in plain text.
    pub(crate) fn new(url: &Url, repository: &str) -> Result<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            bail!("--to {url}: expected http://HOST or https://HOST");
        }
        let token = std::env::var(TOKEN).ok();
        if url.scheme() == "http" && token.is_some() && !is_this_machine(url) {
            bail!("--to {url}: expected https, as {TOKEN} would go over the network in plain text");
        }
        let mut client = http_client::client();
        if is_this_machine(url) {
            // The environment's proxy is the way to other machines: for it, this one would be another.
            client = client.no_proxy();
        }
        // reqwest makes a GET of a PUT that is led elsewhere with 301 or 302, and a list of files with 200 is no word on this one.
        let client = client.redirect(Policy::none()).build().context("no HTTP client could be made")?;
        Ok(Self { client, url: url.clone(), repository: repository.to_owned(), token })
    }

    /// With this token in place of the environment's.
    #[must_use]
    pub(crate) fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a file; an error only where there is no answer.
    pub(crate) async fn put(&self, name: &str, size: u64, body: Body) -> reqwest::Result<Answered> {
        let mut url = self.at(&["api", "v1", "symbols"]);
        url.query_pairs_mut().append_pair("name", name).append_pair("repository", &self.repository);
        let mut request = self.client.put(url).header(header::CONTENT_LENGTH, size).body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await?;
        let (status, wait) = (answer.status().as_u16(), wait(&answer));
        if answer.status().is_redirection() {
            let message = match leads_to(&answer) {
                Some(place) => format!("it leads to {place}: name the server itself with --to"),
                None => "it leads elsewhere, and does not say where".to_owned(),
            };
            return Ok(Answered { status, body: json!({ "error": { "message": message } }), wait });
        }
        let text = answer.text().await?;
        let body = serde_json::from_str(&text).unwrap_or_else(|_| json!({ "error": { "message": text.trim() } }));
        Ok(Answered { status, body, wait })
    }

    /// Asks whether its repository has a manifest, or a blob (`kind`): 200 where it has; an error only where there is no answer.
    pub(crate) async fn ask(&self, kind: &str, digest: &Digest) -> reqwest::Result<Answered> {
        let mut parts = vec!["v2"];
        parts.extend(self.repository.split('/'));
        let digest = digest.to_string();
        parts.extend([kind, &digest]);
        let mut request = self.client.head(self.at(&parts));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await?;
        Ok(Answered { status: answer.status().as_u16(), body: Value::Null, wait: wait(&answer) })
    }

    fn at(&self, parts: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        url
    }
}

/// Where an answer leads, without what is secret in it and without the query, which is the request's own.
fn leads_to(answer: &Response) -> Option<String> {
    let location = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    let mut place = answer.url().join(location).ok()?;
    place.set_query(None);
    Some(without_secrets(place.as_str()))
}

fn wait(answer: &Response) -> Option<Duration> {
    let seconds: u64 = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.min(LONGEST_WAIT)))
}

/// Whether a URL leads no further than this machine.
fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
