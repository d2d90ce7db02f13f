//! What the file of a data directory has that a database in its place lacks.

use std::path::Path;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::{DATABASE_FILE, Store, StoreError};

/// What is made from nothing else, and so does not come to another database by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftBehind {
    /// Tokens that are not revoked.
    pub(crate) tokens: u64,
    /// Lines of the audit log.
    pub(crate) audit_lines: u64,
    pub(crate) alerts: u64,
}

/// What a new database lacks; `None` where the data directory has no file, there is nothing in it, or the database has tokens or audit lines.
pub(crate) async fn left_behind(data: &Path, database: &dyn Store) -> Result<Option<LeftBehind>, StoreError> {
    let file = data.join(DATABASE_FILE);
    if !file.is_file() || !database.tokens().await?.is_empty() || !database.audit(0, 1).await?.is_empty() {
        return Ok(None);
    }
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await?;
    let left = LeftBehind {
        tokens: count(&mut connection, "tokens", "revoked_at IS NULL").await?,
        audit_lines: count(&mut connection, "audit_log", "true").await?,
        alerts: count(&mut connection, "alerts", "true").await?,
    };
    Ok((left != LeftBehind { tokens: 0, audit_lines: 0, alerts: 0 }).then_some(left))
}

/// Rows of a table; 0 where the file is of a version without it.
async fn count(connection: &mut SqliteConnection, table: &str, which: &str) -> Result<u64, StoreError> {
    let is_there = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
    let tables: i64 = sqlx::query_scalar(is_there).bind(table).fetch_one(&mut *connection).await?;
    if tables == 0 {
        return Ok(0);
    }
    let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE {which}"));
    let rows: i64 = sqlx::query_scalar(query).fetch_one(connection).await?;
    Ok(u64::try_from(rows).unwrap_or_default())
}
