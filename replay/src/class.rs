//! The ways in which a replay changes the conditions.

use serde::{Deserialize, Serialize};

/// One kind of change. `docs/formats/evidence.md` says what each does and what is expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Modules at other bases, in another order, with other gaps.
    RelocateModules,
    /// Stacks at other bases, equal modulo 16.
    RelocateStacks,
    /// Threads, samples and modules in another order.
    Order,
    /// Caches of 0, 1, 7, 509 and 2048 entries, each cold and warm.
    Caches,
    /// All of the above at once.
    Combined,
    /// A copied stack cut short: a beginning of the same frames, and the reason.
    Truncation,
    /// The tables of one module taken away: the frames that can still be found, labelled as what they are.
    Outage,
}

impl Class {
    /// Every class, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::RelocateModules,
        Self::RelocateStacks,
        Self::Order,
        Self::Caches,
        Self::Combined,
        Self::Truncation,
        Self::Outage,
    ];

    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::RelocateModules => "relocate-modules",
            Self::RelocateStacks => "relocate-stacks",
            Self::Order => "order",
            Self::Caches => "caches",
            Self::Combined => "combined",
            Self::Truncation => "truncation",
            Self::Outage => "outage",
        }
    }

    /// The number of the class's stream of random numbers.
    pub(crate) const fn stream(self) -> u64 {
        // Streams 0..64 are the layouts of relocation.
        100 + self as u64
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.code())
    }
}
