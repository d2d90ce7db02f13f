//! Why a database does not do what it was asked.

/// The database did not do what was asked. Nothing of the request is recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// No room left.
    #[error("the database has no room left: free space on its disk ({0})")]
    Full(String),
    /// It does not answer, or is not whole, as while a backup is put back; it may soon.
    #[error("the database does not answer or is not whole, nothing was recorded: try again soon ({0})")]
    Away(String),
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(String),
}

/// SQLITE_FULL (SQLite, "Result and Error Codes").
const SQLITE_FULL: &str = "13";

/// SQLITE_IOERR_SHMSIZE: the index of the write-ahead log cannot grow, as where the disk is full.
const SQLITE_IOERR_SHMSIZE: &str = "4874";

/// SQLITE_BUSY, SQLITE_LOCKED, SQLITE_NOMEM and SQLITE_CANTOPEN, the latter as where the process has no descriptor left. Larger codes have these in their
/// last eight bits.
const SQLITE_PASSING: [u32; 4] = [5, 6, 7, 14];

/// PostgreSQL's `disk_full` (PostgreSQL documentation, appendix A).
const DISK_FULL: &str = "53100";

/// What PostgreSQL says where something may go better soon, beside the classes of [`is_passing`] (PostgreSQL documentation, appendix A). While a backup
/// is put back, tables, columns, schemas and keys are missing for a while and belong to somebody else: whoever reads this in the log sees what is missing,
/// should it stay so.
const PASSING: [&str; 15] = [
    "25006", // read_only_sql_transaction: a standby, until it takes over
    "3D000", // invalid_catalog_name: no such database
    "3F000", // invalid_schema_name
    "40001", // serialization_failure
    "40P01", // deadlock_detected
    "42501", // insufficient_privilege: a table is made before it is given to its owner
    "42703", // undefined_column
    "42704", // undefined_object
    "42883", // undefined_function
    "42P01", // undefined_table
    "42P10", // invalid_column_reference: ON CONFLICT before there is a key
    "53300", // too_many_connections
    "55006", // object_in_use
    "55P03", // lock_not_available: see `LOCK_PATIENCE`
    "58P01", // undefined_file: a relation's file went with it
];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        let is_away = matches!(
            error,
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed
        );
        match code.as_ref() {
            SQLITE_FULL | SQLITE_IOERR_SHMSIZE | DISK_FULL => Self::Full(error.to_string()),
            code if is_away || is_passing(code) => Self::Away(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Broken connections, a server that starts or stops, and [`PASSING`]. SQLite's codes are shorter: those of PostgreSQL have five letters.
fn is_passing(code: &str) -> bool {
    if code.len() < 5 {
        return code.parse().is_ok_and(|code: u32| SQLITE_PASSING.contains(&(code & 0xff)));
    }
    code.starts_with("08") || code.starts_with("57P") || PASSING.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_better_soon_is_told_from_what_will_not() {
        for code in ["5", "261", "517", "14", "7", "08006", "57P01", "42P01", "40001", "40P01", "55P03", "25006"] {
            assert!(is_passing(code), "{code}");
        }
        for code in ["", "1", "11", "13", "19", "2067", "4874", "23505", "22P02", "42601", "57014", "XX000"] {
            assert!(!is_passing(code), "{code}");
        }
    }
}
