//! What a token may do, in the words in which it is written down.

use std::fmt;
use std::str::FromStr;

use crate::repositories::RepositoryName;

/// The repositories below a path: `team` holds `team` and `team/app`, and not `teams`. The empty path holds all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Prefix(String);

impl Prefix {
    /// Whether a repository lies below it.
    #[must_use]
    pub fn holds(&self, repository: &str) -> bool {
        match repository.strip_prefix(self.0.as_str()) {
            Some(rest) => self.0.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "*" } else { &self.0 })
    }
}

impl FromStr for Prefix {
    type Err = ParseGrantError;

    fn from_str(text: &str) -> Result<Self, ParseGrantError> {
        if text == "*" {
            return Ok(Self::default());
        }
        let path = text.strip_suffix('/').unwrap_or(text);
        match path.parse::<RepositoryName>() {
            Ok(_) => Ok(Self(path.to_owned())),
            Err(error) => Err(ParseGrantError { text: text.to_owned(), reason: error.to_string() }),
        }
    }
}

/// One thing that a token may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Reads the repositories below a path, and the symbols in them.
    Read(Prefix),
    /// Reads and writes them.
    Write(Prefix),
    /// Reads traces and their frames.
    ReadTraces,
    /// Reads and stores them.
    WriteTraces,
    /// Logs signatures of the keys that are registered with the token.
    WriteLog,
    /// Reads the audit log.
    ReadAudit,
}

impl Grant {
    /// Whether it lets its holder read a repository.
    #[must_use]
    pub fn reads(&self, repository: &str) -> bool {
        matches!(self, Self::Read(prefix) | Self::Write(prefix) if prefix.holds(repository))
    }

    /// Whether it lets its holder write to a repository.
    #[must_use]
    pub fn writes(&self, repository: &str) -> bool {
        matches!(self, Self::Write(prefix) if prefix.holds(repository))
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(prefix) => write!(f, "read:{prefix}"),
            Self::Write(prefix) => write!(f, "write:{prefix}"),
            Self::ReadTraces => f.write_str("traces:read"),
            Self::WriteTraces => f.write_str("traces:write"),
            Self::WriteLog => f.write_str("log:write"),
            Self::ReadAudit => f.write_str("audit:read"),
        }
    }
}

impl FromStr for Grant {
    type Err = ParseGrantError;

    fn from_str(text: &str) -> Result<Self, ParseGrantError> {
        match text {
            "traces:read" => return Ok(Self::ReadTraces),
            "traces:write" => return Ok(Self::WriteTraces),
            "log:write" => return Ok(Self::WriteLog),
            "audit:read" => return Ok(Self::ReadAudit),
            _ => {}
        }
        match text.split_once(':') {
            Some(("read", prefix)) => Ok(Self::Read(prefix.parse()?)),
            Some(("write", prefix)) => Ok(Self::Write(prefix.parse()?)),
            _ => {
                let reason = "expected read:PREFIX, write:PREFIX, traces:read, traces:write, log:write or audit:read";
                Err(ParseGrantError { text: text.to_owned(), reason: reason.to_owned() })
            }
        }
    }
}

/// A text is no grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {reason}")]
pub struct ParseGrantError {
    text: String,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let team: Prefix = "team/".parse().unwrap();
        assert!(team.holds("team") && team.holds("team/app"));
        assert!(!team.holds("teams") && !team.holds("tea") && !team.holds("other/team"));
        assert!("*".parse::<Prefix>().unwrap().holds("anything/at/all"));
    }

    #[test]
    fn grants_are_read_as_they_are_written() {
        for text in ["read:*", "write:team/app", "traces:read", "traces:write", "log:write", "audit:read"] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
        for text in ["", "read", "read:", "read:/etc", "read:..", "read:a//b", "delete:team", "READ:*"] {
            assert!(text.parse::<Grant>().is_err(), "{text}");
        }
    }

    #[test]
    fn who_may_write_may_read() {
        let grant: Grant = "write:team".parse().unwrap();
        assert!(grant.reads("team/app") && grant.writes("team/app"));
        assert!(!"read:team".parse::<Grant>().unwrap().writes("team/app"));
    }
}
