//! PostgreSQL, for servers that share what they record.
//!
//! Its forms: UUID, JSONB, TIMESTAMPTZ and BYTEA, and for an unsigned 64-bit value the BIGINT with the same bits. Times go in
//! and out as RFC 3339 text, which PostgreSQL reads and writes itself. TEXT and JSONB take no NUL, so one is recorded as
//! U+FFFD; the blobs keep it.

use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions as _, Executor as _, Postgres, Row as _, Transaction};
use symseal_seal::UtcSeconds;
use uuid::Uuid;

use super::{
    AlertRow, Answer, AuditRow, BundleRow, ChangeRow, ChangeSignal, Changes, CollectorTurn, Condemned, DatabaseUrl,
    Intent, Of, SealRow, Store, StoreError, TraceRows, postgres_access, postgres_alerts, postgres_audit,
    postgres_changes, postgres_condemned, postgres_traces, postgres_uploads,
};
use crate::tokens::TokenInfo;

/// They run under a lock of the database, so that servers can start at the same time.
pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// Connections of one server: no hot path reads here.
const CONNECTIONS: u32 = 8;

/// How long a request waits for a database that does not answer before it is told so.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a statement waits for whoever has locked a table, as a backup that is put back in one transaction does.
const LOCK_PATIENCE: &str = "SET lock_timeout = '5s'";

/// What the migrations make. While a backup is put back some of it is missing.
pub(super) const TABLES: [&str; 15] = [
    "alerts",
    "audit_log",
    "changes",
    "changes_pruned",
    "condemned",
    "ended_uploads",
    "frames",
    "intents",
    "replays",
    "secrets",
    "symbol_bundles",
    "token_grants",
    "token_keys",
    "tokens",
    "traces",
];

/// The database server.
#[derive(Debug)]
pub(super) struct PostgresStore {
    pool: PgPool,
}

impl PostgresStore {
    /// Connects, and brings the tables up to date.
    pub(super) async fn open(url: &DatabaseUrl) -> Result<Self, sqlx::Error> {
        let options = url.options().application_name("symseal");
        // A connection that broke while nobody used it is noticed before it is given away, and replaced.
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        let pool = pool
            .after_connect(|connection, _| Box::pin(async move { connection.execute(LOCK_PATIENCE).await.map(drop) }));
        let pool = match pool.connect_with(options.clone()).await {
            Err(sqlx::Error::PoolTimedOut) => return Err(why(&options).await),
            pool => pool?,
        };
        // Over a connection without that patience: of several servers that start one takes the steps, for as long as it takes.
        let patient = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect_with(options).await?;
        MIGRATIONS.run(&patient).await.map_err(|error| sqlx::Error::Migrate(Box::new(error)))?;
        patient.close().await;
        Ok(Self { pool })
    }
}

/// Why there is no connection: a pool tries again and again, and in the end tells of its patience alone.
async fn why(options: &PgConnectOptions) -> sqlx::Error {
    match tokio::time::timeout(PATIENCE, options.connect()).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

impl Store for PostgresStore {
    fn put_bundle<'a>(&'a self, bundle: &'a BundleRow) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.pool.begin().await?;
            sqlx::query(
                "INSERT INTO symbol_bundles (sha256, os, bundle_blob, index_json, name, version)
                 VALUES ($1, $2, $3, $4::text::jsonb, $5, $6) ON CONFLICT (sha256) DO NOTHING",
            )
            .bind(&bundle.sha256)
            .bind(&bundle.os)
            .bind(&bundle.bundle_blob)
            .bind(json(&bundle.index_json))
            .bind(text(&bundle.name))
            .bind(text(&bundle.version))
            .execute(&mut *transaction)
            .await?;
            if let Some(seal) = &bundle.seal {
                put_seal(&mut transaction, &bundle.sha256, Some(seal)).await?;
            }
            Ok(transaction.commit().await?)
        })
    }

    fn put_seal<'a>(&'a self, sha256: &'a str, seal: Option<&'a SealRow>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.pool.begin().await?;
            put_seal(&mut transaction, sha256, seal).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn bundle<'a>(&'a self, sha256: &'a str) -> Answer<'a, Option<BundleRow>> {
        Box::pin(async move {
            let row = sqlx::query("SELECT *, index_json::text AS index_text FROM symbol_bundles WHERE sha256 = $1")
                .bind(sha256)
                .fetch_optional(&self.pool)
                .await?;
            Ok(row.as_ref().map(bundle_of_row).transpose()?)
        })
    }

    fn bundles(&self) -> Answer<'_, Vec<(String, Option<String>)>> {
        let all = "SELECT sha256, seal_digest FROM symbol_bundles";
        Box::pin(async move { Ok(sqlx::query_as(all).fetch_all(&self.pool).await?) })
    }

    fn recorded_seal<'a>(&'a self, sha256: &'a str) -> Answer<'a, Option<Option<String>>> {
        let one = "SELECT seal_digest FROM symbol_bundles WHERE sha256 = $1";
        Box::pin(async move { Ok(sqlx::query_scalar(one).bind(sha256).fetch_optional(&self.pool).await?) })
    }

    fn remove_bundle<'a>(&'a self, sha256: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            sqlx::query("DELETE FROM symbol_bundles WHERE sha256 = $1").bind(sha256).execute(&self.pool).await?;
            Ok(())
        })
    }

    fn put_trace<'a>(&'a self, rows: &'a TraceRows) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_traces::put(&self.pool, rows).await?) })
    }

    fn traces(&self) -> Answer<'_, Vec<(Uuid, String)>> {
        Box::pin(
            async move { Ok(sqlx::query_as("SELECT trace_id, blob_sha256 FROM traces").fetch_all(&self.pool).await?) },
        )
    }

    fn remove_trace(&self, id: Uuid) -> Answer<'_, ()> {
        Box::pin(async move {
            sqlx::query("DELETE FROM traces WHERE trace_id = $1").bind(id).execute(&self.pool).await?;
            Ok(())
        })
    }

    fn put_token<'a>(&'a self, hash: &'a str, token: &'a TokenInfo) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_access::put(&self.pool, hash, token).await?) })
    }

    fn token<'a>(&'a self, hash: &'a str) -> Answer<'a, Option<TokenInfo>> {
        Box::pin(async move { Ok(postgres_access::find(&self.pool, hash).await?) })
    }

    fn tokens(&self) -> Answer<'_, Vec<TokenInfo>> {
        Box::pin(async move { Ok(postgres_access::all(&self.pool).await?) })
    }

    fn revoke_token<'a>(&'a self, id: &'a str, at: UtcSeconds) -> Answer<'a, bool> {
        Box::pin(async move { Ok(postgres_access::revoke(&self.pool, id, at).await?) })
    }

    fn renew_token<'a>(&'a self, id: &'a str, expires: UtcSeconds) -> Answer<'a, bool> {
        Box::pin(async move { Ok(postgres_access::renew(&self.pool, id, expires).await?) })
    }

    fn known_secret<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(postgres_access::known_secret(&self.pool, name).await?) })
    }

    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async move { Ok(postgres_access::secret(&self.pool, name, fresh).await?) })
    }

    fn put_audit<'a>(&'a self, entry: &'a AuditRow) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_audit::put(&self.pool, entry).await?) })
    }

    fn audit(&self, after: u64, limit: u32) -> Answer<'_, Vec<(u64, AuditRow)>> {
        Box::pin(async move { Ok(postgres_audit::after(&self.pool, after, limit).await?) })
    }

    fn put_alert<'a>(&'a self, alert: &'a AlertRow, keep: u32) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_alerts::put(&self.pool, alert, keep).await?) })
    }

    fn alerts(&self, limit: u32) -> Answer<'_, Vec<AlertRow>> {
        Box::pin(async move { Ok(postgres_alerts::newest(&self.pool, limit).await?) })
    }

    fn intend<'a>(&'a self, intent: &'a Intent) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_changes::intend(&self.pool, intent).await?) })
    }

    fn intents(&self, age: Duration, limit: u32) -> Answer<'_, Vec<Intent>> {
        Box::pin(async move { Ok(postgres_changes::intents(&self.pool, age, limit).await?) })
    }

    fn put_changes<'a>(&'a self, changes: &'a [ChangeRow], settled: &'a [Uuid]) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_changes::put(&self.pool, changes, settled).await?) })
    }

    fn prune_changes(&self, keep: Duration) -> Answer<'_, u64> {
        Box::pin(async move { Ok(postgres_changes::prune(&self.pool, keep).await?) })
    }

    fn changes(&self, after: u64, limit: u32) -> Answer<'_, Changes> {
        Box::pin(async move { Ok(postgres_changes::after(&self.pool, after, limit).await?) })
    }

    fn last_change(&self) -> Answer<'_, u64> {
        Box::pin(async move { Ok(postgres_changes::last(&self.pool).await?) })
    }

    fn change_signal(&self) -> Answer<'_, Option<ChangeSignal>> {
        Box::pin(async move { Ok(Some(ChangeSignal::listen(&self.pool).await?)) })
    }

    fn collecting(&self) -> Answer<'_, Option<CollectorTurn>> {
        Box::pin(async move { Ok(CollectorTurn::begin(&self.pool).await?) })
    }

    fn condemn<'a>(&'a self, rows: &'a [Condemned]) -> Answer<'a, ()> {
        Box::pin(async move { Ok(postgres_condemned::condemn(&self.pool, rows).await?) })
    }

    fn reprieve_all(&self) -> Answer<'_, ()> {
        Box::pin(async move { Ok(postgres_condemned::reprieve_all(&self.pool).await?) })
    }

    fn reprieve<'a>(&'a self, repository: &'a str, digests: &'a [String]) -> Answer<'a, bool> {
        Box::pin(async move { Ok(postgres_condemned::reprieve(&self.pool, repository, digests).await?) })
    }

    fn take(&self, by: Uuid, of: Of, age: Duration, limit: u32) -> Answer<'_, Vec<Condemned>> {
        Box::pin(async move { Ok(postgres_condemned::take(&self.pool, by, of, age, limit).await?) })
    }

    fn take_now<'a>(&'a self, by: Uuid, rows: &'a [Condemned]) -> Answer<'a, bool> {
        Box::pin(async move { Ok(postgres_condemned::take_now(&self.pool, by, rows).await?) })
    }

    fn hold_taken(&self, by: Uuid, rows: u64) -> Answer<'_, bool> {
        Box::pin(async move { Ok(postgres_condemned::hold_taken(&self.pool, by, rows).await?) })
    }

    fn take_over(&self, by: Uuid, silence: Duration) -> Answer<'_, Vec<Condemned>> {
        Box::pin(async move { Ok(postgres_condemned::take_over(&self.pool, by, silence).await?) })
    }

    fn let_go(&self, by: Uuid) -> Answer<'_, ()> {
        Box::pin(async move { Ok(postgres_condemned::let_go(&self.pool, by).await?) })
    }

    fn end_upload(&self, session: Uuid) -> Answer<'_, ()> {
        Box::pin(async move { Ok(postgres_uploads::end(&self.pool, session).await?) })
    }

    fn upload_has_ended(&self, session: Uuid) -> Answer<'_, bool> {
        Box::pin(async move { Ok(postgres_uploads::has_ended(&self.pool, session).await?) })
    }

    fn forget_ended_uploads(&self, age: Duration) -> Answer<'_, ()> {
        Box::pin(async move { Ok(postgres_uploads::forget(&self.pool, age).await?) })
    }

    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let missing = "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL LIMIT 1";
            let missing: Option<String> =
                sqlx::query_scalar(missing).bind(&TABLES[..]).fetch_optional(&self.pool).await?;
            if let Some(table) = missing {
                return Err(StoreError::Away(format!("there is no table {table}: is a backup being put back?")));
            }
            // A lock of the table is noticed too: names alone can be had in spite of it.
            sqlx::query("SELECT 1 FROM changes LIMIT 1").execute(&self.pool).await?;
            Ok(())
        })
    }
}

async fn put_seal(
    transaction: &mut Transaction<'_, Postgres>,
    sha256: &str,
    seal: Option<&SealRow>,
) -> sqlx::Result<()> {
    // Several servers may record one seal at once: the first one writes.
    sqlx::query(
        "UPDATE symbol_bundles SET signer = $1, rekor_tile_ref = $2, seal_digest = $3, dsse_ref = $4
         WHERE sha256 = $5 AND (seal_digest IS DISTINCT FROM $3 OR dsse_ref IS DISTINCT FROM $4)",
    )
    .bind(seal.map(|seal| text(&seal.signer)))
    .bind(seal.map(|seal| text(&seal.rekor_tile_ref)))
    .bind(seal.map(|seal| &seal.seal_digest))
    .bind(seal.map(|seal| &seal.dsse_ref))
    .bind(sha256)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn bundle_of_row(row: &PgRow) -> sqlx::Result<BundleRow> {
    let seal = match (row.try_get("signer")?, row.try_get("rekor_tile_ref")?) {
        (Some(signer), Some(rekor_tile_ref)) => Some(SealRow {
            signer,
            rekor_tile_ref,
            seal_digest: row.try_get::<Option<_>, _>("seal_digest")?.unwrap_or_default(),
            dsse_ref: row.try_get::<Option<_>, _>("dsse_ref")?.unwrap_or_default(),
        }),
        _ => None,
    };
    Ok(BundleRow {
        sha256: row.try_get("sha256")?,
        os: row.try_get("os")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        bundle_blob: row.try_get("bundle_blob")?,
        index_json: row.try_get("index_text")?,
        seal,
    })
}

/// A text without NUL.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// JSON whose strings hold no NUL.
pub(super) fn json(json: &str) -> String {
    if !json.contains("\\u0000") {
        return json.to_owned();
    }
    let mut clean = String::with_capacity(json.len());
    let mut rest = json;
    // By pairs, as the second of two backslashes begins nothing.
    while let Some((before, escape)) = rest.split_once('\\') {
        clean.push_str(before);
        let mut after = escape.chars();
        match escape.strip_prefix("u0000") {
            Some(behind) => {
                clean.push('\u{fffd}');
                rest = behind;
            }
            None => {
                clean.push('\\');
                clean.extend(after.next());
                rest = after.as_str();
            }
        }
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn a_nul_leaves_json_and_nothing_else_changes() {
        for (before, after) in [
            (r#"{"a":"\u0000"}"#, "{\"a\":\"\u{fffd}\"}"),
            (r#"["\\u0000"]"#, r#"["\\u0000"]"#),
            (r#"["\\\u0000\n"]"#, "[\"\\\\\u{fffd}\\n\"]"),
            (r#"["\u0001"]"#, r#"["\u0001"]"#),
        ] {
            assert_eq!(json(before), after);
            assert!(serde_json::from_str::<serde_json::Value>(&json(before)).is_ok());
        }
    }
}
