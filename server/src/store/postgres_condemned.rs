//! What is about to be collected from an object store that servers share.

use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnection, PgPool};
use uuid::Uuid;

use super::rows::{Condemned, Of};

/// The lock of the one server that collects.
const COLLECTING: i64 = 0x0073_796d_0067_6172;

/// The turn to collect, which ends with its connection.
#[derive(Debug)]
pub(crate) struct CollectorTurn(PgConnection);

impl CollectorTurn {
    /// `None` while another server has it.
    pub(super) async fn begin(pool: &PgPool) -> sqlx::Result<Option<Self>> {
        // Out of the pool: a lock of a session must not come into other hands with its connection.
        let mut connection = pool.acquire().await?.detach();
        let begin = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(COLLECTING);
        let has_it: bool = begin.fetch_one(&mut connection).await?;
        Ok(has_it.then_some(Self(connection)))
    }

    /// Whether it has not ended by itself.
    pub(crate) async fn holds(&mut self) -> bool {
        self.0.ping().await.is_ok()
    }

    /// Ends it.
    pub(crate) async fn end(mut self) {
        // It would end anyway, but when the database notices that nobody is there: who asks next shall have it at once.
        let _ = sqlx::query("SELECT pg_advisory_unlock($1)").bind(COLLECTING).execute(&mut self.0).await;
        let _ = self.0.close().await;
    }
}

pub(super) async fn condemn(pool: &PgPool, rows: &[Condemned]) -> sqlx::Result<()> {
    let (digests, repositories) = keys(rows);
    let bytes: Vec<i64> = rows.iter().map(|row| i64::try_from(row.bytes).unwrap_or(i64::MAX)).collect();
    sqlx::query(
        "INSERT INTO condemned (digest, repository, bytes)
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) ON CONFLICT DO NOTHING",
    )
    .bind(digests)
    .bind(repositories)
    .bind(bytes)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn reprieve_all(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM condemned WHERE taken_by IS NULL").execute(pool).await?;
    Ok(())
}

pub(super) async fn reprieve(pool: &PgPool, repository: &str, digests: &[String]) -> sqlx::Result<bool> {
    let found = "SELECT EXISTS (SELECT 1 FROM condemned WHERE digest = ANY($1) AND repository IN ('', $2))";
    let found: bool = sqlx::query_scalar(found).bind(digests).bind(repository).fetch_one(pool).await?;
    if !found {
        return Ok(true);
    }
    let strike = "DELETE FROM condemned WHERE digest = ANY($1) AND repository IN ('', $2) AND taken_by IS NULL";
    sqlx::query(strike).bind(digests).bind(repository).execute(pool).await?;
    // A statement of its own, after the other: it sees what was taken while that one waited for the row.
    let taken = "SELECT EXISTS (SELECT 1 FROM condemned
                 WHERE digest = ANY($1) AND repository IN ('', $2) AND taken_by IS NOT NULL)";
    let taken: bool = sqlx::query_scalar(taken).bind(digests).bind(repository).fetch_one(pool).await?;
    Ok(!taken)
}

pub(super) async fn take(pool: &PgPool, by: Uuid, of: Of, age: Duration, limit: u32) -> sqlx::Result<Vec<Condemned>> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "UPDATE condemned SET taken_by = $1, at = clock_timestamp() WHERE taken_by IS NULL AND (digest, repository) IN (
             SELECT digest, repository FROM condemned
             WHERE taken_by IS NULL AND (repository = '') = $2 AND at <= clock_timestamp() - make_interval(secs => $3)
             ORDER BY at LIMIT $4 FOR UPDATE SKIP LOCKED
         ) RETURNING digest, repository, bytes",
    )
    .bind(by)
    .bind(of == Of::Bytes)
    .bind(age.as_secs_f64())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(condemned).collect())
}

pub(super) async fn take_now(pool: &PgPool, by: Uuid, rows: &[Condemned]) -> sqlx::Result<bool> {
    let (digests, repositories) = keys(rows);
    let taken = sqlx::query(
        "INSERT INTO condemned (digest, repository, bytes, taken_by)
         SELECT digest, repository, 0, $3 FROM unnest($1::text[], $2::text[]) AS new (digest, repository)
         ON CONFLICT (digest, repository) DO UPDATE SET taken_by = EXCLUDED.taken_by, at = EXCLUDED.at
         WHERE condemned.taken_by IS NULL",
    )
    .bind(digests)
    .bind(repositories)
    .bind(by)
    .execute(pool)
    .await?;
    Ok(taken.rows_affected() == rows.len() as u64)
}

pub(super) async fn hold_taken(pool: &PgPool, by: Uuid, rows: u64) -> sqlx::Result<bool> {
    let hold = "UPDATE condemned SET at = clock_timestamp() WHERE taken_by = $1";
    Ok(sqlx::query(hold).bind(by).execute(pool).await?.rows_affected() == rows)
}

pub(super) async fn take_over(pool: &PgPool, by: Uuid, silence: Duration) -> sqlx::Result<Vec<Condemned>> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "UPDATE condemned SET taken_by = $1, at = clock_timestamp()
         WHERE taken_by IS NOT NULL AND at <= clock_timestamp() - make_interval(secs => $2)
         RETURNING digest, repository, bytes",
    )
    .bind(by)
    .bind(silence.as_secs_f64())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(condemned).collect())
}

pub(super) async fn let_go(pool: &PgPool, by: Uuid) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM condemned WHERE taken_by = $1").bind(by).execute(pool).await?;
    Ok(())
}

fn keys(rows: &[Condemned]) -> (Vec<&str>, Vec<&str>) {
    rows.iter().map(|row| (row.digest.as_str(), row.repository.as_str())).unzip()
}

fn condemned((digest, repository, bytes): (String, String, i64)) -> Condemned {
    Condemned { digest, repository, bytes: bytes.cast_unsigned() }
}
