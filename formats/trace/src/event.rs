//! The kinds of events, and one line of JSON for each.

use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use symseal_module::{MissReason, Proof, Quality, ResolverStep, StopReason, UnwindMethod};

use crate::{
    ReplayResult, TraceBegin, TraceCapture, TraceCode, TraceEnd, TraceJit, TraceModule, TraceResolved, TraceSample,
};

/// One event, told apart by its field `event`.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// `trace.begin`.
    Begin(TraceBegin),
    /// `trace.module`.
    Module(TraceModule),
    /// `trace.code`.
    Code(TraceCode),
    /// `trace.jit`.
    Jit(TraceJit),
    /// `trace.sample`.
    Sample(TraceSample),
    /// `trace.end`.
    End(TraceEnd),
    /// `trace.capture`.
    Capture(TraceCapture),
    /// `trace.resolved`.
    Resolved(TraceResolved),
    /// `replay.result`.
    ReplayResult(ReplayResult),
    /// An object of a kind (or a `trace.resolved` with codes) that this version does not know, kept as it is. Its field
    /// `event` is a string.
    Other(Value),
}

/// Why a line is no event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Not a JSON object with a string `event`.
    #[error("expected a JSON object with a string field \"event\": {0}")]
    Untagged(serde_json::Error),
    /// The event's fields are not what its kind says.
    #[error("malformed {kind}: {error}")]
    Fields {
        /// The event's kind.
        kind: &'static str,
        /// What is wrong, with the column in the line.
        error: serde_json::Error,
    },
    /// A number that JSON has no form for.
    #[error("{kind} cannot be written: {field} is {found}, expected a finite number")]
    NotFinite {
        /// The event's kind.
        kind: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        found: f64,
    },
    /// The event has no form in JSON.
    #[error("{kind} cannot be written: {error}")]
    Unwritable {
        /// The event's kind.
        kind: String,
        /// Why.
        error: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

impl Event {
    /// The text of the field `event`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Begin(_) => TraceBegin::KIND,
            Self::Module(_) => TraceModule::KIND,
            Self::Code(_) => TraceCode::KIND,
            Self::Jit(_) => TraceJit::KIND,
            Self::Sample(_) => TraceSample::KIND,
            Self::End(_) => TraceEnd::KIND,
            Self::Capture(_) => TraceCapture::KIND,
            Self::Resolved(_) => TraceResolved::KIND,
            Self::ReplayResult(_) => ReplayResult::KIND,
            Self::Other(value) => value.get("event").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// Reads one line, without its line feed.
    pub fn parse(line: &[u8]) -> Result<Self, EventError> {
        let tag: Tag<'_> = serde_json::from_slice(line).map_err(EventError::Untagged)?;
        Ok(match tag.event.as_ref() {
            TraceBegin::KIND => Self::Begin(body(line)?),
            TraceModule::KIND => Self::Module(body(line)?),
            TraceCode::KIND => Self::Code(body(line)?),
            TraceJit::KIND => Self::Jit(body(line)?),
            TraceSample::KIND => Self::Sample(body(line)?),
            TraceEnd::KIND => Self::End(body(line)?),
            TraceCapture::KIND => Self::Capture(body(line)?),
            TraceResolved::KIND => resolved(line)?,
            ReplayResult::KIND => Self::ReplayResult(body(line)?),
            _ => Self::Other(serde_json::from_slice(line).map_err(EventError::Untagged)?),
        })
    }

    /// The event as one line, with its line feed.
    pub fn to_line(&self) -> Result<Vec<u8>, EventError> {
        match self {
            Self::Begin(event) => line_of(event),
            Self::Module(event) => line_of(event),
            Self::Code(event) => line_of(event),
            Self::Jit(event) => line_of(event),
            Self::Sample(event) => line_of(event),
            Self::End(event) => line_of(event),
            Self::Capture(event) => line_of(event),
            Self::Resolved(event) => line_of(event),
            Self::ReplayResult(event) => {
                event.check_finite()?;
                line_of(event)
            }
            Self::Other(value) => with_line_feed(serde_json::to_vec(value), self.kind()),
        }
    }
}

/// An event with its own kind.
pub(crate) trait Kind: Serialize + DeserializeOwned {
    /// The text of the field `event`.
    const KIND: &'static str;
}

macro_rules! kinds {
    ($($name:ident = $kind:literal),* $(,)?) => {
        $(impl Kind for $name { const KIND: &'static str = $kind; })*
    };
}

kinds! {
    TraceBegin = "trace.begin",
    TraceModule = "trace.module",
    TraceCode = "trace.code",
    TraceJit = "trace.jit",
    TraceSample = "trace.sample",
    TraceEnd = "trace.end",
    TraceCapture = "trace.capture",
    TraceResolved = "trace.resolved",
    ReplayResult = "replay.result",
}

fn body<T: Kind>(line: &[u8]) -> Result<T, EventError> {
    serde_json::from_slice(line).map_err(|error| EventError::Fields { kind: T::KIND, error })
}

/// One event as a line, with its line feed.
pub(crate) fn line_of<T: Kind>(event: &T) -> Result<Vec<u8>, EventError> {
    with_line_feed(serde_json::to_vec(&Tagged { event: T::KIND, body: event }), T::KIND)
}

/// A row or a stack may carry a code that was added after this version: the event is then kept as it is, like one of an unknown kind.
fn resolved(line: &[u8]) -> Result<Event, EventError> {
    let error = match body(line) {
        Ok(event) => return Ok(Event::Resolved(event)),
        Err(error) => error,
    };
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return Err(error) };
    let mut known = event.clone();
    for row in known.get_mut("frames").and_then(Value::as_array_mut).into_iter().flatten() {
        replace_unknown::<UnwindMethod>(row, "unwind", UnwindMethod::Context.code());
        replace_unknown::<ResolverStep>(row, "resolver", ResolverStep::Raw.code());
        replace_unknown::<Quality>(row, "quality", Quality::Raw.code());
        replace_unknown::<Proof>(row, "proof", Proof::None.code());
        replace_unknown::<MissReason>(row, "reason", MissReason::Unsupported.code());
    }
    for stack in known.get_mut("stacks").and_then(Value::as_array_mut).into_iter().flatten() {
        replace_unknown::<StopReason>(stack, "stop", StopReason::UnsupportedRule.code());
    }
    match TraceResolved::deserialize(known) {
        Ok(_) => Ok(Event::Other(event)),
        Err(_) => Err(error),
    }
}

/// Puts `known` where a field of a row or a stack is a text that is no code of the set.
fn replace_unknown<C: FromStr>(row: &mut Value, field: &str, known: &str) {
    if let Some(Value::String(code)) = row.get_mut(field)
        && code.parse::<C>().is_err()
    {
        *code = known.to_owned();
    }
}

fn with_line_feed(json: serde_json::Result<Vec<u8>>, kind: &str) -> Result<Vec<u8>, EventError> {
    let mut line = json.map_err(|error| EventError::Unwritable { kind: kind.to_owned(), error })?;
    line.push(b'\n');
    Ok(line)
}

impl ReplayResult {
    fn check_finite(&self) -> Result<(), EventError> {
        let fields = [
            ("replay_success_ratio", Some(self.replay_success_ratio)),
            ("symbol_coverage_pct", Some(self.symbol_coverage_pct)),
            ("proved_coverage_pct", self.proved_coverage_pct),
        ];
        for (field, value) in fields {
            if let Some(found) = value.filter(|value| !value.is_finite()) {
                return Err(EventError::NotFinite { kind: Self::KIND, field, found });
            }
        }
        Ok(())
    }
}
