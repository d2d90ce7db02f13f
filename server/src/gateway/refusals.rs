//! What was refused and why: for the client's answer, the log and the status page.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::catalogue::Offer;
use super::checked::Mismatch;
use super::known::KnownBundle;
use crate::clock::now;
use crate::seals::{RefusedSeal, Verdict};

/// Refusals that are kept; the oldest go first.
const KEPT: usize = 100;
/// Characters of a text from outside that are kept.
const TEXT: usize = 600;

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Code {
    /// No bundle that anybody offers has it.
    NotCovered,
    /// A bundle has it, and nobody sealed the bundle.
    Unsealed,
    /// A bundle has it, and its seal does not hold by the trust directory.
    SealRefused,
    /// An upstream sent other bytes than the sealed ones.
    WrongBytes,
    /// A sealed bundle names it, and nobody has it.
    NotThere,
    /// It has no room in the cache.
    TooLarge,
    /// The sealed file has no such section.
    NoSuchSection,
    /// The sealed bundle names no sources, or they have no such file.
    NoSuchSource,
}

impl Code {
    /// The stable text.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NotCovered => "not-covered",
            Self::Unsealed => "unsealed",
            Self::SealRefused => "seal-refused",
            Self::WrongBytes => "wrong-bytes",
            Self::NotThere => "not-there",
            Self::TooLarge => "too-large",
            Self::NoSuchSection => "no-such-section",
            Self::NoSuchSource => "no-such-source",
        }
    }

    /// Whether somebody offered something that does not hold. The others are everyday misses.
    pub(super) const fn is_alarming(self) -> bool {
        matches!(self, Self::Unsealed | Self::SealRefused | Self::WrongBytes)
    }
}

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Refusal {
    /// When (UTC); of several alike the last.
    pub(super) at: String,
    /// The path that was asked for.
    pub(super) asked: String,
    /// Why.
    pub(super) code: Code,
    /// The same for people.
    pub(super) reason: String,
    /// Who offered it.
    pub(super) upstream: Option<String>,
    /// The bundle that has it.
    pub(super) bundle: Option<String>,
    /// What had to be found.
    pub(super) expected: Option<String>,
    /// What was found.
    pub(super) found: Option<String>,
    /// How often in a row.
    pub(super) times: u64,
    /// Whether it is noted already.
    #[serde(skip)]
    is_noted: bool,
}

impl Refusal {
    /// One without a bundle.
    pub(super) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            at: now().to_string(),
            asked: String::new(),
            code,
            reason: short(&reason.into()),
            upstream: None,
            bundle: None,
            expected: None,
            found: None,
            times: 1,
            is_noted: false,
        }
    }

    /// One of a file that a bundle offers.
    pub(super) fn of(offer: &Offer, code: Code, reason: String) -> Self {
        Self { bundle: Some(name(&offer.bundle)), ..Self::new(code, reason) }
    }

    /// A bundle is not sealed, or not so that it counts; `None` where it is.
    pub(super) fn of_verdict(bundle: &KnownBundle, verdict: &Verdict) -> Option<Self> {
        let homes: Vec<String> = bundle.homes().iter().map(super::home::Home::name).collect();
        let (code, expected, found) = match verdict {
            Verdict::Sealed(_) => return None,
            Verdict::Unjudged | Verdict::Unsealed => {
                (Code::Unsealed, "a seal that refers to the bundle".to_owned(), "none".to_owned())
            }
            Verdict::Refused(RefusedSeal { check, expected, found }) => {
                (Code::SealRefused, format!("{check}: {expected}"), found.clone())
            }
        };
        let named = name(bundle);
        let reason = match code {
            Code::Unsealed => format!("bundle {named} has it, and has no seal"),
            _ => format!("bundle {named} has it, and its seal does not hold: expected {expected}, found {found}"),
        };
        Some(Self {
            upstream: Some(short(&homes.join(", "))),
            bundle: Some(named),
            expected: Some(short(&expected)),
            found: Some(short(&found)),
            ..Self::new(code, reason)
        })
    }

    /// An upstream sent something else.
    pub(super) fn wrong_bytes(offer: &Offer, upstream: &str, mismatch: Mismatch) -> Self {
        let Mismatch { expected, found } = mismatch;
        let reason = format!(
            "{upstream} gives other bytes than the sealed bundle {} has: expected {expected}, found {found}",
            name(&offer.bundle)
        );
        Self {
            upstream: Some(upstream.to_owned()),
            bundle: Some(name(&offer.bundle)),
            expected: Some(short(&expected)),
            found: Some(short(&found)),
            ..Self::new(Code::WrongBytes, reason)
        }
    }

    /// The same of the sources that a bundle names.
    pub(super) fn wrong_source(bundle: &KnownBundle, upstream: &str, found: String) -> Self {
        let named = name(bundle);
        let reason = format!("{upstream} gives other sources than the sealed bundle {named} names: {found}");
        Self {
            upstream: Some(short(upstream)),
            bundle: Some(named),
            expected: Some("the sources that it names".to_owned()),
            found: Some(short(&found)),
            ..Self::new(Code::WrongBytes, reason)
        }
    }

    /// The same, where it was noted when it was found.
    pub(super) fn noted(self) -> Self {
        Self { is_noted: true, ..self }
    }

    /// The same, for a path.
    pub(super) fn asked(self, path: &str) -> Self {
        Self { asked: short(path), ..self }
    }
}

/// The refusals since the start.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    alarming: Mutex<VecDeque<Refusal>>,
    misses: Mutex<VecDeque<Refusal>>,
}

impl Refusals {
    /// Notes one, in the log too.
    pub(super) fn note(&self, refusal: Refusal) {
        if refusal.is_noted {
            return;
        }
        let Refusal { asked, reason, upstream, expected, found, .. } = &refusal;
        let code = refusal.code.text();
        let slot = if refusal.code.is_alarming() {
            tracing::warn!(asked, code, reason, upstream, expected, found, "refused");
            &self.alarming
        } else {
            tracing::info!(asked, code, reason, "refused");
            &self.misses
        };
        let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alike = |other: &Refusal| {
            (&other.asked, other.code, &other.upstream) == (&refusal.asked, refusal.code, &refusal.upstream)
        };
        let before = kept.iter().position(is_alike).and_then(|at| kept.remove(at));
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        kept.push_front(Refusal { times, ..refusal });
        kept.truncate(KEPT);
    }

    /// What was offered and does not hold, the newest first.
    pub(super) fn alarming(&self) -> Vec<Refusal> {
        self.alarming.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What nobody offers, the newest first.
    pub(super) fn misses(&self) -> Vec<Refusal> {
        self.misses.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// `NAME VERSION (sha256:…)`.
fn name(bundle: &KnownBundle) -> String {
    format!("{} {} ({})", short(&bundle.index.name), short(&bundle.index.version), bundle.digest)
}

/// A text from outside, of bounded length and without what steers a terminal.
fn short(text: &str) -> String {
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    plain.take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_alike_are_counted_and_the_oldest_go() {
        let refusals = Refusals::default();
        let refusal = |path: &str| Refusal::new(Code::WrongBytes, "why\x1b[2J").asked(path);
        for _ in 0..3 {
            refusals.note(refusal("/a"));
        }
        for at in 0..KEPT {
            refusals.note(refusal(&format!("/{at}")));
        }
        let kept = refusals.alarming();
        assert_eq!((kept.len(), kept[0].asked.as_str()), (KEPT, "/99"));
        assert!(kept.iter().all(|kept| kept.asked != "/a" && kept.reason == "why [2J"));
        refusals.note(refusal("/7"));
        assert_eq!((refusals.alarming()[0].times, refusals.alarming().len()), (2, KEPT));
        assert!(refusals.misses().is_empty());
    }
}
