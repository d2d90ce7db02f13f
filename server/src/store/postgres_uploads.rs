//! Upload sessions of several servers that have ended.

use std::time::Duration;

use sqlx::postgres::PgPool;
use uuid::Uuid;

pub(super) async fn end(pool: &PgPool, session: Uuid) -> sqlx::Result<()> {
    let end = "INSERT INTO ended_uploads (session) VALUES ($1) ON CONFLICT DO NOTHING";
    sqlx::query(end).bind(session).execute(pool).await?;
    Ok(())
}

pub(super) async fn has_ended(pool: &PgPool, session: Uuid) -> sqlx::Result<bool> {
    let found = "SELECT EXISTS (SELECT 1 FROM ended_uploads WHERE session = $1)";
    sqlx::query_scalar(found).bind(session).fetch_one(pool).await
}

pub(super) async fn forget(pool: &PgPool, age: Duration) -> sqlx::Result<()> {
    let forget = "DELETE FROM ended_uploads WHERE at <= clock_timestamp() - make_interval(secs => $1)";
    sqlx::query(forget).bind(age.as_secs_f64()).execute(pool).await?;
    Ok(())
}
