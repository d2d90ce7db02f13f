//! Why a database does not do what it was asked.

/// The database did not do what was asked. Nothing of the request is recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// No room left.
    #[error("the database has no room left: free space on its disk ({0})")]
    Full(String),
    /// It does not answer; it may soon.
    #[error("the database does not answer, nothing was recorded: try again soon ({0})")]
    Away(String),
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(String),
}

/// SQLITE_FULL (SQLite, "Result and Error Codes").
const SQLITE_FULL: &str = "13";

/// SQLITE_IOERR_SHMSIZE: the index of the write-ahead log cannot grow, as where the disk is full.
const SQLITE_IOERR_SHMSIZE: &str = "4874";

/// PostgreSQL's `disk_full` (PostgreSQL documentation, appendix A).
const DISK_FULL: &str = "53100";

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        let is_away = matches!(
            error,
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed
        );
        match code.as_ref() {
            SQLITE_FULL | SQLITE_IOERR_SHMSIZE | DISK_FULL => Self::Full(error.to_string()),
            // Broken connections, too many of them, and a server that starts or stops.
            code if is_away || code.starts_with("08") || code.starts_with("57P") || code == "53300" => {
                Self::Away(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}
