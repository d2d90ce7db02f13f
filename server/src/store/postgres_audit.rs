//! The audit log in PostgreSQL.

use sqlx::Row as _;
use sqlx::postgres::{PgPool, PgRow};

use super::postgres::text;
use super::postgres_access::as_text;
use super::rows::{AuditRow, time};

/// The lock under which lines get their numbers, so that who has read one has seen all with lower numbers.
const NUMBERING: i64 = 0x0073_796d_0061_7564;

pub(super) async fn put(pool: &PgPool, entry: &AuditRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO audit_log (at, request_id, token_id, address, method, path, digest, status)
         SELECT $1::text::timestamptz, $2, $3, $4, $5, $6, $7, $8 FROM (SELECT pg_advisory_xact_lock($9)) AS turn",
    )
    .bind(entry.at.to_string())
    .bind(text(&entry.request_id))
    .bind(&entry.token)
    .bind(&entry.address)
    .bind(text(&entry.method))
    .bind(text(&entry.path))
    .bind(&entry.digest)
    .bind(i32::from(entry.status))
    .bind(NUMBERING)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn after(pool: &PgPool, after: u64, limit: u32) -> sqlx::Result<Vec<(u64, AuditRow)>> {
    let query =
        format!("SELECT *, {} FROM audit_log WHERE number > $1 ORDER BY number LIMIT $2", as_text("at", "at_text"));
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    rows.iter().map(of_row).collect()
}

fn of_row(row: &PgRow) -> sqlx::Result<(u64, AuditRow)> {
    let status: i32 = row.try_get("status")?;
    let entry = AuditRow {
        at: time(&row.try_get::<String, _>("at_text")?)?,
        request_id: row.try_get("request_id")?,
        token: row.try_get("token_id")?,
        address: row.try_get("address")?,
        method: row.try_get("method")?,
        path: row.try_get("path")?,
        digest: row.try_get("digest")?,
        status: u16::try_from(status).map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
    };
    Ok((row.try_get::<i64, _>("number")?.cast_unsigned(), entry))
}
