//! One suite over both databases: what [`Store`] promises, on SQLite in a file and on a real PostgreSQL.

#[path = "../../tests/http/support/postgres.rs"]
mod server;

use std::sync::Arc;

use symseal_seal::UtcSeconds;
use uuid::Uuid;

use super::*;
use crate::tokens::{Grant, TokenInfo};
use server::Postgres;

/// One of the two databases; opening it again finds what was recorded.
struct Opener<'a> {
    data: &'a Path,
    url: Option<DatabaseUrl>,
}

impl Opener<'_> {
    async fn open(&self) -> Arc<dyn Store> {
        open(self.data, self.url.as_ref()).await.unwrap()
    }

    /// The one value of a query, as text.
    async fn ask(&self, query: &'static str) -> String {
        match &self.url {
            Some(url) => {
                let pool = sqlx::postgres::PgPool::connect_with(url.options()).await.unwrap();
                sqlx::query_scalar(query).fetch_one(&pool).await.unwrap()
            }
            None => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.data.join(DATABASE_FILE));
                let pool = sqlx::sqlite::SqlitePool::connect_with(options).await.unwrap();
                sqlx::query_scalar(query).fetch_one(&pool).await.unwrap()
            }
        }
    }
}

fn seal() -> SealRow {
    SealRow {
        signer: "key".into(),
        rekor_tile_ref: "log.example/tile/entries/000#1".into(),
        seal_digest: "sha256:22".into(),
        dsse_ref: "dsse:33".into(),
    }
}

fn bundle() -> BundleRow {
    BundleRow {
        sha256: "sha256:11".into(),
        os: "linux".into(),
        name: "app".into(),
        version: "1".into(),
        bundle_blob: b"{}".to_vec(),
        index_json: "{}".into(),
        seal: None,
    }
}

fn trace() -> TraceRows {
    let frame = FrameRow {
        frame_index: 0,
        ip: 0xffff_ffff_8100_0000,
        module_path: None,
        module_build_id: None,
        resolved_symbol: Some("main".into()),
        linkage_name: None,
        symbol_offset: Some(u64::MAX),
        resolver: "bundle".into(),
        thread: 1,
        sample: 0,
        depth: 0,
        inline_depth: 0,
        inlined: false,
        file: None,
        line: Some(7),
        column: None,
        unwind: "cfi".into(),
        quality: "full".into(),
        proof: "sealed".into(),
        reason: None,
    };
    TraceRows {
        trace: TraceRow {
            trace_id: Uuid::from_u128(5),
            platform: "linux".into(),
            captured_at: Some("2026-01-01T00:00:00Z".into()),
            build_id: None,
            symbol_bundle_sha256: None,
            dsse_ref: None,
            blob_sha256: "sha256:44".into(),
            arch: None,
            method: None,
            pid: Some(1),
        },
        frames: vec![frame],
        replays: Vec::new(),
    }
}

#[tokio::test]
async fn sqlite_keeps_what_a_store_promises() {
    let data = tempfile::tempdir().unwrap();
    keeps_what_a_store_promises(&Opener { data: data.path(), url: None }).await;
}

#[tokio::test]
async fn postgresql_keeps_what_a_store_promises() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url = Some(postgres.url(&postgres.create_database()).parse().unwrap());
    keeps_what_a_store_promises(&Opener { data: data.path(), url }).await;
}

async fn keeps_what_a_store_promises(database: &Opener<'_>) {
    a_bundle_keeps_its_seal_when_it_is_recorded_again(database).await;
    unsigned_values_keep_their_bits_and_a_trace_replaces_itself(database).await;
    a_trace_that_contradicts_itself_is_recorded_not_at_all(database).await;
    what_sql_has_no_form_for_is_recorded_nevertheless(database).await;
    tokens_are_found_listed_and_revoked_once(database).await;
    the_first_secret_of_a_name_stays(database).await;
    the_audit_log_is_read_in_order_and_in_parts(database).await;
    the_newest_alerts_stay_and_none_is_there_twice(database).await;
    many_writers_lose_nothing(database).await;
    one_trace_of_many_writers_is_recorded_once(database).await;
}

async fn a_bundle_keeps_its_seal_when_it_is_recorded_again(database: &Opener<'_>) {
    let store = database.open().await;
    store.put_seal("sha256:11", Some(&seal())).await.unwrap();
    assert_eq!(store.bundle("sha256:11").await.unwrap(), None);
    store.put_bundle(&bundle()).await.unwrap();
    store.put_seal("sha256:11", Some(&seal())).await.unwrap();
    store.put_bundle(&bundle()).await.unwrap();
    drop(store);
    let store = database.open().await;
    assert_eq!(store.bundle("sha256:11").await.unwrap(), Some(BundleRow { seal: Some(seal()), ..bundle() }));
    assert_eq!(store.bundles().await.unwrap(), [("sha256:11".to_owned(), Some(seal().seal_digest))]);
    assert_eq!(store.recorded_seal("sha256:11").await.unwrap(), Some(Some(seal().seal_digest)));
    store.put_seal("sha256:11", None).await.unwrap();
    assert_eq!(store.bundle("sha256:11").await.unwrap(), Some(bundle()));
    assert_eq!(store.recorded_seal("sha256:11").await.unwrap(), Some(None));
    store.remove_bundle("sha256:11").await.unwrap();
    assert_eq!(store.recorded_seal("sha256:11").await.unwrap(), None);
    assert!(store.bundles().await.unwrap().is_empty());
    store.ping().await.unwrap();
}

async fn unsigned_values_keep_their_bits_and_a_trace_replaces_itself(database: &Opener<'_>) {
    let store = database.open().await;
    store.put_trace(&trace()).await.unwrap();
    store.put_trace(&trace()).await.unwrap();
    let bits = database.ask("SELECT CAST(ip AS TEXT) || ' ' || CAST(symbol_offset AS TEXT) FROM frames").await;
    assert_eq!(bits, format!("{} -1", 0xffff_ffff_8100_0000_u64.cast_signed()));
    let id = Uuid::from_u128(5);
    assert_eq!(store.traces().await.unwrap(), [(id, "sha256:44".to_owned())]);
    store.remove_trace(id).await.unwrap();
    assert_eq!(database.ask("SELECT CAST(count(*) AS TEXT) FROM frames").await, "0");
}

async fn a_trace_that_contradicts_itself_is_recorded_not_at_all(database: &Opener<'_>) {
    let store = database.open().await;
    let mut rows = trace();
    let twice = rows.frames[0].clone();
    rows.frames.push(twice);
    assert!(store.put_trace(&rows).await.is_err());
    assert!(store.traces().await.unwrap().is_empty());
}

/// NUL, times that are none, numbers beyond the columns' types.
async fn what_sql_has_no_form_for_is_recorded_nevertheless(database: &Opener<'_>) {
    let store = database.open().await;
    let mut rows = trace();
    rows.frames[0].resolved_symbol = Some("a\0b".into());
    rows.frames[0].thread = u32::MAX;
    for time in ["", "yesterday", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-02-30T00:00:00Z"] {
        rows.trace.captured_at = Some(time.into());
        rows.replays = vec![ReplayRow {
            replay_id: Uuid::from_u128(6),
            seed: u64::MAX,
            started_at: Some(time.into()),
            finished_at: None,
            replay_success_ratio: 0.98,
            verify_time_ms: u64::MAX >> 1,
            verifier_version: None,
            notes: serde_json::json!({ "a": "\0", "b\0": ["\\u0000"] }),
            symbol_coverage_pct: 93.0,
            proved_coverage_pct: None,
        }];
        store.put_trace(&rows).await.unwrap_or_else(|error| panic!("{time}: {error}"));
    }
    assert_eq!(database.ask("SELECT CAST(seed AS TEXT) FROM replays").await, "-1");
    store.remove_trace(rows.trace.trace_id).await.unwrap();
    let odd = BundleRow { name: "a\0".into(), index_json: r#"{"a":"\u0000"}"#.into(), ..bundle() };
    store.put_bundle(&odd).await.unwrap();
    let recorded = store.bundle("sha256:11").await.unwrap().unwrap();
    let index: serde_json::Value = serde_json::from_str(&recorded.index_json).unwrap();
    assert!(index["a"].is_string());
    store.remove_bundle("sha256:11").await.unwrap();
}

async fn tokens_are_found_listed_and_revoked_once(database: &Opener<'_>) {
    let store = database.open().await;
    let token = |hash: &str, created| TokenInfo {
        id: crate::tokens::id_of(hash),
        name: "release pipeline".into(),
        grants: vec!["read:team".parse().unwrap(), Grant::WriteLog],
        created: UtcSeconds(created),
        expires: Some(UtcSeconds(4_000_000_000)),
        revoked: None,
        keys: vec!["B".into(), "a".into()],
    };
    let [one, two] = ["1".repeat(64), "2".repeat(64)];
    store.put_token(&two, &token(&two, 2_000)).await.unwrap();
    store.put_token(&one, &token(&one, 1_000)).await.unwrap();
    assert!(store.put_token(&one, &token(&one, 1_000)).await.is_err());
    assert_eq!(store.token(&one).await.unwrap(), Some(token(&one, 1_000)));
    assert_eq!(store.token("").await.unwrap(), None);
    assert_eq!(store.tokens().await.unwrap(), [token(&one, 1_000), token(&two, 2_000)]);
    assert!(store.renew_token(&two[..12], UtcSeconds(9_000)).await.unwrap());
    let renewed = TokenInfo { expires: Some(UtcSeconds(9_000)), ..token(&two, 2_000) };
    assert_eq!(store.token(&two).await.unwrap(), Some(renewed));
    assert_eq!(store.token(&one).await.unwrap(), Some(token(&one, 1_000)));
    assert!(!store.renew_token("000000000000", UtcSeconds(9_000)).await.unwrap());
    assert!(!store.revoke_token("000000000000", UtcSeconds(3_000)).await.unwrap());
    assert!(store.revoke_token(&one[..12], UtcSeconds(3_000)).await.unwrap());
    assert!(store.revoke_token(&one[..12], UtcSeconds(5_000)).await.unwrap());
    let revoked = TokenInfo { revoked: Some(UtcSeconds(3_000)), ..token(&one, 1_000) };
    assert_eq!(store.token(&one).await.unwrap(), Some(revoked.clone()));
    assert!(!store.renew_token(&one[..12], UtcSeconds(9_000)).await.unwrap());
    assert_eq!(store.token(&one).await.unwrap(), Some(revoked));
}

async fn the_first_secret_of_a_name_stays(database: &Opener<'_>) {
    let store = database.open().await;
    assert_eq!(store.known_secret("key").await.unwrap(), None);
    assert_eq!(store.secret("key", b"first").await.unwrap(), b"first");
    assert_eq!(store.known_secret("key").await.unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(database.open().await.secret("key", b"second").await.unwrap(), b"first");
}

fn line(path: String) -> AuditRow {
    AuditRow {
        at: UtcSeconds(1_800_000_000),
        request_id: "id".into(),
        token: None,
        address: Some("::1".into()),
        method: "PUT".into(),
        path,
        digest: None,
        status: 201,
    }
}

async fn the_audit_log_is_read_in_order_and_in_parts(database: &Opener<'_>) {
    let store = database.open().await;
    let lines: Vec<AuditRow> = (0..5).map(|number| line(format!("/{number}"))).collect();
    for line in &lines {
        store.put_audit(line).await.unwrap();
    }
    let first = store.audit(0, 2).await.unwrap();
    let rest = store.audit(first[1].0, 9).await.unwrap();
    let read: Vec<AuditRow> = first.into_iter().chain(rest).map(|(_, line)| line).collect();
    assert_eq!(read, lines);
    for beyond in [i64::MAX.cast_unsigned(), u64::MAX] {
        assert!(store.audit(beyond, 9).await.unwrap().is_empty());
    }
}

async fn the_newest_alerts_stay_and_none_is_there_twice(database: &Opener<'_>) {
    let store = database.open().await;
    let row = |number: u64| AlertRow {
        id: Uuid::from_u128(number.into()),
        at: UtcSeconds(1_700_000_000),
        json: format!(r#"{{"kind": "{number}\u0000"}}"#),
    };
    for number in [1, 2, 2, 3, 1, 4, 5] {
        store.put_alert(&row(number), 4).await.unwrap();
    }
    let other = database.open().await;
    let ids = |rows: Vec<AlertRow>| rows.iter().map(|row| row.id.as_u128()).collect::<Vec<_>>();
    let kept = other.alerts(9).await.unwrap();
    assert!(kept[0].at == row(5).at && kept[0].json.contains(r#""kind""#), "{kept:?}");
    assert_eq!(ids(kept), [5, 4, 3, 2]);
    assert_eq!(ids(other.alerts(2).await.unwrap()), [5, 4]);
}

async fn many_writers_lose_nothing(database: &Opener<'_>) {
    let (one, two) = (database.open().await, database.open().await);
    let before = one.audit(0, 1000).await.unwrap().len();
    let write = |number: u32| {
        let store = Arc::clone(if number.is_multiple_of(2) { &one } else { &two });
        tokio::spawn(async move {
            let row = BundleRow { sha256: format!("sha256:{number}"), ..bundle() };
            store.put_bundle(&row).await.unwrap();
            store.put_audit(&line(format!("/many/{number}"))).await.unwrap();
        })
    };
    for written in (0..40).map(write).collect::<Vec<_>>() {
        written.await.unwrap();
    }
    assert_eq!(one.bundles().await.unwrap().len(), 40);
    assert_eq!(two.audit(0, 1000).await.unwrap().len(), before + 40);
}

/// As servers do that start together on a database that was lost.
async fn one_trace_of_many_writers_is_recorded_once(database: &Opener<'_>) {
    let (one, two) = (database.open().await, database.open().await);
    let write = |number: u32| {
        let store = Arc::clone(if number.is_multiple_of(2) { &one } else { &two });
        tokio::spawn(async move { store.put_trace(&trace()).await })
    };
    for written in (0..16).map(write).collect::<Vec<_>>() {
        written.await.unwrap().unwrap();
    }
    assert_eq!(one.traces().await.unwrap(), [(Uuid::from_u128(5), "sha256:44".to_owned())]);
    assert_eq!(database.ask("SELECT CAST(count(*) AS TEXT) FROM frames").await, "1");
    one.remove_trace(Uuid::from_u128(5)).await.unwrap();
}

/// Numbers that a sequence gives out become visible in another order, where nobody sees to it.
#[tokio::test]
async fn who_follows_changes_and_lines_while_many_write_misses_none() {
    let Some(postgres) = Postgres::start() else { return };
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let data = tempfile::tempdir().unwrap();
    let stores = [open(data.path(), Some(&url)).await.unwrap(), open(data.path(), Some(&url)).await.unwrap()];
    let write = |number: u32| {
        let store = Arc::clone(&stores[usize::from(number.is_multiple_of(2))]);
        tokio::spawn(async move {
            for at in 0..25 {
                let change = ChangeRow { key: format!("{number}/{at}"), is_removed: at % 3 == 0 };
                store.put_changes(&[change], &[]).await.unwrap();
                store.put_audit(&line(format!("/{number}/{at}"))).await.unwrap();
            }
        })
    };
    let writing: Vec<_> = (0..12).map(write).collect();
    let reader = open(data.path(), Some(&url)).await.unwrap();
    let (mut changes, mut lines) = (Vec::new(), Vec::new());
    loop {
        let is_written = writing.iter().all(tokio::task::JoinHandle::is_finished);
        let new = reader.changes(changes.last().map_or(0, |(number, _)| *number), 7).await.unwrap().rows;
        let audited = reader.audit(lines.last().map_or(0, |(number, _)| *number), 7).await.unwrap();
        let is_all = new.is_empty() && audited.is_empty();
        changes.extend(new);
        lines.extend(audited);
        if is_written && is_all {
            break;
        }
    }
    for written in writing {
        written.await.unwrap();
    }
    assert_eq!((changes.len(), lines.len()), (300, 300));
    assert!(changes == reader.changes(0, 1000).await.unwrap().rows && lines == reader.audit(0, 1000).await.unwrap());
    assert_eq!(reader.last_change().await.unwrap(), changes.last().unwrap().0);
}

#[tokio::test]
async fn servers_that_start_at_once_bring_a_database_up_to_date_once() {
    let Some(postgres) = Postgres::start() else { return };
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let data = tempfile::tempdir().unwrap();
    let opened = futures_util::future::join_all((0..6).map(|_| open(data.path(), Some(&url)))).await;
    for store in opened {
        store.unwrap().ping().await.unwrap();
    }
}

#[tokio::test]
async fn a_database_that_is_restarted_is_away_for_a_while() {
    let Some(mut postgres) = Postgres::start() else { return };
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path(), Some(&url)).await.unwrap();
    store.put_bundle(&bundle()).await.unwrap();
    postgres.stop();
    let error = store.put_bundle(&bundle()).await.unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error}");
    assert!(!format!("{error} {error:?}").contains(server::PASSWORD));
    postgres.start_again();
    assert_eq!(store.bundles().await.unwrap().len(), 1);
    let wrong: DatabaseUrl = postgres.url("postgres").replace(server::PASSWORD, "wrong-one").parse().unwrap();
    let refused = open(data.path(), Some(&wrong)).await.unwrap_err();
    assert!(refused.detail.contains("password") && !format!("{refused:?}").contains("wrong-one"), "{refused:?}");
}

#[tokio::test]
async fn a_database_of_which_a_part_is_missing_or_locked_as_while_a_backup_is_put_back_is_away() {
    let Some(postgres) = Postgres::start() else { return };
    let name = postgres.create_database();
    let url: DatabaseUrl = postgres.url(&name).parse().unwrap();
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path(), Some(&url)).await.unwrap();
    let made = "SELECT string_agg(tablename, ' ' ORDER BY tablename COLLATE \"C\") FROM pg_tables
                WHERE schemaname = 'public' AND tablename != '_sqlx_migrations'";
    assert_eq!(postgres.ask(&name, made), postgres::TABLES.join(" "));
    let is_away = |answer: Result<(), StoreError>, what: &str| {
        assert!(matches!(answer, Err(StoreError::Away(_))), "{what}: {answer:?}");
    };
    for table in postgres::TABLES {
        postgres.run(&name, &format!("ALTER TABLE {table} RENAME TO gone"));
        is_away(store.ping().await, table);
        let asked = match table {
            "alerts" => store.alerts(1).await.map(drop),
            "audit_log" => store.audit(0, 1).await.map(drop),
            "changes" | "changes_pruned" => store.changes(0, 1).await.map(drop),
            "condemned" => store.reprieve_all().await,
            "ended_uploads" => store.end_upload(Uuid::from_u128(1)).await,
            "intents" => store.intend(&Intent { id: Uuid::from_u128(2), keys: vec!["a".into()] }).await,
            "secrets" => store.secret("a", b"b").await.map(drop),
            "symbol_bundles" => store.put_bundle(&bundle()).await,
            // The trace has none.
            "replays" => Err(StoreError::Away(String::new())),
            "frames" | "traces" => store.put_trace(&trace()).await,
            _ => store.tokens().await.map(drop),
        };
        is_away(asked, table);
        postgres.run(&name, &format!("ALTER TABLE gone RENAME TO {table}"));
    }
    store.ping().await.unwrap();
    // A backup's keys come after its rows.
    let halves = [
        ("ALTER TABLE symbol_bundles RENAME os TO gone", "ALTER TABLE symbol_bundles RENAME gone TO os"),
        (
            "ALTER TABLE symbol_bundles DROP CONSTRAINT symbol_bundles_pkey",
            "ALTER TABLE symbol_bundles ADD PRIMARY KEY (sha256)",
        ),
    ];
    for (away, back) in halves {
        postgres.run(&name, away);
        is_away(store.put_bundle(&bundle()).await, away);
        postgres.run(&name, back);
    }
    store.put_bundle(&bundle()).await.unwrap();
    // And in one transaction they are locked until its end.
    let pool = sqlx::postgres::PgPool::connect_with(url.options()).await.unwrap();
    let mut locking = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE changes").execute(&mut *locking).await.unwrap();
    is_away(store.ping().await, "a lock");
    locking.rollback().await.unwrap();
    store.ping().await.unwrap();
}

#[tokio::test]
async fn old_changes_are_deleted_and_whoever_has_not_read_them_can_tell() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let store = open(data.path(), Some(&url)).await.unwrap();
    let change = |key: &str| ChangeRow { key: key.to_owned(), is_removed: false };
    assert_eq!(store.changes(0, 9).await.unwrap(), Changes::default());
    for key in ["a", "b", "c"] {
        store.put_changes(&[change(key)], &[]).await.unwrap();
    }
    let numbers: Vec<u64> = store.changes(0, 2).await.unwrap().rows.iter().map(|(number, _)| *number).collect();
    assert_eq!((numbers.as_slice(), store.last_change().await.unwrap()), (&[1, 2][..], 3));
    assert_eq!(store.prune_changes(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(store.changes(0, 9).await.unwrap().pruned, 0);
    assert_eq!(store.prune_changes(Duration::ZERO).await.unwrap(), 3);
    assert_eq!(store.changes(0, 9).await.unwrap(), Changes { pruned: 3, ..Changes::default() });
    // A server that starts now has seen them all.
    assert_eq!(store.last_change().await.unwrap(), 3);
    store.put_changes(&[change("d")], &[]).await.unwrap();
    let Changes { pruned, rows, after_at, last_at } = store.changes(3, 9).await.unwrap();
    assert_eq!((pruned, rows, after_at), (3, vec![(4, change("d"))], None));
    // Who asks for more is told when the last one was made that it has seen.
    let known = store.changes(4, 9).await.unwrap();
    assert!(last_at.is_some() && known.after_at == last_at && known.last_at.is_none(), "{last_at:?} {known:?}");
    assert_eq!(store.prune_changes(Duration::from_secs(3600)).await.unwrap(), 0);
}

#[tokio::test]
async fn an_intent_stays_until_it_is_told_what_came_of_it_and_many_who_settle_it_at_once_do_not_wait_for_each_other() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let name = postgres.create_database();
    let url: DatabaseUrl = postgres.url(&name).parse().unwrap();
    let stores = [open(data.path(), Some(&url)).await.unwrap(), open(data.path(), Some(&url)).await.unwrap()];
    let intent = |number: u128, keys: &[&str]| Intent {
        id: Uuid::from_u128(number),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    };
    let [store, _] = &stores;
    let (one, two) = (intent(1, &["a", "b"]), intent(2, &["a"]));
    for intent in [&one, &two] {
        store.intend(intent).await.unwrap();
    }
    assert_eq!(store.intents(Duration::from_secs(3600), 9).await.unwrap(), []);
    assert_eq!(store.intents(Duration::ZERO, 1).await.unwrap(), std::slice::from_ref(&one));
    let rows = [("a", true), ("b", false)];
    let rows = rows.map(|(key, is_removed)| ChangeRow { key: key.to_owned(), is_removed });
    store.put_changes(&rows, &[one.id]).await.unwrap();
    assert_eq!(store.intents(Duration::ZERO, 9).await.unwrap(), std::slice::from_ref(&two));
    assert_eq!(store.changes(0, 9).await.unwrap().rows, [(1, rows[0].clone()), (2, rows[1].clone())]);
    // Nothing is told, and the intent stays, where one of the two fails.
    postgres.run(&name, "ALTER TABLE changes ADD CHECK (key <> 'c')");
    let bad = ChangeRow { key: "c".into(), is_removed: false };
    assert!(store.put_changes(&[bad], &[two.id]).await.is_err());
    assert_eq!(store.intents(Duration::ZERO, 9).await.unwrap(), std::slice::from_ref(&two));
    let settling = |round: usize| {
        let (store, row) = (Arc::clone(&stores[round % 2]), rows[0].clone());
        let ids: Vec<Uuid> = (0..20).map(|at| Uuid::from_u128(100 + (at + round as u128 * 7) % 20)).collect();
        tokio::spawn(async move { store.put_changes(&[row], &ids).await })
    };
    for number in 0..20 {
        store.intend(&intent(100 + number, &["a"])).await.unwrap();
    }
    for settled in (0..12).map(settling).collect::<Vec<_>>() {
        settled.await.unwrap().unwrap();
    }
    assert_eq!(store.intents(Duration::ZERO, 9).await.unwrap(), [two]);
}

fn condemned(digest: &str, repository: &str) -> Condemned {
    Condemned { digest: digest.into(), repository: repository.into(), bytes: 7 }
}

#[tokio::test]
async fn what_is_condemned_is_struck_out_by_whoever_relies_on_it_or_taken_by_one() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let store = open(data.path(), Some(&url)).await.unwrap();
    let [me, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let all = [condemned("a", "r"), condemned("b", "r"), condemned("b", "s"), condemned("b", "")];
    let texts = |digests: &[&str]| digests.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    store.condemn(&all).await.unwrap();
    store.condemn(&all).await.unwrap();
    assert!(store.take(me, Of::Offers, Duration::from_secs(60), 9).await.unwrap().is_empty(), "too young");
    // Of one repository, and the bytes.
    assert!(store.reprieve("r", &texts(&["a", "b"])).await.unwrap());
    assert_eq!(store.take(me, Of::Bytes, Duration::ZERO, 9).await.unwrap(), []);
    assert_eq!(store.take(me, Of::Offers, Duration::ZERO, 9).await.unwrap(), [condemned("b", "s")]);
    assert_eq!(store.take(other, Of::Offers, Duration::ZERO, 9).await.unwrap(), [], "taken once");
    assert!(!store.reprieve("s", &texts(&["b"])).await.unwrap());
    assert!(store.reprieve("r", &texts(&["b"])).await.unwrap(), "of another repository");
    // Whoever says so keeps it.
    assert!(store.hold_taken(me, 1).await.unwrap());
    assert_eq!(store.take_over(other, Duration::from_secs(60)).await.unwrap(), []);
    assert_eq!(store.take_over(other, Duration::ZERO).await.unwrap(), [condemned("b", "s")]);
    assert!(!store.hold_taken(me, 1).await.unwrap());
    store.let_go(me).await.unwrap();
    assert!(!store.reprieve("s", &texts(&["b"])).await.unwrap(), "it is the other's");
    store.let_go(other).await.unwrap();
    assert!(store.reprieve("s", &texts(&["b"])).await.unwrap());
    // At once, condemned or not.
    store.condemn(&[condemned("c", "r")]).await.unwrap();
    assert!(store.take_now(me, &[condemned("c", "r"), condemned("d", "r")]).await.unwrap());
    assert!(!store.take_now(other, &[condemned("d", "r"), condemned("e", "r")]).await.unwrap());
    assert!(store.hold_taken(me, 2).await.unwrap());
}

#[tokio::test]
async fn an_upload_that_has_ended_is_known_until_it_is_forgotten() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let stores = [open(data.path(), Some(&url)).await.unwrap(), open(data.path(), Some(&url)).await.unwrap()];
    let [ended, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for _ in 0..2 {
        stores[0].end_upload(ended).await.unwrap();
    }
    stores[0].forget_ended_uploads(Duration::from_secs(60)).await.unwrap();
    assert!(stores[1].upload_has_ended(ended).await.unwrap() && !stores[1].upload_has_ended(other).await.unwrap());
    stores[0].forget_ended_uploads(Duration::ZERO).await.unwrap();
    assert!(!stores[1].upload_has_ended(ended).await.unwrap());
}

#[tokio::test]
async fn of_those_who_strike_out_and_take_at_once_one_wins() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let stores = [open(data.path(), Some(&url)).await.unwrap(), open(data.path(), Some(&url)).await.unwrap()];
    for round in 0..200 {
        let digest = round.to_string();
        stores[0].condemn(&[condemned(&digest, "")]).await.unwrap();
        let digests = [digest];
        let reprieve = stores[0].reprieve("r", &digests);
        let take = stores[1].take(Uuid::from_u128(3), Of::Bytes, Duration::ZERO, 9);
        let (reprieved, taken) = futures_util::future::join(reprieve, take).await;
        assert_eq!(reprieved.unwrap(), taken.unwrap().is_empty(), "round {round}");
        stores[0].let_go(Uuid::from_u128(3)).await.unwrap();
    }
}

#[tokio::test]
async fn one_server_at_a_time_has_the_turn_to_collect() {
    let Some(postgres) = Postgres::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let url: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let stores = [open(data.path(), Some(&url)).await.unwrap(), open(data.path(), Some(&url)).await.unwrap()];
    let mut turn = stores[0].collecting().await.unwrap().unwrap();
    assert!(turn.holds().await && stores[1].collecting().await.unwrap().is_none());
    turn.end().await;
    let turn = stores[1].collecting().await.unwrap().unwrap();
    assert!(stores[0].collecting().await.unwrap().is_none());
    // It ends with whoever has it.
    drop(turn);
    let started = std::time::Instant::now();
    while stores[0].collecting().await.unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_file_alone_has_all_of_it_once_it_has_settled() {
    let (data, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(data.path(), None).await.unwrap();
    store.put_bundle(&bundle()).await.unwrap();
    store.settle().await.unwrap();
    std::fs::copy(data.path().join(DATABASE_FILE), copy.path().join(DATABASE_FILE)).unwrap();
    let copied = open(copy.path(), None).await.unwrap();
    assert_eq!(copied.bundle("sha256:11").await.unwrap(), Some(bundle()));
    // And the one that settled goes on.
    store.put_seal("sha256:11", Some(&seal())).await.unwrap();
    assert_eq!(store.bundle("sha256:11").await.unwrap().unwrap().seal, Some(seal()));
}
