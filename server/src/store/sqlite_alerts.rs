//! Alerts in SQLite.

use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::rows::{AlertRow, time};

pub(super) async fn put(pool: &SqlitePool, alert: &AlertRow, keep: u32) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO alerts (id, at, alert) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING")
        .bind(alert.id)
        .bind(alert.at.to_string())
        .bind(&alert.json)
        .execute(&mut *transaction)
        .await?;
    // Where there are no more, there is no such number, and nothing is below it.
    sqlx::query("DELETE FROM alerts WHERE number <= (SELECT number FROM alerts ORDER BY number DESC LIMIT 1 OFFSET ?)")
        .bind(keep)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

pub(super) async fn newest(pool: &SqlitePool, limit: u32) -> sqlx::Result<Vec<AlertRow>> {
    let query = "SELECT id, at, alert FROM alerts ORDER BY number DESC LIMIT ?";
    sqlx::query(query).bind(limit).fetch_all(pool).await?.iter().map(of_row).collect()
}

fn of_row(row: &SqliteRow) -> sqlx::Result<AlertRow> {
    Ok(AlertRow { id: row.try_get("id")?, at: time(&row.try_get::<String, _>("at")?)?, json: row.try_get("alert")? })
}
