//! The repositories below a name.

use std::fmt;
use std::str::FromStr;

use super::{ParseNameError, RepositoryName};

/// The repository of a name and those below it: `team` holds `team` and `team/app`, and not `teams`. The default holds all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Prefix(Below);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Below {
    #[default]
    Root,
    Name(RepositoryName),
    /// The repository alone, as a session asks for it. Nobody writes it down.
    One(RepositoryName),
}

impl Prefix {
    /// One repository and none below it.
    pub(crate) fn of_one(name: RepositoryName) -> Self {
        Self(Below::One(name))
    }

    /// Whether a repository is it or lies below it.
    pub(crate) fn holds(&self, repository: &RepositoryName) -> bool {
        match &self.0 {
            Below::Root => true,
            Below::Name(prefix) => repository.is_at_or_below(prefix),
            Below::One(name) => repository == name,
        }
    }

    /// Whether it holds everything that another one holds.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Below::Root, _) => true,
            (Below::Name(_), Below::Name(name)) | (_, Below::One(name)) => self.holds(name),
            (Below::Name(_) | Below::One(_), Below::Root) | (Below::One(_), Below::Name(_)) => false,
        }
    }

    /// Whether every repository is.
    pub(crate) fn holds_all(&self) -> bool {
        self.0 == Below::Root
    }
}

impl From<RepositoryName> for Prefix {
    fn from(name: RepositoryName) -> Self {
        Self(Below::Name(name))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Below::Root => f.write_str("*"),
            Below::Name(name) | Below::One(name) => name.fmt(f),
        }
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        if text == "*" {
            return Ok(Self::default());
        }
        let name = text.strip_suffix('/').unwrap_or(text).parse::<RepositoryName>();
        name.map(Self::from).map_err(|reason| ParsePrefixError { text: text.to_owned(), reason })
    }
}

/// A text is neither a repository's name nor `*`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected * for every repository, or the name of one: {reason}")]
pub struct ParsePrefixError {
    text: String,
    reason: ParseNameError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let team: Prefix = "team/".parse().unwrap();
        let holds = |prefix: &Prefix, name: &str| prefix.holds(&name.parse().unwrap());
        assert!(holds(&team, "team") && holds(&team, "team/app"));
        assert!(!holds(&team, "teams") && !holds(&team, "tea") && !holds(&team, "other/team"));
        assert!(holds(&"*".parse().unwrap(), "anything/at/all"));
        assert_eq!((team.to_string(), Prefix::default().to_string()), ("team".into(), "*".into()));
    }
}
