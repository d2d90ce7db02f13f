//! Traces with their frames and replays in PostgreSQL.

use sqlx::postgres::PgPool;
use sqlx::{Postgres, Transaction};
use symseal_seal::UtcSeconds;
use uuid::Uuid;

use super::postgres::{json, text};
use super::rows::{FrameRow, ReplayRow, TraceRow, TraceRows};

/// Frames in one statement, so that what is bound stays small.
const FRAMES_AT_ONCE: usize = 4096;

/// 0001-01-01T00:00:00Z: PostgreSQL knows no year 0.
const FIRST_SECOND: i64 = -62_135_596_800;

/// Records a trace in place of what was recorded under its id.
pub(super) async fn put(pool: &PgPool, rows: &TraceRows) -> sqlx::Result<()> {
    let mut transaction = pool.begin().await?;
    let id = rows.trace.trace_id;
    // Servers that start together record the same ones: each in its turn, or one would find the other's row.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(id.to_string())
        .execute(&mut *transaction)
        .await?;
    // Frames and replays go with it.
    sqlx::query("DELETE FROM traces WHERE trace_id = $1").bind(id).execute(&mut *transaction).await?;
    put_trace(&mut transaction, &rows.trace).await?;
    for frames in rows.frames.chunks(FRAMES_AT_ONCE) {
        put_frames(&mut transaction, id, frames).await?;
    }
    for replay in &rows.replays {
        put_replay(&mut transaction, id, replay).await?;
    }
    transaction.commit().await
}

async fn put_trace(transaction: &mut Transaction<'_, Postgres>, trace: &TraceRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO traces (trace_id, platform, captured_at, build_id, symbol_bundle_sha256, dsse_ref, blob_sha256,
         arch, method, pid) VALUES ($1, $2, $3::text::timestamptz, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(trace.trace_id)
    .bind(text(&trace.platform))
    .bind(time(trace.captured_at.as_deref()))
    .bind(optional(&trace.build_id))
    .bind(optional(&trace.symbol_bundle_sha256))
    .bind(optional(&trace.dsse_ref))
    .bind(&trace.blob_sha256)
    .bind(optional(&trace.arch))
    .bind(optional(&trace.method))
    .bind(trace.pid.map(i64::from))
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// All in one statement: a column is an array.
async fn put_frames(
    transaction: &mut Transaction<'_, Postgres>,
    trace_id: Uuid,
    frames: &[FrameRow],
) -> sqlx::Result<()> {
    let texts = |of: fn(&FrameRow) -> &str| -> Vec<String> { frames.iter().map(|frame| text(of(frame))).collect() };
    let optionals = |of: fn(&FrameRow) -> &Option<String>| -> Vec<Option<String>> {
        frames.iter().map(|frame| optional(of(frame))).collect()
    };
    let numbers = |of: fn(&FrameRow) -> u32| -> Vec<i64> { frames.iter().map(|frame| of(frame).into()).collect() };
    let optional_numbers = |of: fn(&FrameRow) -> Option<u32>| -> Vec<Option<i64>> {
        frames.iter().map(|frame| of(frame).map(i64::from)).collect()
    };
    let too_many = |error| sqlx::Error::Encode(Box::new(error));
    let indexes = frames.iter().map(|frame| i32::try_from(frame.frame_index).map_err(too_many));
    sqlx::query(
        r#"INSERT INTO frames (trace_id, frame_index, ip, module_path, module_build_id, resolved_symbol, symbol_offset,
         resolver, linkage_name, thread, sample, depth, inline_depth, inlined, file, line, "column", unwind, quality,
         proof, reason)
         SELECT $1, * FROM unnest($2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
         $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bool[], $15::text[],
         $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::text[], $21::text[])"#,
    )
    .bind(trace_id)
    .bind(indexes.collect::<sqlx::Result<Vec<i32>>>()?)
    .bind(frames.iter().map(|frame| frame.ip.cast_signed()).collect::<Vec<i64>>())
    .bind(optionals(|frame| &frame.module_path))
    .bind(optionals(|frame| &frame.module_build_id))
    .bind(optionals(|frame| &frame.resolved_symbol))
    .bind(frames.iter().map(|frame| frame.symbol_offset.map(u64::cast_signed)).collect::<Vec<Option<i64>>>())
    .bind(texts(|frame| &frame.resolver))
    .bind(optionals(|frame| &frame.linkage_name))
    .bind(numbers(|frame| frame.thread))
    .bind(numbers(|frame| frame.sample))
    .bind(numbers(|frame| frame.depth))
    .bind(numbers(|frame| frame.inline_depth))
    .bind(frames.iter().map(|frame| frame.inlined).collect::<Vec<bool>>())
    .bind(optionals(|frame| &frame.file))
    .bind(optional_numbers(|frame| frame.line))
    .bind(optional_numbers(|frame| frame.column))
    .bind(texts(|frame| &frame.unwind))
    .bind(texts(|frame| &frame.quality))
    .bind(texts(|frame| &frame.proof))
    .bind(optionals(|frame| &frame.reason))
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn put_replay(
    transaction: &mut Transaction<'_, Postgres>,
    trace_id: Uuid,
    replay: &ReplayRow,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO replays (replay_id, trace_id, seed, started_at, finished_at, replay_success_ratio,
         verify_time_ms, verifier_version, notes, symbol_coverage_pct, proved_coverage_pct)
         VALUES ($1, $2, $3, $4::text::timestamptz, $5::text::timestamptz, $6, $7, $8, $9::text::jsonb, $10, $11)",
    )
    .bind(replay.replay_id)
    .bind(trace_id)
    .bind(replay.seed.cast_signed())
    .bind(time(replay.started_at.as_deref()))
    .bind(time(replay.finished_at.as_deref()))
    .bind(replay.replay_success_ratio)
    .bind(i32::try_from(replay.verify_time_ms).unwrap_or(i32::MAX))
    .bind(optional(&replay.verifier_version))
    .bind((!replay.notes.is_null()).then(|| json(&replay.notes.to_string())))
    .bind(replay.symbol_coverage_pct)
    .bind(replay.proved_coverage_pct)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn optional(value: &Option<String>) -> Option<String> {
    value.as_deref().map(text)
}

/// A time that PostgreSQL takes; what a trace says else is in its events alone.
fn time(said: Option<&str>) -> Option<String> {
    let time: UtcSeconds = said?.parse().ok()?;
    said.filter(|_| time.0 >= FIRST_SECOND).map(str::to_owned)
}
