//! Alerts in PostgreSQL.

use sqlx::Row as _;
use sqlx::postgres::{PgPool, PgRow};

use super::postgres::json;
use super::postgres_access::as_text;
use super::rows::{AlertRow, time};

pub(super) async fn put(pool: &PgPool, alert: &AlertRow, keep: u32) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    let query = "INSERT INTO alerts (id, at, alert) VALUES ($1, $2::text::timestamptz, $3::text::jsonb)
                 ON CONFLICT (id) DO NOTHING";
    sqlx::query(query)
        .bind(alert.id)
        .bind(alert.at.to_string())
        .bind(json(&alert.json))
        .execute(&mut *transaction)
        .await?;
    // Where there are no more, there is no such number, and nothing is below it.
    let query = "DELETE FROM alerts WHERE number <= (SELECT number FROM alerts ORDER BY number DESC LIMIT 1 OFFSET $1)";
    sqlx::query(query).bind(i64::from(keep)).execute(&mut *transaction).await?;
    transaction.commit().await
}

pub(super) async fn newest(pool: &PgPool, limit: u32) -> sqlx::Result<Vec<AlertRow>> {
    let at = as_text("at", "at_text");
    let query = format!("SELECT id, {at}, alert::text AS alert_text FROM alerts ORDER BY number DESC LIMIT $1");
    let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(i64::from(limit)).fetch_all(pool).await?;
    rows.iter().map(of_row).collect()
}

fn of_row(row: &PgRow) -> sqlx::Result<AlertRow> {
    let at = time(&row.try_get::<String, _>("at_text")?)?;
    Ok(AlertRow { id: row.try_get("id")?, at, json: row.try_get("alert_text")? })
}
