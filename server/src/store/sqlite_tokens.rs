//! Tokens in SQLite.

use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use symseal_seal::UtcSeconds;

use super::rows::time;
use crate::tokens::{Grant, TokenInfo, id_of};

pub(super) async fn put(pool: &SqlitePool, hash: &str, token: &TokenInfo) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO tokens (token_sha256, name, created_at, expires_at, revoked_at) VALUES (?, ?, ?, ?, ?)")
        .bind(hash)
        .bind(&token.name)
        .bind(token.created.to_string())
        .bind(token.expires.map(|time| time.to_string()))
        .bind(token.revoked.map(|time| time.to_string()))
        .execute(&mut *transaction)
        .await?;
    for grant in &token.grants {
        sqlx::query("INSERT INTO token_grants (token_sha256, grant_text) VALUES (?, ?)")
            .bind(hash)
            .bind(grant.to_string())
            .execute(&mut *transaction)
            .await?;
    }
    for key in &token.keys {
        sqlx::query("INSERT INTO token_keys (token_sha256, key_id) VALUES (?, ?)")
            .bind(hash)
            .bind(key)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

pub(super) async fn find(pool: &SqlitePool, hash: &str) -> sqlx::Result<Option<TokenInfo>> {
    let query = sqlx::query("SELECT * FROM tokens WHERE token_sha256 = ?").bind(hash);
    let Some(row) = query.fetch_optional(pool).await? else { return Ok(None) };
    Ok(Some(with_keys(pool, &row).await?))
}

pub(super) async fn all(pool: &SqlitePool) -> sqlx::Result<Vec<TokenInfo>> {
    let rows = sqlx::query("SELECT * FROM tokens ORDER BY created_at, rowid").fetch_all(pool).await?;
    let mut tokens = Vec::with_capacity(rows.len());
    for row in &rows {
        tokens.push(with_keys(pool, row).await?);
    }
    Ok(tokens)
}

pub(super) async fn revoke(pool: &SqlitePool, id: &str, at: UtcSeconds) -> sqlx::Result<bool> {
    let done =
        sqlx::query("UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE substr(token_sha256, 1, 12) = ?")
            .bind(at.to_string())
            .bind(id)
            .execute(pool)
            .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn renew(pool: &SqlitePool, id: &str, expires: UtcSeconds) -> sqlx::Result<bool> {
    let query = "UPDATE tokens SET expires_at = ? WHERE substr(token_sha256, 1, 12) = ? AND revoked_at IS NULL";
    let done = sqlx::query(query).bind(expires.to_string()).bind(id).execute(pool).await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn known_secret(pool: &SqlitePool, name: &str) -> sqlx::Result<Option<Vec<u8>>> {
    sqlx::query_scalar("SELECT secret FROM secrets WHERE name = ?").bind(name).fetch_optional(pool).await
}

pub(super) async fn secret(pool: &SqlitePool, name: &str, fresh: &[u8]) -> sqlx::Result<Vec<u8>> {
    sqlx::query("INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING")
        .bind(name)
        .bind(fresh)
        .execute(pool)
        .await?;
    sqlx::query_scalar("SELECT secret FROM secrets WHERE name = ?").bind(name).fetch_one(pool).await
}

async fn with_keys(pool: &SqlitePool, row: &SqliteRow) -> sqlx::Result<TokenInfo> {
    let hash: String = row.try_get("token_sha256")?;
    let keys = sqlx::query_scalar("SELECT key_id FROM token_keys WHERE token_sha256 = ? ORDER BY key_id")
        .bind(&hash)
        .fetch_all(pool)
        .await?;
    let grants: Vec<String> = sqlx::query_scalar("SELECT grant_text FROM token_grants WHERE token_sha256 = ?")
        .bind(&hash)
        .fetch_all(pool)
        .await?;
    // A grant that this version does not know lets its holder do nothing.
    let mut grants: Vec<Grant> = grants.iter().filter_map(|grant| grant.parse().ok()).collect();
    grants.sort_unstable();
    let expires: Option<String> = row.try_get("expires_at")?;
    let revoked: Option<String> = row.try_get("revoked_at")?;
    Ok(TokenInfo {
        id: id_of(&hash),
        name: row.try_get("name")?,
        grants,
        created: time(&row.try_get::<String, _>("created_at")?)?,
        expires: expires.as_deref().map(time).transpose()?,
        revoked: revoked.as_deref().map(time).transpose()?,
        keys,
    })
}
