//! What is told of each file, and of all.

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::{outln, visible};

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The server has it now.
    Imported,
    /// The server had it.
    Already,
    /// It would be sent.
    WouldImport,
    /// It stays out, for this reason.
    Refused(String),
    /// The server had it once and does not take it again.
    TakenDown(String),
    /// The server failed with it: another run may have more luck.
    Failed(String),
    /// The store's own bookkeeping.
    Administration,
}

/// A file of the store.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) path: String,
    pub(super) fate: Fate,
    /// What it is found by.
    pub(super) ids: Vec<String>,
    /// Name under which it was sent.
    pub(super) name: Option<String>,
    /// Bytes, unpacked.
    pub(super) bytes: u64,
    /// What it was packed with.
    pub(super) packed: Option<&'static str>,
    /// Records for stack walkers in a symbol file: `STACK CFI`, `STACK WIN`.
    pub(super) stack: (u64, u64),
    /// Something to know about it.
    pub(super) note: Option<String>,
}

impl Fate {
    /// How it is called in JSON, and why it is so.
    fn told(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Imported => ("imported", None),
            Self::Already => ("already-there", None),
            Self::WouldImport => ("would-import", None),
            Self::Refused(reason) => ("refused", Some(reason)),
            Self::TakenDown(reason) => ("taken-down", Some(reason)),
            Self::Failed(reason) => ("failed", Some(reason)),
            Self::Administration => ("administration", None),
        }
    }
}

/// Counts of a run. What was found is the sum of what became of it: imported, already there, would import, refused, taken down, failed,
/// administration, unfinished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) layout: String,
    /// Files of the store, and folders that could not be read.
    pub(super) found: u64,
    pub(super) imported: u64,
    pub(super) already_there: u64,
    pub(super) would_import: u64,
    pub(super) refused: u64,
    pub(super) taken_down: u64,
    pub(super) failed: u64,
    pub(super) administration: u64,
    /// The run ended before it was known what becomes of them.
    pub(super) unfinished: u64,
    pub(super) bytes: u64,
    pub(super) unpacked: u64,
    pub(super) symbol_files: u64,
    pub(super) stack_cfi_records: u64,
    pub(super) stack_win_records: u64,
}

impl Told {
    pub(super) fn new(path: &str, fate: Fate) -> Self {
        Self {
            path: path.to_owned(),
            fate,
            ids: Vec::new(),
            name: None,
            bytes: 0,
            packed: None,
            stack: (0, 0),
            note: None,
        }
    }

    pub(super) fn refused(path: &str, reason: impl ToString) -> Self {
        Self::new(path, Fate::Refused(reason.to_string()))
    }

    fn json(&self) -> Value {
        let (fate, reason) = self.fate.told();
        json!({
            "path": self.path,
            "outcome": fate,
            "reason": reason,
            "ids": self.ids,
            "name": self.name,
            "bytes": self.bytes,
            "packed": self.packed,
            "note": self.note,
        })
    }
}

impl Summary {
    /// One more file, of which [`tell`](Self::tell) will tell.
    pub(super) fn find(&mut self) {
        self.found += 1;
        self.unfinished += 1;
    }

    /// Whether the server has all of the store now, or would have.
    pub(super) fn is_whole(&self) -> bool {
        self.refused + self.taken_down + self.failed + self.unfinished == 0
    }

    /// Counts a file that was found and tells of it: on one line of JSON, or what a person should look at.
    pub(super) fn tell(&mut self, told: &Told, as_json: bool) {
        self.unfinished = self.unfinished.saturating_sub(1);
        match told.fate {
            Fate::Imported => self.imported += 1,
            Fate::Already => self.already_there += 1,
            Fate::WouldImport => self.would_import += 1,
            Fate::Refused(_) => self.refused += 1,
            Fate::TakenDown(_) => self.taken_down += 1,
            Fate::Failed(_) => self.failed += 1,
            Fate::Administration => self.administration += 1,
        }
        self.bytes = self.bytes.saturating_add(told.bytes);
        self.unpacked += u64::from(told.packed.is_some());
        self.stack_cfi_records = self.stack_cfi_records.saturating_add(told.stack.0);
        self.stack_win_records = self.stack_win_records.saturating_add(told.stack.1);
        self.symbol_files += u64::from(told.name.as_ref().is_some_and(|name| name.ends_with(".sym")));
        if as_json {
            outln!("{}", told.json());
            return;
        }
        if let Some(reason) = told.fate.told().1 {
            eprintln!("{}: left out: {}", visible(&told.path), visible(reason));
        }
        if let Some(note) = &told.note {
            eprintln!("{}: {}", visible(&told.path), visible(note));
        }
    }

    /// The last word.
    pub(super) fn end(&self, as_json: bool) {
        if as_json {
            outln!("{}", json!({ "summary": self }));
            return;
        }
        let done = if self.would_import > 0 { "would be imported" } else { "imported" };
        outln!(
            "{}: {} found: {} {done}, {} already there, {} left out, {} taken down on the server, {} failed, {} of the store's own bookkeeping{}",
            self.layout,
            self.found,
            self.imported + self.would_import,
            self.already_there,
            self.refused,
            self.taken_down,
            self.failed,
            self.administration,
            if self.unfinished > 0 {
                format!(", {} not looked at to their end", self.unfinished)
            } else {
                String::new()
            }
        );
        let records = self.stack_cfi_records + self.stack_win_records;
        if records > 0 {
            outln!(
                "{} symbol files of Breakpad: their {records} STACK records are served in the files; no unwind table is made of them",
                self.symbol_files
            );
        }
    }
}
