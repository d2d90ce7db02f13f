//! What `--log` says: a directory, or the URL of a Rekor.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLocation {
    /// An embedded tile log in a directory.
    Directory(PathBuf),
    /// A Rekor, or a server that speaks as one.
    Rekor {
        /// Which API it speaks; `None`: it is asked.
        version: Option<RekorVersion>,
        /// Its URL, without a slash at the end.
        url: String,
    },
}

/// The two APIs of Rekor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekorVersion {
    /// `/api/v1`, on Trillian: `dsse` 0.0.1 entries.
    V1,
    /// `/api/v2`, on tiles: `hashedrekord` 0.0.2 entries.
    V2,
}

/// The text names no log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a log as a directory, file:///DIR, https://HOST, rekor-v2+https://HOST or rekor-v1+https://HOST (without user, query or fragment), found {found:?}"
)]
pub struct LogLocationError {
    found: String,
}

impl FromStr for LogLocation {
    type Err = LogLocationError;

    fn from_str(text: &str) -> Result<Self, LogLocationError> {
        let wrong = || LogLocationError { found: text.chars().take(120).collect() };
        let (version, rest) = match (text.strip_prefix("rekor-v1+"), text.strip_prefix("rekor-v2+")) {
            (Some(url), _) => (Some(RekorVersion::V1), url),
            (_, Some(url)) => (Some(RekorVersion::V2), url),
            _ => (None, text),
        };
        let (scheme, after) = rest.split_once("://").unwrap_or(("", rest));
        match scheme {
            "http" | "https" => {
                if !is_host_and_path(after) {
                    return Err(wrong());
                }
                Ok(Self::Rekor { version, url: rest.trim_end_matches('/').to_owned() })
            }
            // `file:///dir`, and `file://dir` as earlier versions took it.
            "file" if version.is_none() && !after.is_empty() => Ok(Self::Directory(after.into())),
            "" if version.is_none() && !rest.is_empty() => Ok(Self::Directory(rest.into())),
            _ => Err(wrong()),
        }
    }
}

/// Whether what follows `http://` or `https://` is a host and a path alone, of printable ASCII: no user, query or fragment.
pub(crate) fn is_host_and_path(after: &str) -> bool {
    let host = after.split('/').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@' | b'\\');
    !host.is_empty() && after.bytes().all(plain)
}

impl fmt::Display for LogLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Rekor { version, url } => match version {
                None => f.write_str(url),
                Some(RekorVersion::V1) => write!(f, "rekor-v1+{url}"),
                Some(RekorVersion::V2) => write!(f, "rekor-v2+{url}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_a_directory_or_a_rekor() {
        let parse = |text: &str| text.parse::<LogLocation>();
        let rekor = |version, url: &str| Ok(LogLocation::Rekor { version, url: url.into() });
        for (text, path) in [("./log", "./log"), ("file:///var/log", "/var/log"), ("file://log", "log")] {
            assert_eq!(parse(text), Ok(LogLocation::Directory(path.into())), "{text}");
        }
        assert_eq!(parse("https://log.example/"), rekor(None, "https://log.example"));
        assert_eq!(parse("http://127.0.0.1:3000/a"), rekor(None, "http://127.0.0.1:3000/a"));
        assert_eq!(parse("rekor-v1+https://log.example"), rekor(Some(RekorVersion::V1), "https://log.example"));
        assert_eq!(parse("rekor-v2+http://log.example:1"), rekor(Some(RekorVersion::V2), "http://log.example:1"));
        for bad in [
            "",
            "https://",
            "https:///x",
            "https://u:p@log.example",
            "https://log.example?x",
            "https://log.example#x",
            "https://log example",
            "ftp://log.example",
            "rekor-v1+./log",
            "rekor-v1+file:///log",
            "rekor-v3+https://log.example",
            "file://",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
