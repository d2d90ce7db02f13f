//! How much one caller may ask for: requests, bytes in each direction, the bytes of one upload, and the memory of what is made for it.
//!
//! A caller is a token, or else an address. Of bytes it has a budget that comes back evenly over the hour: a request goes on while anything
//! is left of it, then takes all its bytes, so that a file larger than the budget can be had too, and the next request waits for what was
//! taken too much. What was announced and not sent after all is put back.

mod buckets;
mod metered;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;

use crate::config::LimitsConfig;
use crate::metrics::{family, single};
use crate::pool::MAKING_JOBS;

use buckets::Buckets;
pub(crate) use buckets::{Key, Turn};
use metered::Metered;

/// Seconds for which a budget of bytes is given.
const HOUR: f64 = 3600.0;

/// Bytes of memory for tables that are made, where nothing else is said.
const TABLE_MEMORY: u64 = 2 << 30;

/// Bytes of memory that a table takes while it is made, for each byte of the symbol file that it is made of: 15 to 17 were measured.
const TABLE_FACTOR: u64 = 18;

/// The limits of a server.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Option<Requests>,
    read: Option<Arc<Budget>>,
    write: Option<Arc<Budget>>,
    upload: Option<u64>,
    uploads_refused: AtomicU64,
    table_memory: u64,
}

#[derive(Debug)]
struct Requests {
    per_second: f64,
    buckets: Buckets,
}

/// The bytes that callers may move in one direction.
#[derive(Debug)]
pub(crate) struct Budget {
    per_hour: u64,
    buckets: Buckets,
    moved: AtomicU64,
    refused: AtomicU64,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the caller.
    Read,
    /// From the caller.
    Write,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// An upload has more bytes than the operator allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "one upload may have at most {limit} bytes on this server (limits.upload), this one has {found} or more: the server's operator may raise it"
)]
pub(crate) struct UploadTooLarge {
    limit: u64,
    found: u64,
}

impl Limits {
    /// The limits of a configuration.
    pub(crate) fn new(config: &LimitsConfig) -> Self {
        let requests = config.requests_per_second.map(|per_second| {
            let burst = config.burst.map_or(per_second * 10.0, f64::from);
            Requests { per_second, buckets: Buckets::new(per_second, burst) }
        });
        let budget = |per_hour: u64| {
            let buckets = Buckets::new(per_hour as f64 / HOUR, per_hour as f64);
            Arc::new(Budget { per_hour, buckets, moved: AtomicU64::new(0), refused: AtomicU64::new(0) })
        };
        Self {
            requests,
            read: config.read_per_hour.map(budget),
            write: config.write_per_hour.map(budget),
            upload: config.upload,
            uploads_refused: AtomicU64::new(0),
            table_memory: config.table_memory.unwrap_or(TABLE_MEMORY),
        }
    }

    /// Whether there is no limit that depends on the caller.
    pub(crate) fn are_none(&self) -> bool {
        self.requests.is_none() && self.read.is_none() && self.write.is_none()
    }

    /// Takes a turn for a caller who would wait for `patience`.
    pub(crate) fn take_turn(&self, caller: &Key, patience: Duration) -> Turn {
        let requests = self.requests.as_ref();
        requests.map_or(Turn::Now, |requests| requests.buckets.take(caller, patience, Instant::now()))
    }

    /// What is said to one who asks too often.
    pub(crate) fn too_many_requests(&self) -> String {
        let per_second = self.requests.as_ref().map_or(0.0, |requests| requests.per_second);
        format!(
            "one token or address may send {per_second} requests a second on this server (limits.requests_per_second): come again as Retry-After says, or ask the server's operator to raise it"
        )
    }

    fn budget(&self, direction: Direction) -> Option<&Arc<Budget>> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
        }
    }

    /// How long a caller has to wait until it has bytes left.
    pub(crate) fn wait_for_bytes(&self, direction: Direction, caller: &Key) -> Duration {
        self.budget(direction).map_or(Duration::ZERO, |budget| budget.buckets.wait(caller, Instant::now()))
    }

    /// Counts a caller who is sent away because of its bytes; what it is told.
    pub(crate) fn refuse_bytes(&self, direction: Direction) -> String {
        let Some(budget) = self.budget(direction) else { return String::new() };
        budget.refused.fetch_add(1, Ordering::Relaxed);
        let (name, per_hour) = (direction.name(), budget.per_hour);
        format!(
            "one token or address may {name} {per_hour} bytes an hour on this server (limits.{name}_per_hour), and this one has: come again as Retry-After says, or ask the server's operator to raise it"
        )
    }

    /// A body whose bytes are taken from the caller's budget.
    pub(crate) fn metered(&self, direction: Direction, caller: &Key, body: Body) -> Body {
        match self.budget(direction) {
            Some(budget) => Body::new(Metered::new(body, Arc::clone(budget), caller.clone())),
            None => body,
        }
    }

    /// The largest symbol file that a table is made of, in bytes, so that as many as are made at once stay within their memory.
    pub(crate) fn symbol_file(&self) -> u64 {
        self.table_memory / (MAKING_JOBS as u64 * TABLE_FACTOR)
    }

    /// Whether an upload may have so many bytes; those that may come are counted with those that have.
    ///
    /// # Errors
    /// [`UploadTooLarge`], and it is counted.
    pub(crate) fn check_upload(&self, bytes: u64) -> Result<(), UploadTooLarge> {
        match self.upload {
            Some(limit) if bytes > limit => {
                self.uploads_refused.fetch_add(1, Ordering::Relaxed);
                Err(UploadTooLarge { limit, found: bytes })
            }
            _ => Ok(()),
        }
    }

    /// The figures in the Prometheus text form; nothing where there is no limit of bytes.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        let budgets = [Direction::Read, Direction::Write].map(|direction| (direction.name(), self.budget(direction)));
        let mut by_direction = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Budget) -> u64| {
            let mut lines = budgets.iter().filter_map(|(direction, budget)| Some((*direction, (*budget)?))).peekable();
            if lines.peek().is_some() {
                family(&mut text, name, kind, help);
            }
            for (direction, budget) in lines {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{name}{{direction=\"{direction}\"}} {}", value(budget));
            }
        };
        let help = "Bytes that one caller may move in an hour.";
        by_direction("symseal_limit_bytes_per_hour", "gauge", help, &|budget| budget.per_hour);
        let help = "Bytes that were moved.";
        by_direction("symseal_limited_bytes_total", "counter", help, &|budget| budget.moved.load(Ordering::Relaxed));
        let (name, help) = ("symseal_requests_out_of_bytes_total", "Requests of callers that had no more of them.");
        by_direction(name, "counter", help, &|budget| budget.refused.load(Ordering::Relaxed));
        if let Some(limit) = self.upload {
            single(&mut text, "symseal_upload_limit_bytes", "gauge", "Bytes that one upload may have.", limit);
            let (name, refused) = ("symseal_uploads_too_large_total", self.uploads_refused.load(Ordering::Relaxed));
            single(&mut text, name, "counter", "Uploads that had more.", refused);
        }
        text
    }
}

impl Budget {
    fn spend(&self, caller: &Key, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.buckets.spend(caller, bytes, Instant::now());
    }

    fn give_back(&self, caller: &Key, bytes: u64) {
        self.moved.fetch_sub(bytes, Ordering::Relaxed);
        self.buckets.give_back(caller, bytes, Instant::now());
    }
}
