//! Other debuginfod and symbol servers: whether they answer.

use std::time::{Duration, SystemTime};

use reqwest::Certificate;
use reqwest::header::{DATE, HeaderMap};
use symseal_resolver::without_secrets;

use super::{Finding, Standing};
use crate::causes::with_causes;
use crate::origins::Origins;
use crate::upstream::name_of;

/// How long one may take. A debuginfod server with others behind it asks those first.
const PATIENCE: Duration = Duration::from_secs(20);

/// And until it is connected.
const CONNECT: Duration = Duration::from_secs(5);

/// A build-id that no file has, as a file's is a digest.
const NO_BUILD_ID: &str = "0000000000000000000000000000000000000000";

/// What became of a question.
#[derive(Debug)]
pub(super) enum Asked {
    /// The server answered.
    Answered {
        /// With this HTTP status.
        status: u16,
        /// And this time.
        date: Option<SystemTime>,
    },
    /// It did not, and why.
    Silent(String),
}

pub(super) async fn look(origins: &Origins, is_online: bool) -> Vec<Finding> {
    const ID: &str = "upstreams.reached";
    let debuginfod = origins.upstreams.iter().map(|url| (url, true));
    let servers: Vec<_> = debuginfod.chain(origins.symbol_upstreams.iter().map(|url| (url, false))).collect();
    if servers.is_empty() {
        return vec![Finding::skipped(ID, "no other servers are configured")];
    }
    if !is_online {
        return vec![Finding::skipped(ID, format!("{} other servers are not asked without --online", servers.len()))];
    }
    let asked = servers.into_iter().map(|(url, is_debuginfod)| ask_server(ID, url, is_debuginfod, None));
    futures_util::future::join_all(asked).await
}

/// Asks a server for what nobody has, as a debugger would: debuginfod for a build-id, a symbol server for a file. `headers` go along.
pub async fn ask_server(id: &'static str, url: &str, is_debuginfod: bool, headers: Option<HeaderMap>) -> Finding {
    let base = url.trim_end_matches('/');
    let path = if is_debuginfod {
        format!("{base}/buildid/{NO_BUILD_ID}/debuginfo")
    } else {
        format!("{base}/none.pdb/{}1/none.pdb", &NO_BUILD_ID[..32])
    };
    judge(id, &shown(base), ask(&path, headers, None).await)
}

fn judge(id: &'static str, shown: &str, asked: Asked) -> Finding {
    const NAME: &str = "check its name, and whether this machine reaches it (proxy, firewall); clients wait for one that is gone: take it out of the list";
    match asked {
        Asked::Answered { status: 404 | 410, .. } => Finding::ok(id, format!("{shown} answers")),
        Asked::Answered { status: status @ (401 | 403), .. } => Finding::warning(
            id,
            format!("{shown} answers with status {status}: it gives files to those alone that it knows"),
            "give a token in the URL (/t/TOKEN) or in the file that DEBUGINFOD_HEADERS_FILE names",
        ),
        Asked::Answered { status: status @ 200..=399, .. } => Finding::warning(
            id,
            format!(
                "{shown} answers with status {status} where it can have nothing: it may be a page for people, not a server of symbols"
            ),
            "check the URL's path",
        ),
        Asked::Answered { status, .. } => Finding {
            standing: Standing::Problem,
            ..Finding::warning(id, format!("{shown} answers with status {status}"), "ask whoever runs it")
        },
        Asked::Silent(problem) => Finding::problem(id, format!("{shown} does not answer: {problem}"), NAME),
    }
}

/// Asks for the head of what is at a URL. `authorities`: certificates in PEM that are believed beside those of the system.
pub(super) async fn ask(url: &str, headers: Option<HeaderMap>, authorities: Option<&[u8]>) -> Asked {
    let mut client =
        crate::http::client().timeout(PATIENCE).connect_timeout(CONNECT).default_headers(headers.unwrap_or_default());
    for certificate in authorities.and_then(|pem| Certificate::from_pem_bundle(pem).ok()).into_iter().flatten() {
        client = client.add_root_certificate(certificate);
    }
    let answer = match client.build() {
        Ok(client) => client.head(url).send().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => {
            let date = answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
            Asked::Answered { status: answer.status().as_u16(), date }
        }
        Err(error) => Asked::Silent(with_causes(&error.without_url())),
    }
}

/// A URL without passwords and tokens.
fn shown(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(|_| without_secrets(url), |url| name_of(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_says_how_it_stands() {
        let judge = |asked| judge("servers.debuginfod", "http://h", asked).standing;
        let status = |status| Asked::Answered { status, date: None };
        for (asked, expected) in [
            (status(404), Standing::Ok),
            (status(401), Standing::Warning),
            (status(200), Standing::Warning),
            (status(502), Standing::Problem),
            (Asked::Silent("connection refused".into()), Standing::Problem),
        ] {
            assert_eq!(judge(asked), expected);
        }
    }

    #[test]
    fn a_password_or_token_of_a_url_is_not_shown() {
        assert_eq!(shown("https://me:hunter2@h.example/debug"), "https://h.example/debug");
        for wrong in
            ["https://me:hun/ter2@h.example", "https://me:12/hunter2@h.example", "me:hunter2 https://h.example"]
        {
            let shown = shown(wrong);
            assert!(shown.contains("h.example") && !shown.contains("ter2"), "{shown}");
        }
        let token = shown("https://h.example/t/symseal_0123456789abcdef0123456789abcdef/x");
        assert!(!token.contains("0123456789"), "{token}");
    }
}
