//! The servers that a person has set for other debuggers.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::{CACHE_BYTES, Floor, OnlineConfig, OnlineError};

impl OnlineConfig {
    /// Servers as gdb and WinDbg find them: `DEBUGINFOD_URLS`, `DEBUGINFOD_HEADERS_FILE`, `DEBUGINFOD_TIMEOUT`, `_NT_SYMBOL_PATH`; the cache below `cache`.
    ///
    /// # Errors
    /// [`OnlineError::Header`] where the file of headers cannot be read.
    pub fn from_environment(cache: PathBuf) -> Result<Self, OnlineError> {
        let value = |name: &str| std::env::var(name).unwrap_or_default();
        let headers = match value("DEBUGINFOD_HEADERS_FILE") {
            place if place.is_empty() => Vec::new(),
            place => {
                let read = std::fs::read_to_string(&place);
                let text = read.map_err(|error| OnlineError::Header { place, problem: error.to_string() })?;
                text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
            }
        };
        let silence = value("DEBUGINFOD_TIMEOUT").parse().ok().filter(|seconds| *seconds > 0).unwrap_or(30);
        Ok(Self {
            debuginfod: value("DEBUGINFOD_URLS").split_whitespace().map(str::to_owned).collect(),
            symbol_servers: symbol_path(&value("_NT_SYMBOL_PATH")),
            headers,
            cache,
            cache_bytes: CACHE_BYTES,
            elfutils_cache: elfutils_cache(),
            file_bytes: 4 << 30,
            connect: Duration::from_secs(3),
            silence: Duration::from_secs(silence),
            floor: Floor::default(),
        })
    }
}

/// The URLs in a symbol path: `srv*CACHE*URL;URL;cache*DIR;DIR`. Folders are for debuggers on that machine.
fn symbol_path(text: &str) -> Vec<String> {
    let parts = text.split(';').flat_map(|element| element.split('*'));
    let is_url = |part: &&str| {
        let lower = part.to_ascii_lowercase();
        lower.starts_with("http://") || lower.starts_with("https://")
    };
    let mut urls: Vec<String> = Vec::new();
    for url in parts.map(str::trim).filter(is_url) {
        if !urls.iter().any(|known| known == url) {
            urls.push(url.to_owned());
        }
    }
    urls
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
        assert_eq!(symbol_path(path), ["https://one.example/download/symbols", "http://two.example"]);
        assert!(symbol_path("").is_empty());
    }

    #[test]
    fn a_wrong_header_is_named_by_its_line_and_never_shown() {
        let lines = ["X-Token: secret".to_owned(), "no colon and a secret".to_owned()];
        assert_eq!(headers(&lines[..1], "file").unwrap().len(), 1);
        let error = headers(&lines, "file").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    }
}
