//! Names of repositories and tags: parsed once, safe as paths from then on.

use std::fmt;
use std::str::FromStr;

/// The longest repository name: what file systems and other registries take.
const NAME_LIMIT: usize = 255;

/// The longest tag (OCI distribution-spec).
const TAG_LIMIT: usize = 128;

/// A repository's name: `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*` components, joined by `/`.
///
/// No component starts with `_` or `.`, so the server's own folders beside them cannot clash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RepositoryName(String);

impl RepositoryName {
    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the repository of a name, or below it: `team/app` is below `team`, and `teams` is not.
    pub(crate) fn is_at_or_below(&self, prefix: &Self) -> bool {
        self.0.strip_prefix(&prefix.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A text that names no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected components of lower-case letters and digits, separated inside by '.', '_', '__' or '-', joined by '/', at most 255 bytes"
)]
pub(crate) struct ParseNameError;

impl FromStr for RepositoryName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > NAME_LIMIT || !text.split('/').all(is_component) {
            return Err(ParseNameError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_component(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    is_alphanumeric(first)
        && is_alphanumeric(last)
        && bytes.split(is_alphanumeric).all(|separator| {
            matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|byte| *byte == b'-')
        })
}

/// A tag: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(String);

impl Tag {
    /// The tag as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a tag of 1 to 128 letters, digits, '.', '_' and '-' that starts with none of '.' and '-'")]
pub(crate) struct ParseTagError;

impl FromStr for Tag {
    type Err = ParseTagError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts = text.bytes().next().is_some_and(is_word);
        if !starts || text.len() > TAG_LIMIT || !text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-')) {
            return Err(ParseTagError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_specification() {
        for name in ["a", "a/b", "a.b_c__d---e/0", "conformance/repo1"] {
            assert!(name.parse::<RepositoryName>().is_ok(), "{name}");
        }
        for name in
            ["", "/", "a/", "/a", "a//b", "A", "a..b", "a___b", "_uploads", "a/_tags", "..", "a/../b", "-a", "a-", "é"]
        {
            assert!(name.parse::<RepositoryName>().is_err(), "{name}");
        }
        assert!("a".repeat(255).parse::<RepositoryName>().is_ok());
        assert!("a".repeat(256).parse::<RepositoryName>().is_err());
    }

    #[test]
    fn tags_follow_the_specification() {
        for tag in ["v1", "_", "A.b-c_d", "sha256-abc"] {
            assert!(tag.parse::<Tag>().is_ok(), "{tag}");
        }
        for tag in ["", ".", "..", "-a", ".a", "a/b", "a:b", "a b"] {
            assert!(tag.parse::<Tag>().is_err(), "{tag}");
        }
        assert!("a".repeat(129).parse::<Tag>().is_err());
    }
}
