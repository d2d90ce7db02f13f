//! What a token may do, in the words in which it is written down.

use std::fmt;
use std::str::FromStr;

use super::Action;
use crate::repositories::{ParsePrefixError, Prefix, RepositoryName};

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
    /// Whether it lets its holder do something to a repository. Who may write may delete, and read.
    pub(crate) fn allows(&self, repository: &RepositoryName, action: Action) -> bool {
        match self {
            Self::Read(prefix) => action == Action::Pull && prefix.holds(repository),
            Self::Write(prefix) => prefix.holds(repository),
            _ => false,
        }
    }

    /// The repositories that it is about.
    pub(super) fn prefix(&self) -> Option<&Prefix> {
        match self {
            Self::Read(prefix) | Self::Write(prefix) => Some(prefix),
            _ => None,
        }
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
            _ => Err(ParseGrantError::Unknown(text.to_owned())),
        }
    }
}

/// A text is no grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseGrantError {
    /// Nothing of this name can be granted.
    #[error("{0:?}: expected read:PREFIX, write:PREFIX, traces:read, traces:write, log:write or audit:read")]
    Unknown(String),
    /// The repositories are not named as such.
    #[error(transparent)]
    Prefix(#[from] ParsePrefixError),
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let app: RepositoryName = "team/app".parse().unwrap();
        assert!([Action::Pull, Action::Push, Action::Delete].iter().all(|action| grant.allows(&app, *action)));
        let reads: Grant = "read:team".parse().unwrap();
        assert!(reads.allows(&app, Action::Pull) && !reads.allows(&app, Action::Push));
    }
}
