//! SQLite in the data directory: the embedded default.
//!
//! Its forms: a UUID is a 16-byte BLOB, an unsigned 64-bit value the signed one with the same bits, a time RFC 3339
//! text, JSON text.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, Sqlite, Transaction};
use uuid::Uuid;

use symseal_seal::UtcSeconds;

use super::{
    AlertRow, Answer, AuditRow, BundleRow, FrameRow, ReplayRow, SealRow, Store, StoreError, TraceRows, sqlite_alerts,
    sqlite_audit, sqlite_tokens,
};
use crate::tokens::TokenInfo;

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// How long a writer waits for another before it fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections: one writes at a time anyway, and no hot path reads here.
const CONNECTIONS: u32 = 4;

/// The database file.
#[derive(Debug)]
pub(super) struct SqliteStore {
    pool: SqlitePool,
    /// Writes nothing. The last connection that ends takes the write-ahead log with it, and the next one could not read a byte where the disk has
    /// no room for another.
    _stays_open: Mutex<SqliteConnection>,
}

impl SqliteStore {
    /// Opens or creates the file and brings its tables up to date.
    pub(super) async fn open(path: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .after_release(|connection, _| Box::pin(ended_its_transactions(connection)));
        let pool = pool.connect_with(options.clone()).await?;
        MIGRATIONS.run(&pool).await.map_err(|error| sqlx::Error::Migrate(Box::new(error)))?;
        let mut stays_open = options.connect().await?;
        // The log is opened by whoever reads first.
        sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut stays_open).await?;
        Ok(Self { pool, _stays_open: Mutex::new(stays_open) })
    }
}

/// Whether a connection may be used again. Where the disk is full SQLite ends a transaction by itself (SQLite, "Response To Errors Within A
/// Transaction"), the rollback that follows fails, and sqlx goes on counting the transaction as open: the next one would be a savepoint
/// within nothing, whose end is no commit. What it acknowledged would be lost, and every other connection locked out.
async fn ended_its_transactions(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    // The rollback is on its way: what is answered after it has seen it.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

impl Store for SqliteStore {
    fn put_bundle<'a>(&'a self, bundle: &'a BundleRow) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.pool.begin().await?;
            sqlx::query(
                "INSERT INTO symbol_bundles (sha256, os, bundle_blob, index_json, name, version)
                 VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (sha256) DO NOTHING",
            )
            .bind(&bundle.sha256)
            .bind(&bundle.os)
            .bind(&bundle.bundle_blob)
            .bind(&bundle.index_json)
            .bind(&bundle.name)
            .bind(&bundle.version)
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
            let row = sqlx::query("SELECT * FROM symbol_bundles WHERE sha256 = ?")
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
        let one = "SELECT seal_digest FROM symbol_bundles WHERE sha256 = ?";
        Box::pin(async move { Ok(sqlx::query_scalar(one).bind(sha256).fetch_optional(&self.pool).await?) })
    }

    fn remove_bundle<'a>(&'a self, sha256: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            sqlx::query("DELETE FROM symbol_bundles WHERE sha256 = ?").bind(sha256).execute(&self.pool).await?;
            Ok(())
        })
    }

    fn put_trace<'a>(&'a self, rows: &'a TraceRows) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut transaction = self.pool.begin().await?;
            // Frames and replays go with it.
            sqlx::query("DELETE FROM traces WHERE trace_id = ?")
                .bind(rows.trace.trace_id)
                .execute(&mut *transaction)
                .await?;
            put_trace(&mut transaction, rows).await?;
            for frame in &rows.frames {
                put_frame(&mut transaction, rows.trace.trace_id, frame).await?;
            }
            for replay in &rows.replays {
                put_replay(&mut transaction, rows.trace.trace_id, replay).await?;
            }
            Ok(transaction.commit().await?)
        })
    }

    fn traces(&self) -> Answer<'_, Vec<(Uuid, String)>> {
        Box::pin(
            async move { Ok(sqlx::query_as("SELECT trace_id, blob_sha256 FROM traces").fetch_all(&self.pool).await?) },
        )
    }

    fn remove_trace(&self, id: Uuid) -> Answer<'_, ()> {
        Box::pin(async move {
            sqlx::query("DELETE FROM traces WHERE trace_id = ?").bind(id).execute(&self.pool).await?;
            Ok(())
        })
    }

    fn put_token<'a>(&'a self, hash: &'a str, token: &'a TokenInfo) -> Answer<'a, ()> {
        Box::pin(async move { Ok(sqlite_tokens::put(&self.pool, hash, token).await?) })
    }

    fn token<'a>(&'a self, hash: &'a str) -> Answer<'a, Option<TokenInfo>> {
        Box::pin(async move { Ok(sqlite_tokens::find(&self.pool, hash).await?) })
    }

    fn tokens(&self) -> Answer<'_, Vec<TokenInfo>> {
        Box::pin(async move { Ok(sqlite_tokens::all(&self.pool).await?) })
    }

    fn revoke_token<'a>(&'a self, id: &'a str, at: UtcSeconds) -> Answer<'a, bool> {
        Box::pin(async move { Ok(sqlite_tokens::revoke(&self.pool, id, at).await?) })
    }

    fn renew_token<'a>(&'a self, id: &'a str, expires: UtcSeconds) -> Answer<'a, bool> {
        Box::pin(async move { Ok(sqlite_tokens::renew(&self.pool, id, expires).await?) })
    }

    fn known_secret<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(sqlite_tokens::known_secret(&self.pool, name).await?) })
    }

    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async move { Ok(sqlite_tokens::secret(&self.pool, name, fresh).await?) })
    }

    fn put_audit<'a>(&'a self, entry: &'a AuditRow) -> Answer<'a, ()> {
        Box::pin(async move { Ok(sqlite_audit::put(&self.pool, entry).await?) })
    }

    fn audit(&self, after: u64, limit: u32) -> Answer<'_, Vec<(u64, AuditRow)>> {
        Box::pin(async move { Ok(sqlite_audit::after(&self.pool, after, limit).await?) })
    }

    fn put_alert<'a>(&'a self, alert: &'a AlertRow, keep: u32) -> Answer<'a, ()> {
        Box::pin(async move { Ok(sqlite_alerts::put(&self.pool, alert, keep).await?) })
    }

    fn alerts(&self, limit: u32) -> Answer<'_, Vec<AlertRow>> {
        Box::pin(async move { Ok(sqlite_alerts::newest(&self.pool, limit).await?) })
    }

    fn settle(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            let (is_blocked, _, _): (bool, i64, i64) = sqlx::query_as(checkpoint).fetch_one(&self.pool).await?;
            match is_blocked {
                true => Err(StoreError::Failed("another process reads it or writes to it".to_owned())),
                false => Ok(()),
            }
        })
    }

    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            sqlx::query("SELECT 1").execute(&self.pool).await?;
            Ok(())
        })
    }
}

async fn put_seal(transaction: &mut Transaction<'_, Sqlite>, sha256: &str, seal: Option<&SealRow>) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE symbol_bundles SET signer = ?, rekor_tile_ref = ?, seal_digest = ?, dsse_ref = ? WHERE sha256 = ?",
    )
    .bind(seal.map(|seal| &seal.signer))
    .bind(seal.map(|seal| &seal.rekor_tile_ref))
    .bind(seal.map(|seal| &seal.seal_digest))
    .bind(seal.map(|seal| &seal.dsse_ref))
    .bind(sha256)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn put_trace(transaction: &mut Transaction<'_, Sqlite>, rows: &TraceRows) -> sqlx::Result<()> {
    let trace = &rows.trace;
    sqlx::query(
        "INSERT INTO traces (trace_id, platform, captured_at, build_id, symbol_bundle_sha256, dsse_ref, blob_sha256,
         arch, method, pid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(trace.trace_id)
    .bind(&trace.platform)
    .bind(&trace.captured_at)
    .bind(&trace.build_id)
    .bind(&trace.symbol_bundle_sha256)
    .bind(&trace.dsse_ref)
    .bind(&trace.blob_sha256)
    .bind(&trace.arch)
    .bind(&trace.method)
    .bind(trace.pid)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn put_frame(transaction: &mut Transaction<'_, Sqlite>, trace_id: Uuid, frame: &FrameRow) -> sqlx::Result<()> {
    sqlx::query(
        r#"INSERT INTO frames (trace_id, frame_index, ip, module_path, module_build_id, resolved_symbol, symbol_offset,
         resolver, linkage_name, thread, sample, depth, inline_depth, inlined, file, line, "column", unwind, quality,
         proof, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"#,
    )
    .bind(trace_id)
    .bind(signed(frame.frame_index))
    .bind(signed(frame.ip))
    .bind(&frame.module_path)
    .bind(&frame.module_build_id)
    .bind(&frame.resolved_symbol)
    .bind(frame.symbol_offset.map(signed))
    .bind(&frame.resolver)
    .bind(&frame.linkage_name)
    .bind(frame.thread)
    .bind(frame.sample)
    .bind(frame.depth)
    .bind(frame.inline_depth)
    .bind(frame.inlined)
    .bind(&frame.file)
    .bind(frame.line)
    .bind(frame.column)
    .bind(&frame.unwind)
    .bind(&frame.quality)
    .bind(&frame.proof)
    .bind(&frame.reason)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn put_replay(transaction: &mut Transaction<'_, Sqlite>, trace_id: Uuid, replay: &ReplayRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO replays (replay_id, trace_id, seed, started_at, finished_at, replay_success_ratio,
         verify_time_ms, verifier_version, notes, symbol_coverage_pct, proved_coverage_pct)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(replay.replay_id)
    .bind(trace_id)
    .bind(signed(replay.seed))
    .bind(&replay.started_at)
    .bind(&replay.finished_at)
    .bind(replay.replay_success_ratio)
    .bind(signed(replay.verify_time_ms))
    .bind(&replay.verifier_version)
    .bind((!replay.notes.is_null()).then(|| replay.notes.to_string()))
    .bind(replay.symbol_coverage_pct)
    .bind(replay.proved_coverage_pct)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn bundle_of_row(row: &SqliteRow) -> sqlx::Result<BundleRow> {
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
        index_json: row.try_get("index_json")?,
        seal,
    })
}

/// The signed number with the same bits: SQL has no unsigned 64-bit type.
fn signed(value: u64) -> i64 {
    value.cast_signed()
}
