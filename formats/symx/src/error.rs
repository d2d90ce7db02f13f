//! Why a table was refused, or could not be written.

use alloc::string::String;
use core::fmt;

/// The input cannot be expressed as a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// A record breaks a rule of [`FunctionRecord`](crate::FunctionRecord).
    Record {
        /// Its index in the input.
        function: usize,
        /// The rule.
        rule: &'static str,
    },
    /// More of something than the format can number.
    TooMany {
        /// Of what.
        what: &'static str,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { function, rule } => {
                write!(f, "function record {function} cannot be written: expected {rule}")
            }
            Self::TooMany { what } => write!(f, "too many {what} for one symbol table"),
        }
    }
}

impl core::error::Error for WriteError {}

/// The bytes are no symbol table that this reader understands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Not the first bytes of a table.
    Magic,
    /// A version that this reader does not know.
    Version {
        /// Version found.
        found: u16,
    },
    /// The file is shorter or longer than its header says.
    Size {
        /// Bytes that the header names, or that a header needs.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The header's checksum does not match.
    Checksum,
    /// A field of the header that cannot be.
    Header {
        /// Which.
        field: &'static str,
    },
    /// A section that lies outside the file, or whose size does not fit its count, or that is missing.
    Section {
        /// Its number.
        id: u32,
        /// What is wrong.
        problem: &'static str,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a symbol table: expected the bytes SYMX at its start"),
            Self::Version { found } => write!(f, "symbol table of version {found}: this reader knows version 1"),
            Self::Size { expected, found } => write!(f, "symbol table of {found} bytes: expected {expected} bytes"),
            Self::Checksum => f.write_str("the symbol table's header does not match its checksum"),
            Self::Header { field } => write!(f, "the symbol table's header has an impossible {field}"),
            Self::Section { id, problem } => write!(f, "section {id} of the symbol table {problem}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// A table that opened but whose contents do not hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyError {
    /// Number of the section in which the fault was found; 0 = between sections.
    pub section: u32,
    /// What was expected, and what was found.
    pub problem: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section {} of the symbol table: {}", self.section, self.problem)
    }
}

impl core::error::Error for VerifyError {}
