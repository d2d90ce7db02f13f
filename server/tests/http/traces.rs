//! Traces are taken once, continued, and recorded in rows.

use std::io::Write as _;

use crate::support::{Running, http};
use reqwest::{Client, Response, StatusCode};
use symseal_trace::{Event, ReplayResult, TraceCapture, TraceResolved, Uuid};

const ID: Uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);

fn lines(events: &[Event]) -> Vec<u8> {
    events.iter().flat_map(|event| event.to_line().unwrap()).collect()
}

fn capture() -> Event {
    Event::Capture(TraceCapture { trace_id: ID, platform: "linux".into(), pid: 7, ..TraceCapture::default() })
}

fn replay(number: u128) -> Event {
    Event::ReplayResult(ReplayResult {
        replay_id: Uuid::from_u128(number),
        trace_id: ID,
        seed: 42,
        replay_success_ratio: 0.98,
        symbol_coverage_pct: 93.0,
        verify_time_ms: 8423,
        ..ReplayResult::default()
    })
}

struct Fixture {
    root: tempfile::TempDir,
    server: Running,
    http: Client,
}

impl Fixture {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let server = Running::start(root.path()).await;
        Self { server, root, http: http() }
    }

    async fn put(&self, id: &str, body: Vec<u8>) -> Response {
        self.http.put(self.server.url(&format!("/api/v1/traces/{id}"))).body(body).send().await.unwrap()
    }

    async fn get(&self) -> Response {
        self.http.get(self.server.url(&format!("/api/v1/traces/{ID}"))).send().await.unwrap()
    }
}

async fn error_code(response: Response) -> String {
    let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    body["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_trace_is_taken_repeated_and_continued_but_never_changed() {
    let fixture = Fixture::new().await;
    let id = ID.to_string();
    let resolved = Event::Resolved(TraceResolved { trace_id: ID, ..TraceResolved::default() });
    let first = lines(&[capture()]);
    let more = lines(&[capture(), resolved, replay(1), replay(2)]);

    assert_eq!(fixture.get().await.status(), StatusCode::NOT_FOUND);
    assert_eq!(fixture.put(&id, first.clone()).await.status(), StatusCode::CREATED);
    assert_eq!(fixture.put(&id, first.clone()).await.status(), StatusCode::OK);
    let continued = fixture.put(&id, more.clone()).await;
    assert_eq!(continued.status(), StatusCode::OK);
    let answer: serde_json::Value = serde_json::from_str(&continued.text().await.unwrap()).unwrap();
    assert_eq!(answer["replays"], 2);
    assert_eq!(fixture.get().await.bytes().await.unwrap(), more);

    let changed = fixture.put(&id, lines(&[capture(), replay(3)])).await;
    assert_eq!(changed.status(), StatusCode::CONFLICT);
    assert_eq!(error_code(changed).await, "trace-differs");
    assert_eq!(fixture.put(&id, first).await.status(), StatusCode::CONFLICT);
    assert_eq!(fixture.get().await.bytes().await.unwrap(), more);

    let Fixture { root, server, http } = fixture;
    server.stop().await;
    let fixture = Fixture { server: Running::start(root.path()).await, root, http };
    assert_eq!(fixture.get().await.bytes().await.unwrap(), more);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// A request's body may be in any form.
type Form = fn(&[u8]) -> Vec<u8>;

#[tokio::test]
async fn a_trace_is_the_same_however_it_is_compressed() {
    let forms: [Form; 3] = [<[u8]>::to_vec, gzip, zstd];
    let (first, more) = (lines(&[capture()]), lines(&[capture(), replay(1), replay(2)]));
    for (known, other) in (0..3).flat_map(|known| (0..3).map(move |other| (forms[known], forms[other]))) {
        let fixture = Fixture::new().await;
        let id = ID.to_string();
        let sent = fixture.put(&id, known(&first)).await;
        assert_eq!(sent.status(), StatusCode::CREATED);
        let sent: serde_json::Value = sent.json().await.unwrap();
        // The same is not stored again: what came first stays.
        let again = fixture.put(&id, other(&first)).await;
        assert_eq!(again.status(), StatusCode::OK);
        assert_eq!(again.json::<serde_json::Value>().await.unwrap(), sent);
        assert_eq!(fixture.get().await.bytes().await.unwrap(), known(&first));
        // Continued, it is what came last.
        let continued = fixture.put(&id, other(&more)).await;
        assert_eq!(continued.status(), StatusCode::OK);
        assert_eq!(continued.json::<serde_json::Value>().await.unwrap()["replays"], 2);
        assert_eq!(fixture.get().await.bytes().await.unwrap(), other(&more));
        for differs in [known(&first), known(&lines(&[capture(), replay(3)]))] {
            assert_eq!(error_code(fixture.put(&id, differs).await).await, "trace-differs");
        }
        assert_eq!(fixture.get().await.bytes().await.unwrap(), other(&more));
        assert_eq!(std::fs::read_dir(fixture.root.path().join("temporary")).unwrap().count(), 0);
        fixture.server.stop().await;
    }
}

#[tokio::test]
async fn what_is_no_trace_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new().await;
    let id = ID.to_string();
    assert_eq!(error_code(fixture.put("7", lines(&[capture()])).await).await, "trace-id-invalid");
    for body in [b"".to_vec(), b"no json\n".to_vec(), lines(&[replay(1)]), lines(&[capture()])[..20].to_vec()] {
        let refused = fixture.put(&id, body).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert_eq!(error_code(refused).await, "trace-invalid");
    }
    let other = fixture.put(&Uuid::from_u128(1).to_string(), lines(&[capture()])).await;
    assert_eq!(error_code(other).await, "trace-invalid");
    assert_eq!(fixture.get().await.status(), StatusCode::NOT_FOUND);
    assert_eq!(std::fs::read_dir(fixture.root.path().join("traces")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(fixture.root.path().join("temporary")).unwrap().count(), 0);
}

#[tokio::test]
async fn no_truncation_of_a_trace_breaks_the_server() {
    let fixture = Fixture::new().await;
    let whole = lines(&[capture(), replay(1)]);
    for end in (0..whole.len()).step_by(17) {
        let status = fixture.put(&Uuid::from_u128(end as u128 + 1).to_string(), whole[..end].to_vec()).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "cut at {end}");
    }
}

#[tokio::test]
async fn the_record_is_made_again_when_the_database_is_lost() {
    let fixture = Fixture::new().await;
    let body = lines(&[capture(), replay(1)]);
    assert_eq!(fixture.put(&ID.to_string(), body.clone()).await.status(), StatusCode::CREATED);
    let Fixture { root, server, http } = fixture;
    server.stop().await;
    for name in ["symseal.sqlite", "symseal.sqlite-wal", "symseal.sqlite-shm"] {
        let _ = std::fs::remove_file(root.path().join(name));
    }
    let fixture = Fixture { server: Running::start(root.path()).await, root, http };
    assert_eq!(fixture.get().await.bytes().await.unwrap(), body);
    // The trace is recorded: the same again changes nothing.
    assert_eq!(fixture.put(&ID.to_string(), body).await.status(), StatusCode::OK);
}
