//! The audit log in SQLite.

use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::rows::{AuditRow, time};

pub(super) async fn put(pool: &SqlitePool, entry: &AuditRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO audit_log (at, request_id, token_id, address, method, path, digest, status)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(entry.at.to_string())
    .bind(&entry.request_id)
    .bind(&entry.token)
    .bind(&entry.address)
    .bind(&entry.method)
    .bind(&entry.path)
    .bind(&entry.digest)
    .bind(entry.status)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn after(pool: &SqlitePool, after: u64, limit: u32) -> sqlx::Result<Vec<(u64, AuditRow)>> {
    let rows = sqlx::query("SELECT * FROM audit_log WHERE number > ? ORDER BY number LIMIT ?")
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(limit)
        .fetch_all(pool)
        .await?;
    rows.iter().map(of_row).collect()
}

fn of_row(row: &SqliteRow) -> sqlx::Result<(u64, AuditRow)> {
    let entry = AuditRow {
        at: time(&row.try_get::<String, _>("at")?)?,
        request_id: row.try_get("request_id")?,
        token: row.try_get("token_id")?,
        address: row.try_get("address")?,
        method: row.try_get("method")?,
        path: row.try_get("path")?,
        digest: row.try_get("digest")?,
        status: row.try_get("status")?,
    };
    Ok((row.try_get::<i64, _>("number")?.cast_unsigned(), entry))
}
