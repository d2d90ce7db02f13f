//! The sequence of changes by which the servers of a database follow each other.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgPool};
use uuid::Uuid;

use super::rows::{ChangeRow, Changes, Intent};

/// The lock under which changes get their numbers, so that who has seen one has seen all with lower numbers.
const NUMBERING: i64 = 0x0073_796d_0063_6867;

/// What is listened on.
const CHANNEL: &str = "symseal_changes";

pub(super) async fn intend(pool: &PgPool, intent: &Intent) -> sqlx::Result<()> {
    let intend = "INSERT INTO intents (id, keys) VALUES ($1, $2)";
    sqlx::query(intend).bind(intent.id).bind(&intent.keys).execute(pool).await?;
    Ok(())
}

pub(super) async fn intents(pool: &PgPool, age: Duration, limit: u32) -> sqlx::Result<Vec<Intent>> {
    let rows: Vec<(Uuid, Vec<String>)> = sqlx::query_as(
        "SELECT id, keys FROM intents WHERE at <= clock_timestamp() - make_interval(secs => $1) ORDER BY at LIMIT $2",
    )
    .bind(age.as_secs_f64())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(id, keys)| Intent { id, keys }).collect())
}

pub(super) async fn put(pool: &PgPool, changes: &[ChangeRow], settled: &[Uuid]) -> sqlx::Result<()> {
    let (keys, are_removed): (Vec<&str>, Vec<bool>) =
        changes.iter().map(|change| (change.key.as_str(), change.is_removed)).unzip();
    // The signal goes out when the rows can be seen. An intent that another server settles in this moment is left to it: waiting for it here, with the
    // lock for which that one waits, would never end.
    sqlx::query(
        "WITH done AS (
             DELETE FROM intents WHERE id IN (SELECT id FROM intents WHERE id = ANY($5) FOR UPDATE SKIP LOCKED)
         ), added AS (
             INSERT INTO changes (key, is_removed)
             SELECT key, is_removed FROM (SELECT pg_advisory_xact_lock($3)) AS turn,
                 unnest($1::text[], $2::boolean[]) AS new (key, is_removed) RETURNING number
         ) SELECT pg_notify($4, '') FROM added",
    )
    .bind(keys)
    .bind(are_removed)
    .bind(NUMBERING)
    .bind(CHANNEL)
    .bind(settled)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn after(pool: &PgPool, after: u64, limit: u32) -> sqlx::Result<Changes> {
    // In one statement: what is pruned after it is in its rows.
    let rows = sqlx::query(
        "SELECT through, number, key, is_removed, extract(epoch FROM at)::text AS last_at,
             (SELECT extract(epoch FROM at)::text FROM changes WHERE number = $1) AS after_at
         FROM changes_pruned
         LEFT JOIN (SELECT number, key, is_removed, at FROM changes WHERE number > $1 ORDER BY number LIMIT $2) AS new ON TRUE
         ORDER BY number",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let mut changes = Changes::default();
    for row in &rows {
        changes.pruned = row.try_get::<i64, _>("through")?.cast_unsigned();
        changes.after_at = row.try_get("after_at")?;
        changes.last_at = row.try_get("last_at")?;
        // One row without a change says that there is none.
        if let Some(number) = row.try_get::<Option<i64>, _>("number")? {
            let change = ChangeRow { key: row.try_get("key")?, is_removed: row.try_get("is_removed")? };
            changes.rows.push((number.cast_unsigned(), change));
        }
    }
    Ok(changes)
}

pub(super) async fn last(pool: &PgPool) -> sqlx::Result<u64> {
    let query = "SELECT greatest((SELECT max(number) FROM changes), (SELECT max(through) FROM changes_pruned))";
    let last: Option<i64> = sqlx::query_scalar(query).fetch_one(pool).await?;
    Ok(last.unwrap_or_default().cast_unsigned())
}

pub(super) async fn prune(pool: &PgPool, keep: Duration) -> sqlx::Result<u64> {
    // In one statement, so that nobody sees the rows gone and the number not yet there.
    let query = "WITH gone AS (
             DELETE FROM changes WHERE at <= now() - make_interval(secs => $1) RETURNING number
         ), noted AS (
             UPDATE changes_pruned SET through = greatest(through, (SELECT max(number) FROM gone))
             WHERE EXISTS (SELECT 1 FROM gone)
         ) SELECT count(*) FROM gone";
    let pruned: i64 = sqlx::query_scalar(query).bind(keep.as_secs_f64()).fetch_one(pool).await?;
    Ok(pruned.cast_unsigned())
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
