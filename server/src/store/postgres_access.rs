//! Tokens and shared secrets in PostgreSQL.

use sqlx::Row as _;
use sqlx::postgres::{PgPool, PgRow};
use symseal_seal::UtcSeconds;

use super::postgres::text;
use super::rows::time;
use crate::tokens::{Grant, TokenInfo, id_of};

pub(super) async fn put(pool: &PgPool, hash: &str, token: &TokenInfo) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "INSERT INTO tokens (token_sha256, name, created_at, expires_at, revoked_at)
         VALUES ($1, $2, $3::text::timestamptz, $4::text::timestamptz, $5::text::timestamptz)",
    )
    .bind(hash)
    .bind(text(&token.name))
    .bind(token.created.to_string())
    .bind(token.expires.map(|time| time.to_string()))
    .bind(token.revoked.map(|time| time.to_string()))
    .execute(&mut *transaction)
    .await?;
    sqlx::query("INSERT INTO token_grants (token_sha256, grant_text) SELECT $1, * FROM unnest($2::text[])")
        .bind(hash)
        .bind(token.grants.iter().map(ToString::to_string).collect::<Vec<String>>())
        .execute(&mut *transaction)
        .await?;
    sqlx::query("INSERT INTO token_keys (token_sha256, key_id) SELECT $1, * FROM unnest($2::text[])")
        .bind(hash)
        .bind(&token.keys)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

pub(super) async fn find(pool: &PgPool, hash: &str) -> sqlx::Result<Option<TokenInfo>> {
    let query = format!("{} WHERE token_sha256 = $1", select());
    let row = sqlx::query(sqlx::AssertSqlSafe(query)).bind(hash).fetch_optional(pool).await?;
    row.as_ref().map(of_row).transpose()
}

pub(super) async fn all(pool: &PgPool) -> sqlx::Result<Vec<TokenInfo>> {
    let query = format!("{} ORDER BY created_at, number", select());
    sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(pool).await?.iter().map(of_row).collect()
}

pub(super) async fn revoke(pool: &PgPool, id: &str, at: UtcSeconds) -> sqlx::Result<bool> {
    let query = "UPDATE tokens SET revoked_at = coalesce(revoked_at, $1::text::timestamptz)
                 WHERE substr(token_sha256, 1, 12) = $2";
    let done = sqlx::query(query).bind(at.to_string()).bind(id).execute(pool).await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn renew(pool: &PgPool, id: &str, expires: UtcSeconds) -> sqlx::Result<bool> {
    let query = "UPDATE tokens SET expires_at = $1::text::timestamptz
                 WHERE substr(token_sha256, 1, 12) = $2 AND revoked_at IS NULL";
    let done = sqlx::query(query).bind(expires.to_string()).bind(id).execute(pool).await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn known_secret(pool: &PgPool, name: &str) -> sqlx::Result<Option<Vec<u8>>> {
    sqlx::query_scalar("SELECT secret FROM secrets WHERE name = $1").bind(name).fetch_optional(pool).await
}

pub(super) async fn secret(pool: &PgPool, name: &str, fresh: &[u8]) -> sqlx::Result<Vec<u8>> {
    sqlx::query("INSERT INTO secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
        .bind(name)
        .bind(fresh)
        .execute(pool)
        .await?;
    sqlx::query_scalar("SELECT secret FROM secrets WHERE name = $1").bind(name).fetch_one(pool).await
}

/// A token with its keys and grants, in one row.
fn select() -> String {
    format!(
        "SELECT token_sha256, name, {}, {}, {},
         ARRAY(SELECT key_id FROM token_keys k WHERE k.token_sha256 = tokens.token_sha256) AS keys,
         ARRAY(SELECT grant_text FROM token_grants g WHERE g.token_sha256 = tokens.token_sha256) AS grants
         FROM tokens",
        as_text("created_at", "created"),
        as_text("expires_at", "expires"),
        as_text("revoked_at", "revoked"),
    )
}

fn of_row(row: &PgRow) -> sqlx::Result<TokenInfo> {
    let hash: String = row.try_get("token_sha256")?;
    let grants: Vec<String> = row.try_get("grants")?;
    // A grant that this version does not know lets its holder do nothing.
    let mut grants: Vec<Grant> = grants.iter().filter_map(|grant| grant.parse().ok()).collect();
    grants.sort_unstable();
    // Sorted here, as the database's order depends on its collation.
    let mut keys: Vec<String> = row.try_get("keys")?;
    keys.sort_unstable();
    let expires: Option<String> = row.try_get("expires")?;
    let revoked: Option<String> = row.try_get("revoked")?;
    Ok(TokenInfo {
        id: id_of(&hash),
        name: row.try_get("name")?,
        grants,
        created: time(&row.try_get::<String, _>("created")?)?,
        expires: expires.as_deref().map(time).transpose()?,
        revoked: revoked.as_deref().map(time).transpose()?,
        keys,
    })
}

/// A column of times as RFC 3339 text in UTC, whatever time zone the connection has.
pub(super) fn as_text(column: &str, name: &str) -> String {
    format!(r#"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS {name}"#)
}
