//! How much the repositories below a prefix may hold: bytes, and bundles.
//!
//! What counts is what a repository refers to ([`Held`](crate::repositories::Held)). Whoever adds to it reserves first, as far as sizes are known, so that pushes at
//! the same time do not fit each by itself and together not. What is refused leaves nothing that others see.

mod room;
mod usage;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::QuotaConfig;
use crate::metrics::{family, single};
use crate::repositories::{Held, Prefix, Repositories, RepositoryName};

pub(crate) use room::{Full, Place, Room};
pub use usage::{QuotaUse, RepositoryUse, StoreUse, usage};

/// The quotas of a server.
#[derive(Debug)]
pub(crate) struct Quotas {
    rules: Vec<QuotaConfig>,
    /// What is on its way, by rule.
    reserved: Mutex<Vec<Held>>,
    refused: AtomicU64,
}

/// A place that is kept for what is on its way; given back when it is dropped, which is after what came is counted.
#[derive(Debug)]
pub(crate) struct Reservation {
    quotas: Arc<Quotas>,
    name: RepositoryName,
    held: Held,
}

/// What would come does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverQuota {
    /// Its bytes.
    #[error(
        "the repositories at and below {prefix} may hold {limit} bytes on this server (quotas.bytes) and hold {held}, uploads that are not finished have {unfinished}, and this needs {more} more: delete what is no longer needed, end or cancel uploads that are left (a day after their last byte they go), or ask the server's operator to raise it"
    )]
    Bytes {
        /// Where the quota holds.
        prefix: Prefix,
        /// The quota.
        limit: u64,
        /// What is there.
        held: u64,
        /// What is on its way.
        unfinished: u64,
        /// What would come.
        more: u64,
    },
    /// It is one bundle too many.
    #[error(
        "the repositories at and below {prefix} may hold {limit} bundles on this server (quotas.bundles) and hold {held}: delete one that is no longer needed, or ask the server's operator to raise it"
    )]
    Bundles {
        /// Where the quota holds.
        prefix: Prefix,
        /// The quota.
        limit: u64,
        /// What is there, or on its way.
        held: u64,
    },
}

impl Quotas {
    /// The quotas of a configuration.
    pub(crate) fn new(rules: &[QuotaConfig]) -> Self {
        let reserved = Mutex::new(vec![Held::default(); rules.len()]);
        Self { rules: rules.to_vec(), reserved, refused: AtomicU64::new(0) }
    }

    /// Keeps a place for what would come to a repository; `None` where no quota holds.
    ///
    /// # Errors
    /// [`OverQuota`] by the first one that it would break.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        repositories: &Repositories,
        name: &RepositoryName,
        more: Held,
    ) -> Result<Option<Reservation>, OverQuota> {
        if !self.rules.iter().any(|rule| rule.prefix.holds(name)) {
            return Ok(None);
        }
        let mut reservation = Reservation { quotas: Arc::clone(self), name: name.clone(), held: Held::default() };
        reservation.grow(repositories, more)?;
        Ok(Some(reservation))
    }

    /// Counts a request that found no room.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures in the Prometheus text form. They name repositories, so they are not for everybody.
    pub(crate) fn metrics(&self, repositories: &Repositories) -> String {
        let mut text = String::new();
        if self.rules.is_empty() {
            return text;
        }
        let reserved = self.lock().clone();
        let held = |rule: &QuotaConfig| repositories.held_below(&rule.prefix);
        let held: Vec<_> =
            self.rules.iter().zip(reserved).map(|(rule, reserved)| (rule, held(rule), reserved)).collect();
        let mut by_prefix = |name: &str, help: &str, value: &dyn Fn(&QuotaConfig, Held, Held) -> Option<u64>| {
            family(&mut text, name, "gauge", help);
            for (rule, held, reserved) in &held {
                if let Some(value) = value(rule, *held, *reserved) {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "{name}{{prefix=\"{}\"}} {value}", rule.prefix);
                }
            }
        };
        by_prefix("symseal_quota_bytes", "Bytes that repositories may hold.", &|rule, _, _| rule.bytes);
        by_prefix("symseal_quota_bytes_held", "Bytes that they hold.", &|_, held, _| Some(held.bytes));
        by_prefix("symseal_quota_bytes_unfinished", "Bytes of uploads that have not ended.", &|_, _, reserved| {
            Some(reserved.bytes)
        });
        by_prefix("symseal_quota_bundles", "Bundles that repositories may hold.", &|rule, _, _| rule.bundles);
        by_prefix("symseal_quota_bundles_held", "Bundles that they hold.", &|_, held, _| Some(held.bundles));
        let refused = self.refused.load(Ordering::Relaxed);
        single(&mut text, "symseal_over_quota_total", "counter", "What did not fit into a quota.", refused);
        text
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Keeps place for more.
    ///
    /// # Errors
    /// [`OverQuota`]; the place stays as it was.
    pub(crate) fn grow(&mut self, repositories: &Repositories, more: Held) -> Result<(), OverQuota> {
        let mut reserved = self.quotas.lock();
        for (rule, reserved) in self.quotas.rules.iter().zip(reserved.iter()) {
            if !rule.prefix.holds(&self.name) {
                continue;
            }
            fits(rule, repositories.held_below(&rule.prefix), *reserved, more)?;
        }
        for (rule, reserved) in self.quotas.rules.iter().zip(reserved.iter_mut()) {
            if rule.prefix.holds(&self.name) {
                *reserved = sum(*reserved, more);
            }
        }
        self.held = sum(self.held, more);
        Ok(())
    }

    /// Gives back what is more than so many bytes.
    fn shrink(&mut self, bytes: u64) {
        let less = self.held.bytes.saturating_sub(bytes);
        self.held.bytes -= less;
        let mut reserved = self.quotas.lock();
        for (rule, reserved) in self.quotas.rules.iter().zip(reserved.iter_mut()) {
            if rule.prefix.holds(&self.name) {
                reserved.bytes = reserved.bytes.saturating_sub(less);
            }
        }
    }

    /// What it keeps place for.
    pub(crate) fn held(&self) -> Held {
        self.held
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.quotas.lock();
        for (rule, reserved) in self.quotas.rules.iter().zip(reserved.iter_mut()) {
            if rule.prefix.holds(&self.name) {
                reserved.bytes = reserved.bytes.saturating_sub(self.held.bytes);
                reserved.bundles = reserved.bundles.saturating_sub(self.held.bundles);
            }
        }
    }
}

fn fits(rule: &QuotaConfig, held: Held, reserved: Held, more: Held) -> Result<(), OverQuota> {
    let there = sum(held, reserved);
    let prefix = || rule.prefix.clone();
    // What adds nothing is taken also where a quota was lowered below what is there.
    if let Some(limit) = rule.bytes
        && more.bytes > 0
        && there.bytes.saturating_add(more.bytes) > limit
    {
        let (held, unfinished) = (held.bytes, reserved.bytes);
        return Err(OverQuota::Bytes { prefix: prefix(), limit, held, unfinished, more: more.bytes });
    }
    if let Some(limit) = rule.bundles
        && more.bundles > 0
        && there.bundles.saturating_add(more.bundles) > limit
    {
        return Err(OverQuota::Bundles { prefix: prefix(), limit, held: there.bundles });
    }
    Ok(())
}

fn sum(one: Held, other: Held) -> Held {
    let Held { bytes, bundles } = other;
    Held { bytes: one.bytes.saturating_add(bytes), bundles: one.bundles.saturating_add(bundles) }
}
