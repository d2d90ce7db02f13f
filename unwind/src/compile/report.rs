//! What the compiler gives: the table, what went into it and what did not, or why there is none.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// A finished table.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The `.uwt` file.
    pub bytes: Vec<u8>,
    /// What went into it and what did not.
    pub report: Report,
}

/// What the compiler made of its input. What it could not express is counted here and marked in the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Frame description entries found.
    pub fdes: usize,
    /// Of these, from `.debug_frame`.
    pub debug_frame_fdes: usize,
    /// Entries for addresses that hold no code, such as those of discarded functions.
    pub fdes_outside_text: usize,
    /// Entries of which another one covers a part; the one that starts first, and of these the longest, counts.
    pub fdes_overlapping: usize,
    /// Zero terminators before the end of a section.
    pub terminators_in_the_middle: usize,
    /// Places where a section could not be read on.
    pub damaged_entries: usize,
    /// Rows in the table.
    pub rows: usize,
    /// Distinct rules in the table.
    pub rules: usize,
    /// Programs for expressions that no plain rule covers.
    pub programs: usize,
    /// Bytes of code.
    pub text_bytes: u64,
    /// Bytes of code with a rule that can be carried out or says that there is no caller.
    pub covered_bytes: u64,
    /// Bytes of code without such a rule, padding between functions apart, by reason.
    pub gap_bytes: BTreeMap<String, u64>,
    /// Rows of call frame information that this format does not express, or that could not be read: marked in the table as
    /// unsupported. At most [`MAX_UNSUPPORTED_LISTED`] are listed.
    pub unsupported: Vec<Unsupported>,
    /// All of them.
    pub unsupported_count: usize,
    /// How many of them for which reason. Beyond [`MAX_REASONS`] kinds, those that are left count as [`OTHER_REASONS`].
    pub unsupported_reasons: BTreeMap<String, usize>,
    /// Saved registers of rows whose place this format does not express: marked as unknown in the table.
    pub unknown_registers: usize,
    /// Signal trampolines that were known by their instructions.
    pub trampolines: usize,
    /// Records of `.pdr` for code that nothing else speaks for.
    pub pdr_records: usize,
    /// Entries of the exception directory or of compact unwind information.
    pub unwind_entries: usize,
    /// Of these, without any code.
    pub entries_outside_text: usize,
    /// Whether the table says what leads from the stack of a thread to its goroutine.
    pub has_go_runtime: bool,
    /// Whether the table says what leads from a task to the one that waits for it.
    pub has_tasks: bool,
    /// Whether the table says what leads from coroutines to those that wait.
    pub has_coroutines: bool,
    /// Functions whose instructions could not be followed to rules, in part or at all, by reason.
    pub unfollowed: BTreeMap<String, usize>,
    /// Where they are. At most [`MAX_UNSUPPORTED_LISTED`] are listed.
    pub unfollowed_functions: Vec<Unsupported>,
    /// Why saved registers are marked as unknown: how many rows for which reason. Beyond [`MAX_REASONS`] kinds, those that are left count as
    /// [`OTHER_REASONS`].
    pub unknown_register_reasons: BTreeMap<String, usize>,
}

/// More entries of [`Report::unsupported`] would help nobody.
pub const MAX_UNSUPPORTED_LISTED: usize = 1000;

/// More kinds of [`Report::unsupported_reasons`] would help nobody.
pub const MAX_REASONS: usize = 64;

/// Stands for the reasons beyond [`MAX_REASONS`].
pub const OTHER_REASONS: &str = "other reasons";

impl Report {
    pub(super) fn count_reason(&mut self, reason: &str) {
        count(&mut self.unsupported_reasons, reason);
    }

    /// Counts a range that has no rule although something speaks of it.
    pub(super) fn note_unsupported(&mut self, range: Range<u64>, reason: &str) {
        self.unsupported_count += 1;
        self.count_reason(reason);
        if self.unsupported.len() < MAX_UNSUPPORTED_LISTED {
            self.unsupported.push(Unsupported { range, reason: String::from(reason) });
        }
    }

    pub(super) fn count_gap(&mut self, reason: &str, bytes: u64) {
        if bytes > 0 {
            *self.gap_bytes.entry(String::from(reason)).or_default() += bytes;
        }
    }

    pub(super) fn count_unknown_register(&mut self, reason: &str) {
        count(&mut self.unknown_register_reasons, reason);
    }

    /// Counts a function of which not everything is known. `range` is where it is, if that can be told.
    pub(super) fn count_unfollowed(&mut self, range: Option<Range<u64>>, reason: &str) {
        count(&mut self.unfollowed, reason);
        if let Some(range) = range.filter(|_| self.unfollowed_functions.len() < MAX_UNSUPPORTED_LISTED) {
            self.unfollowed_functions.push(Unsupported { range, reason: String::from(reason) });
        }
    }
}

fn count(reasons: &mut BTreeMap<String, usize>, reason: &str) {
    let is_kept = reasons.len() < MAX_REASONS || reasons.contains_key(reason);
    let reason = if is_kept { reason } else { OTHER_REASONS };
    match reasons.get_mut(reason) {
        Some(count) => *count += 1,
        None => drop(reasons.insert(String::from(reason), 1)),
    }
}

/// A range of code whose rule could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The addresses (svma).
    pub range: Range<u64>,
    /// Why.
    pub reason: String,
}

/// Why no table could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// There is no code to describe.
    NoText,
    /// The code spans more than [`MAX_TEXT_SPAN`](crate::format::MAX_TEXT_SPAN) bytes, or lies below the image base.
    TextSpan {
        /// Lowest address.
        start: u64,
        /// End of the highest range.
        end: u64,
    },
    /// More rules than can be numbered.
    TooManyRules,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unwind table: ")?;
        match self {
            Self::NoText => f.write_str("expected at least one range of code, found none"),
            Self::TextSpan { start, end } => {
                write!(f, "expected code within 2 GiB above the image base, found {start:#x} to {end:#x}")
            }
            Self::TooManyRules => f.write_str("expected at most 65536 distinct rules, found more"),
        }
    }
}

impl core::error::Error for CompileError {}
