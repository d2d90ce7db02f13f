//! What was looked at, how it stands, and what to do about it.

use serde::Serialize;

/// How something stands that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// As it should be.
    Ok,
    /// Not looked at; the finding says why.
    Skipped,
    /// It works, and will not for ever, or not for everybody.
    Warning,
    /// Something does not work.
    Problem,
}

impl Standing {
    /// The word for it, as people and machines read it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What was found of one thing. `docs/formats/command_output.md` lists the ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, such as `data.room`.
    pub id: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// What was found, for people.
    pub found: String,
    /// What to do; `None` where there is nothing to do.
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, standing: Standing::Ok, found: found.into(), advice: None }
    }

    /// Not looked at, and why.
    pub fn skipped(id: &'static str, why: impl Into<String>) -> Self {
        Self { id, standing: Standing::Skipped, found: why.into(), advice: None }
    }

    /// It works, and will not for ever, or not for everybody.
    pub fn warning(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { id, standing: Standing::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    /// It does not work.
    pub fn problem(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { id, standing: Standing::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}
