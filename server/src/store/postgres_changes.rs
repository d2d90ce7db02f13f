//! The sequence of changes by which the servers of a database follow each other.

use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgPool, PgRow};

use super::rows::ChangeRow;

/// The lock under which changes get their numbers, so that who has seen one has seen all with lower numbers.
const NUMBERING: i64 = 0x0073_796d_0063_6867;

/// What is listened on.
const CHANNEL: &str = "symseal_changes";

pub(super) async fn put(pool: &PgPool, change: &ChangeRow) -> sqlx::Result<()> {
    // The signal goes out when the row can be seen.
    sqlx::query(
        "WITH added AS (
             INSERT INTO changes (key, is_removed)
             SELECT $1, $2 FROM (SELECT pg_advisory_xact_lock($3)) AS turn RETURNING number
         ) SELECT pg_notify($4, '') FROM added",
    )
    .bind(&change.key)
    .bind(change.is_removed)
    .bind(NUMBERING)
    .bind(CHANNEL)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn after(pool: &PgPool, after: u64, limit: u32) -> sqlx::Result<Vec<(u64, ChangeRow)>> {
    let query = "SELECT number, key, is_removed FROM changes WHERE number > $1 ORDER BY number LIMIT $2";
    let rows = sqlx::query(query).bind(after.cast_signed()).bind(i64::from(limit)).fetch_all(pool).await?;
    rows.iter().map(of_row).collect()
}

pub(super) async fn last(pool: &PgPool) -> sqlx::Result<u64> {
    let last: Option<i64> = sqlx::query_scalar("SELECT max(number) FROM changes").fetch_one(pool).await?;
    Ok(last.unwrap_or_default().cast_unsigned())
}

fn of_row(row: &PgRow) -> sqlx::Result<(u64, ChangeRow)> {
    let change = ChangeRow { key: row.try_get("key")?, is_removed: row.try_get("is_removed")? };
    Ok((row.try_get::<i64, _>("number")?.cast_unsigned(), change))
}

/// A connection that hears of changes.
#[derive(Debug)]
pub(crate) struct ChangeSignal(PgListener);

impl ChangeSignal {
    pub(super) async fn listen(pool: &PgPool) -> sqlx::Result<Self> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(Self(listener))
    }

    /// Completes when a change may have been added, also where the connection broke; whether it holds.
    pub(crate) async fn heard(&mut self) -> bool {
        // `None` is a connection that broke and came about again: signals may be lost.
        self.0.try_recv().await.is_ok()
    }
}
