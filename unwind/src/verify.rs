//! Checking the whole of a table: checksums, order, ranges.

use core::fmt;

use symseal_module::{Rva, crc32};

use crate::cx;
use crate::format::{BUCKET_SHIFT, SectionKind};
use crate::rule::{Kind, Rule};
use crate::table::Table;

impl Table<'_> {
    /// Checks everything that [`open`](Table::open) did not look at.
    pub fn verify(&self) -> Result<(), VerifyError> {
        for entry in self.directory() {
            let bytes = entry.slice(self.bytes).ok_or(VerifyError::Checksum { section: entry.kind })?;
            if crc32(&[bytes]) != entry.crc {
                return Err(VerifyError::Checksum { section: entry.kind });
            }
        }
        self.verify_rows()?;
        let machine = self.arch().machine();
        for (number, rule) in self.all_rules().iter().enumerate() {
            let rule = Rule(u64::from_le_bytes(*rule));
            let program_holds = rule.kind() != Some(Kind::Program) || cx::is_valid(self.program(rule), machine);
            if !rule.is_well_formed(machine) || !program_holds {
                return Err(VerifyError::Rule { number });
            }
        }
        let slots = |number: &usize| self.slots_of(*number).is_some_and(|slots| slots.is_well_formed());
        if let Some(number) = (0..self.all_rules().len()).find(|number| !slots(number)) {
            return Err(VerifyError::Rule { number });
        }
        if !self.source_map_is_sound() {
            return Err(VerifyError::SourceMap);
        }
        if self.has_go_runtime() && self.go_runtime().is_none() {
            return Err(VerifyError::GoRuntime);
        }
        if !self.has_sound_tasks() {
            return Err(VerifyError::Tasks);
        }
        if !self.has_sound_coroutines() {
            return Err(VerifyError::Coroutines);
        }
        if !self.reasons_are_sound() {
            return Err(VerifyError::Reasons);
        }
        Ok(())
    }

    fn verify_rows(&self) -> Result<(), VerifyError> {
        let damaged = |bucket: usize| {
            let start = self.text_start().0.wrapping_add((bucket as u64) << BUCKET_SHIFT);
            VerifyError::Rows { bucket: Rva(start) }
        };
        let (addresses, buckets) = (self.row_addresses(), self.buckets());
        if !self.text_start().0.is_multiple_of(1 << BUCKET_SHIFT) || buckets.get(0) != Some(0) {
            return Err(damaged(0));
        }
        for (bucket, (first, end)) in buckets.iter().zip(buckets.iter().skip(1)).enumerate() {
            let rows = addresses.get(first..end).ok_or(damaged(bucket))?;
            // The first row lies at the very start, so that every address has a row at or before it.
            let starts_right = bucket > 0 || rows.first() == Some(&0);
            if !starts_right || !rows.is_sorted_by(|a, b| a < b) {
                return Err(damaged(bucket));
            }
        }
        let last = buckets.iter().last();
        let rules = self.all_rules().len();
        let numbers_fit = self.row_rules().iter().all(|number| number < rules);
        if last != Some(addresses.len()) || !numbers_fit {
            return Err(damaged(buckets.len().saturating_sub(1)));
        }
        Ok(())
    }
}

/// What is wrong with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyError {
    /// A section's bytes are not those that were written.
    Checksum {
        /// The section's number; see [`SectionKind`].
        section: u32,
    },
    /// Rows out of order, out of range, or with a rule that does not exist.
    Rows {
        /// First address of the bucket at which it was seen.
        bucket: Rva,
    },
    /// A rule that no evaluator can carry out.
    Rule {
        /// Its number.
        number: usize,
    },
    /// The source map cannot be read.
    SourceMap,
    /// The section of the Go runtime cannot be read.
    GoRuntime,
    /// The section of tasks cannot be read.
    Tasks,
    /// The section of coroutines cannot be read.
    Coroutines,
    /// The section of reasons cannot be read.
    Reasons,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unwind table: ")?;
        match self {
            Self::Checksum { section } => {
                let mut kinds = SectionKind::ALL.into_iter().chain(SectionKind::OPTIONAL);
                let kind = kinds.find(|kind| *kind as u32 == *section);
                match kind {
                    Some(kind) => write!(f, "the section {kind:?} does not match its checksum"),
                    None => write!(f, "the section {section} does not match its checksum"),
                }
            }
            Self::Rows { bucket } => write!(f, "the rows of the bucket at {bucket} are out of order or out of range"),
            Self::Rule { number } => write!(f, "rule {number} is not one that can be carried out"),
            Self::SourceMap => f.write_str("the source map cannot be read to its end"),
            Self::GoRuntime => f.write_str("what it says of Go's runtime is not well-formed"),
            Self::Tasks => f.write_str("what it says of tasks is not well-formed"),
            Self::Coroutines => f.write_str("what it says of coroutines is not well-formed"),
            Self::Reasons => f.write_str("the reasons of what has no rule cannot be read"),
        }
    }
}

impl core::error::Error for VerifyError {}
