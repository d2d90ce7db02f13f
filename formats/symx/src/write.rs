//! Records → bytes.

use crate::{TableInput, WriteError};
use alloc::vec::Vec;

/// Writes a table. The same input gives the same bytes, on any host.
pub fn write(_input: &TableInput<'_>) -> Result<Vec<u8>, WriteError> {
    Err(WriteError::TooMany { what: "functions" })
}
