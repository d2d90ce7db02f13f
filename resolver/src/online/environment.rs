//! The servers that a person has set for other debuggers.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use symseal_bundle::open_plain_file;

use super::server::Server;
use super::{CACHE_BYTES, Floor, OnlineConfig, OnlineError};
use crate::without_secrets;

/// The largest file that is taken, in bytes.
const MOST_BYTES: u64 = 4 << 30;

/// What a person has set, as far as servers are asked here.
#[derive(Debug)]
pub struct FromEnvironment {
    /// The servers.
    pub config: OnlineConfig,
    /// What is set for other debuggers and not asked here: each with the reason, for people.
    pub passed_over: Vec<String>,
}

impl OnlineConfig {
    /// Servers as gdb and WinDbg find them: `DEBUGINFOD_URLS`, `DEBUGINFOD_HEADERS_FILE`, `DEBUGINFOD_TIMEOUT`, `DEBUGINFOD_MAXTIME`, `DEBUGINFOD_MAXSIZE`,
    /// `_NT_SYMBOL_PATH`; the cache below `cache`. What bounds one file bounds those of symbol servers, too.
    /// `SYMSEAL_CACHE_BYTES` bounds the cache.
    ///
    /// # Errors
    /// [`OnlineError::Header`] where the file of headers cannot be read; [`OnlineError::Setup`] where the bound is no number.
    pub fn from_environment(cache: PathBuf) -> Result<FromEnvironment, OnlineError> {
        let value = |name: &str| std::env::var(name).unwrap_or_default();
        let headers = match value("DEBUGINFOD_HEADERS_FILE") {
            place if place.is_empty() => Vec::new(),
            place => {
                let text = read(&place).map_err(|error| OnlineError::Header { place, problem: error.to_string() })?;
                text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
            }
        };
        // libdebuginfod takes what is no number, and 0, for no bound; so it is here.
        let number = |name: &str| value(name).parse().ok().filter(|number: &u64| *number > 0);
        let silence = number("DEBUGINFOD_TIMEOUT").unwrap_or(30);
        let cache_bytes = match value("SYMSEAL_CACHE_BYTES") {
            text if text.is_empty() => CACHE_BYTES,
            text => text.parse().map_err(|_| {
                OnlineError::Setup(format!("SYMSEAL_CACHE_BYTES: expected a number of bytes, found {text:?}"))
            })?,
        };
        let mut passed_over = Vec::new();
        let config = Self {
            debuginfod: debuginfod_urls(&value("DEBUGINFOD_URLS"), &mut passed_over),
            symbol_servers: symbol_path(&value("_NT_SYMBOL_PATH"), &mut passed_over),
            headers,
            cache,
            cache_bytes,
            elfutils_cache: elfutils_cache(),
            file_bytes: number("DEBUGINFOD_MAXSIZE").map_or(MOST_BYTES, |bytes| bytes.min(MOST_BYTES)),
            file_time: number("DEBUGINFOD_MAXTIME").map(Duration::from_secs),
            connect: Duration::from_secs(3),
            silence: Duration::from_secs(silence),
            floor: Floor::default(),
        };
        Ok(FromEnvironment { config, passed_over })
    }
}

/// A file's text.
fn read(place: &str) -> std::io::Result<String> {
    let mut text = String::new();
    open_plain_file(Path::new(place))?.read_to_string(&mut text)?;
    Ok(text)
}

/// The servers in a list for libdebuginfod. Words like `ima:enforcing` between them say how it checks what comes from those behind
/// (debuginfod_find_debuginfo(3), "DEBUGINFOD_URLS"); here every file is checked by its id, and by the seal of a bundle.
fn debuginfod_urls(text: &str, passed_over: &mut Vec<String>) -> Vec<String> {
    let mut urls = Vec::new();
    let is_ima = |word: &str| ["ima:enforcing", "ima:permissive", "ima:ignore"].contains(&word);
    for (at, word) in text.split_whitespace().enumerate().filter(|(_, word)| !is_ima(word)) {
        if !word.contains("://") {
            // A part of a URL that was cut in two, a password or a token perhaps: it is told by its place alone.
            passed_over.push(format!(
                "DEBUGINFOD_URLS: word {} is passed over: expected http://HOST or https://HOST, perhaps with a port and a path",
                at.saturating_add(1)
            ));
        } else if is_http(word) {
            add(&mut urls, word, "DEBUGINFOD_URLS", passed_over);
        } else {
            let shown = without_secrets(word);
            passed_over.push(format!("DEBUGINFOD_URLS: {shown} is passed over: only http and https are asked"));
        }
    }
    urls
}

/// The URLs in a symbol path: `srv*CACHE*URL;URL;cache*DIR;DIR`. Folders are for debuggers on that machine.
fn symbol_path(text: &str, passed_over: &mut Vec<String>) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    let elements = text.split(';').map(str::trim).enumerate();
    for (at, element) in elements.filter(|(_, element)| !element.is_empty()) {
        let mut servers = element.split('*').map(str::trim).filter(|part| is_http(part)).peekable();
        if servers.peek().is_none() && !element.to_ascii_lowercase().starts_with("cache*") {
            // What is no folder and no address may be the end of one that had a semicolon in its password or its query.
            let is_place = element.contains("://") || element.contains('\\') || element.starts_with('/');
            let shown = if is_place { without_secrets(element) } else { format!("element {}", at.saturating_add(1)) };
            passed_over
                .push(format!("_NT_SYMBOL_PATH: {shown} is passed over: only servers are asked, by http and https"));
        }
        for url in servers {
            if !urls.iter().any(|known| known == url) {
                add(&mut urls, url, "_NT_SYMBOL_PATH", passed_over);
            }
        }
    }
    urls
}

/// Adds a server to those of a variable. What is the URL of none keeps nobody from the others.
fn add(urls: &mut Vec<String>, url: &str, variable: &str, passed_over: &mut Vec<String>) {
    match Server::parse(url, HeaderMap::new()) {
        Ok(_) => urls.push(url.to_owned()),
        Err(error) => passed_over.push(format!("{variable}: {error}: it is passed over")),
    }
}

fn is_http(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

/// Where libdebuginfod keeps what it fetched. (debuginfod_find_debuginfo(3), "CACHE")
fn elfutils_cache() -> Option<PathBuf> {
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    value("DEBUGINFOD_CACHE_PATH").or_else(|| {
        let base = value("XDG_CACHE_HOME").or_else(|| value("HOME").map(|home| home.join(".cache")))?;
        Some(base.join("debuginfod_client"))
    })
}

/// Headers out of lines.
pub(super) fn headers(lines: &[String], place: &str) -> Result<HeaderMap, OnlineError> {
    let mut headers = HeaderMap::new();
    for (number, line) in lines.iter().enumerate() {
        let wrong = |problem: &str| OnlineError::Header {
            place: place.to_owned(),
            // The value may be a secret.
            problem: format!("line {}: {problem}", number + 1),
        };
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("no colon"))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong("the name is none"))?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong("the value is none"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_path_gives_its_servers_in_order() {
        let path = r"cache*C:\symbols;SRV*C:\x*https://one.example/download/symbols;\\share\symbols;srv*http://two.example;https://one.example/download/symbols";
        let mut over = Vec::new();
        assert_eq!(symbol_path(path, &mut over), ["https://one.example/download/symbols", "http://two.example"]);
        assert!(over.len() == 1 && over[0].contains(r"\\share\symbols"), "{over:?}");
        assert!(symbol_path("", &mut over).is_empty() && over.len() == 1);
    }

    #[test]
    fn what_is_no_server_in_a_list_for_libdebuginfod_keeps_nobody_from_the_others() {
        let mut over = Vec::new();
        let list =
            "ima:enforcing https://one.example ima:ignore file://me:secret@host/usr/lib/debug http://two.example/x";
        assert_eq!(debuginfod_urls(list, &mut over), ["https://one.example", "http://two.example/x"]);
        assert!(over.len() == 1 && over[0].contains("file") && !over[0].contains("secret"), "{over:?}");
        // What was meant to be a server is told of.
        assert_eq!(debuginfod_urls("one.example http:// http://three.example", &mut over), ["http://three.example"]);
        assert!(
            over.len() == 3 && over[1].contains("DEBUGINFOD_URLS: word 1 is passed over: expected http://HOST"),
            "{over:?}"
        );
        assert!(symbol_path("srv*http://", &mut over).is_empty() && over.len() == 4, "{over:?}");
        // What was cut off of a URL may be its password, or a token.
        let mut over = Vec::new();
        let list = "me:secret https://one.example https://me:pass secret@two.example secret://x ima:secret";
        assert_eq!(debuginfod_urls(list, &mut over), ["https://one.example"]);
        assert!(over.len() == 5 && !over.iter().any(|what| what.contains("secret")), "{over:?}");
        assert_eq!(symbol_path("srv*http://h.example/s?a=1;key=secret;secret", &mut over), ["http://h.example/s?a=1"]);
        assert!(over.len() == 7 && over[5].contains("element 2") && over[6].contains("element 3"), "{over:?}");
    }

    #[test]
    fn a_wrong_header_is_named_by_its_line_and_never_shown() {
        let lines = ["X-Token: secret".to_owned(), "no colon and a secret".to_owned()];
        assert_eq!(headers(&lines[..1], "file").unwrap().len(), 1);
        let error = headers(&lines, "file").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    }
}
