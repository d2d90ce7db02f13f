//! Bytes of one upload, and bytes of one caller in an hour.

use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, CONTENT_RANGE, RETRY_AFTER, VARY};
use reqwest::{Body, Client, Response, StatusCode};
use serde_json::Value;
use symseal_bundle::Digest;
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config, LimitsConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Running, http, noise, put_manifest};

const LIMIT: usize = 1 << 20;

async fn start(root: &tempfile::TempDir, limits: LimitsConfig) -> Running {
    let mut config = Config::new(root.path().join("data"), ([127, 0, 0, 1], 0).into());
    config.limits = limits;
    Running::start_as(config).await
}

async fn push(http: &Client, server: &Running, bytes: &[u8]) -> Response {
    let url = server.url(&format!("/v2/r/blobs/uploads/?digest={}", Digest::of(bytes)));
    http.post(url).body(bytes.to_vec()).send().await.unwrap()
}

async fn error(answer: Response) -> (StatusCode, String, String) {
    let status = answer.status();
    let body: Value = answer.json().await.unwrap();
    let error = if body["errors"].is_array() { &body["errors"][0] } else { &body["error"] };
    (status, error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
}

async fn metric(server: &Running, name: &str) -> u64 {
    let text = http().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn tokens_that_do_not_hold_take_the_turns_of_their_address_and_of_nobody_else() {
    let root = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(&root.path().join("data"), None).await.unwrap();
    let grants = vec!["read:*".parse().unwrap()];
    let new = NewToken { name: "honest".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
    let honest = tokens.create(new).await.unwrap().0.expose().to_owned();
    let mut config = Config::new(root.path().join("data"), ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    // So slow that no turn comes back within the test.
    config.limits = LimitsConfig { requests_per_second: Some(0.001), burst: Some(5), ..LimitsConfig::default() };
    let (server, http) = (Running::start_as(config).await, http());
    let show = async |token: &str| {
        let answer = http.get(server.url("/v2/")).bearer_auth(token).send().await.unwrap();
        assert!(answer.headers().get_all(VARY).iter().any(|value| value == "Authorization"), "{answer:?}");
        (answer.status(), answer.headers().contains_key(RETRY_AFTER))
    };
    // Seen for the first time it takes a turn of the address too.
    assert_eq!(show(&honest).await.0, StatusCode::OK);
    let mut answers = Vec::new();
    for number in 0..12 {
        answers.push(show(&format!("symseal_{number:064x}")).await);
    }
    let (refused, limited) = answers.split_at(4);
    assert!(refused.iter().all(|answer| *answer == (StatusCode::UNAUTHORIZED, false)), "{answers:?}");
    assert!(limited.iter().all(|answer| *answer == (StatusCode::TOO_MANY_REQUESTS, true)), "{answers:?}");
    // What is no token at all is no better, nor is nothing.
    assert_eq!(show("x").await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(http.get(server.url("/v2/")).send().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    // The holder of a token has turns of its own.
    assert_eq!(show(&honest).await.0, StatusCode::OK);
    // Who asks how the server is takes nobody's, and is never sent away.
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(http.get(server.url(path)).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
}

/// A body whose length is not announced.
fn stream(bytes: &[u8]) -> Body {
    let chunks: Vec<_> = bytes.chunks(70_000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

#[tokio::test]
async fn an_upload_above_the_limit_is_413_by_whatever_way_it_comes() {
    let root = tempfile::tempdir().unwrap();
    let limits = LimitsConfig { upload: Some(LIMIT as u64), ..LimitsConfig::default() };
    let (server, http) = (start(&root, limits).await, http());
    assert_eq!(push(&http, &server, &noise(LIMIT, 1)).await.status(), StatusCode::CREATED);
    // Announced: several times what the system's buffers hold, and the client learns why all the same.
    for large in [LIMIT + 1, 12 * LIMIT] {
        let (status, code, message) = error(push(&http, &server, &noise(large, 2)).await).await;
        assert_eq!((status, code.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID"));
        assert!(
            message.contains("limits.upload") && message.contains("1048576") && message.contains("operator"),
            "{message}"
        );
    }
    // Not announced, and in chunks.
    let large = noise(LIMIT + 1, 3);
    let url = server.url(&format!("/v2/r/blobs/uploads/?digest={}", Digest::of(&large)));
    let refused = error(http.post(url).body(stream(&large)).send().await.unwrap()).await;
    assert_eq!((refused.0, refused.1.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID"));
    let session = http.post(server.url("/v2/r/blobs/uploads/")).send().await.unwrap();
    let at = server.url(session.headers()["location"].to_str().unwrap());
    let chunk = |range: &str, bytes: &[u8]| http.patch(&at).header(CONTENT_RANGE, range).body(bytes.to_vec()).send();
    let (first, second) = large.split_at(LIMIT - 10);
    let range = format!("0-{}", first.len() - 1);
    assert_eq!(chunk(&range, first).await.unwrap().status(), StatusCode::ACCEPTED);
    let range = format!("{}-{}", first.len(), large.len() - 1);
    assert_eq!(chunk(&range, second).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    // The session ended with that: a blob that is too large does not become smaller, and what came of it would count for a day.
    let fitting = Digest::of(&large[..LIMIT]);
    let end = http.put(format!("{at}?digest={fitting}")).body(large[first.len()..LIMIT].to_vec()).send().await.unwrap();
    assert_eq!(end.status(), StatusCode::NOT_FOUND);
    let unfinished = std::fs::read_dir(root.path().join("data/repositories/r/_uploads"));
    assert_eq!(unfinished.map_or(0, |files| files.count()), 0);
    // And our own API.
    let file = http.put(server.url("/api/v1/symbols?name=app")).body(large.clone()).send().await.unwrap();
    let (status, code, message) = error(file).await;
    assert_eq!((status, code.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "upload-too-large"));
    assert!(message.contains("limits.upload"), "{message}");
    assert_eq!(metric(&server, "symseal_upload_limit_bytes ").await, LIMIT as u64);
    assert_eq!(metric(&server, "symseal_uploads_too_large_total ").await, 5);
    server.stop().await;
}

#[tokio::test]
async fn who_asks_whether_to_send_too_much_is_not_told_to_go_on() {
    let root = tempfile::tempdir().unwrap();
    let limits = LimitsConfig { upload: Some(LIMIT as u64), ..LimitsConfig::default() };
    let server = start(&root, limits).await;
    let blob = format!("POST /v2/r/blobs/uploads/?digest={}", Digest::of(b"any"));
    // Beyond what the operator allows; beyond what loose files and traces may have at all.
    let asked = [
        (blob.as_str(), 3 * LIMIT as u64, "413"),
        ("PUT /api/v1/symbols?name=a", 3 * LIMIT as u64, "413"),
        ("PUT /api/v1/symbols?name=a", 1 << 50, "413"),
        ("PUT /api/v1/symbols?name=a", 1000, "100"),
    ];
    for (line, length, status) in asked {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&start), format!("HTTP/1.1 {status}"), "{line}, {length} bytes");
    }
    server.stop().await;
}

#[tokio::test]
async fn who_has_read_its_bytes_is_told_when_to_come_again_and_debuggers_see_no_answer() {
    let root = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(&root.path().join("data"), None).await.unwrap();
    let grants = vec!["read:*".parse().unwrap()];
    let new = NewToken { name: "other".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
    let token = tokens.create(new).await.unwrap().0.expose().to_owned();
    let limits = LimitsConfig { read_per_hour: Some(LIMIT as u64), ..LimitsConfig::default() };
    let (server, http) = (start(&root, limits).await, http());
    let bytes = noise(LIMIT * 2, 1);
    assert_eq!(push(&http, &server, &bytes).await.status(), StatusCode::CREATED);
    let url = server.url(&format!("/v2/r/blobs/{}", Digest::of(&bytes)));
    // One that is larger than the budget can be had, once.
    let whole = http.get(&url).send().await.unwrap().bytes().await.unwrap();
    assert!(whole == bytes);
    let refused = http.get(&url).send().await.unwrap();
    let seconds: u64 = refused.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
    assert!((3500..=3601).contains(&seconds), "{seconds}");
    let (status, code, message) = error(refused).await;
    assert_eq!((status, code.as_str()), (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"));
    assert!(
        message.contains("limits.read_per_hour") && message.contains("1048576") && message.contains("operator"),
        "{message}"
    );
    let (status, code, _) = error(http.get(server.url("/api/v1/symbols")).send().await.unwrap()).await;
    assert_eq!((status, code.as_str()), (StatusCode::TOO_MANY_REQUESTS, "too-many-requests"));
    // An answer would be kept for ten minutes as "there is no such file".
    let asked = Instant::now();
    assert!(http.get(server.url("/buildid/abcd/debuginfo")).send().await.is_err());
    assert!(asked.elapsed().as_secs() < 10);
    // Writing, watching and other callers are not concerned.
    assert_eq!(push(&http, &server, b"more").await.status(), StatusCode::CREATED);
    assert_eq!(http.get(server.url("/readyz")).send().await.unwrap().status(), StatusCode::OK);
    let other = http.get(&url).header(AUTHORIZATION, format!("Bearer {token}")).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    assert!(other.bytes().await.unwrap() == bytes);
    let moved = metric(&server, "symseal_limited_bytes_total{direction=\"read\"}").await;
    assert!(moved >= 4 * LIMIT as u64 && moved < 4 * LIMIT as u64 + 4096, "{moved}");
    assert_eq!(metric(&server, "symseal_requests_out_of_bytes_total{direction=\"read\"}").await, 3);
    assert_eq!(metric(&server, "symseal_limit_bytes_per_hour{direction=\"read\"}").await, LIMIT as u64);
    server.stop().await;
}

#[tokio::test]
async fn who_has_sent_its_bytes_may_read_and_is_told_when_to_send_again() {
    let root = tempfile::tempdir().unwrap();
    let limits = LimitsConfig { write_per_hour: Some(LIMIT as u64), ..LimitsConfig::default() };
    let (server, http) = (start(&root, limits).await, http());
    let bytes = noise(LIMIT + 100_000, 1);
    assert_eq!(push(&http, &server, &bytes).await.status(), StatusCode::CREATED);
    let refused = push(&http, &server, &noise(8 * LIMIT, 2)).await;
    assert!(refused.headers().contains_key(RETRY_AFTER));
    let (status, code, message) = error(refused).await;
    assert_eq!((status, code.as_str()), (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"));
    assert!(message.contains("limits.write_per_hour"), "{message}");
    let read = http.get(server.url(&format!("/v2/r/blobs/{}", Digest::of(&bytes)))).send().await.unwrap();
    assert_eq!(read.status(), StatusCode::OK);
    // A server that stops waits for who is being sent something.
    assert!(read.bytes().await.unwrap() == bytes);
    server.stop().await;
}

/// Sends a part of what it announced, and then nothing more.
async fn stalled(server: &Running, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST /api/v1/resolve HTTP/1.1\r\nHost: localhost\r\nContent-Length: {announced}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // One that is refused may be closed before all is sent.
    let _ = stream.write_all(&vec![b' '; sent]).await;
    stream
}

/// What the server says within a moment.
async fn said(mut stream: TcpStream) -> (TcpStream, String) {
    let (mut answer, mut block) = (String::new(), [0; 4096]);
    let moment = Duration::from_millis(500);
    while let Ok(Ok(read @ 1..)) = tokio::time::timeout(moment, stream.read(&mut block)).await {
        answer.push_str(&String::from_utf8_lossy(&block[..read]));
    }
    (stream, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_come_on_take_so_much_memory_and_who_comes_then_is_told_to_come_again() {
    let root = tempfile::tempdir().unwrap();
    let (server, http) = (start(&root, LimitsConfig::default()).await, http());
    let subject = put_manifest(&http, &server, "r", &serde_json::json!({})).await.unwrap();
    let long = "x".repeat(200_000);
    let referring = serde_json::json!({ "subject": subject, "annotations": { "note": long } });
    put_manifest(&http, &server, "r", &referring).await.unwrap();
    let referrers = server.url(&format!("/v2/r/referrers/{}", subject["digest"].as_str().unwrap()));
    assert_eq!(http.get(&referrers).send().await.unwrap().status(), StatusCode::OK);
    let small = serde_json::json!({ "platform": "linux", "debug_id": "abcd", "addresses": ["0x1"] });
    let resolve = server.url("/api/v1/resolve");
    let padded = format!("{}{small}", " ".repeat(100_000));

    // There is room for 128 MiB, in which no more than 25 of the first have room, and for each of them 8 MiB are kept at most. The others take the rest.
    let mut kept = Vec::new();
    for (many, sent, least, most) in [(60, 5 << 20, 16, 25), (40, 300_000, 0, 39), (12, 100_000, 0, 11)] {
        let mut streams = Vec::new();
        for _ in 0..many {
            streams.push(stalled(&server, 8 << 20, sent).await);
        }
        let answers = futures_util::future::join_all(streams.into_iter().map(said)).await;
        let refused: Vec<&String> = answers.iter().map(|(_, said)| said).filter(|said| !said.is_empty()).collect();
        assert!((least..=most).contains(&(many - refused.len())), "{sent}: {refused:?}");
        for answer in refused {
            let is_passing = answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 5");
            assert!(is_passing && answer.contains("out-of-memory"), "{answer}");
        }
        kept.extend(answers);
    }
    // Nobody else may take more either, by whatever way; and what is small is answered as ever.
    let refused = http.post(&resolve).body(padded.clone()).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let refused = http.get(&referrers).send().await.unwrap();
    assert!(refused.headers().contains_key(RETRY_AFTER));
    assert_eq!(error(refused).await.1, "UNAVAILABLE");
    assert_eq!(http.post(&resolve).json(&small).send().await.unwrap().status(), StatusCode::OK);

    // Who writes has room of its own, however often it does.
    for number in 0..3 {
        let more =
            serde_json::json!({ "subject": subject, "annotations": { "note": long, "number": number.to_string() } });
        put_manifest(&http, &server, "r", &more).await.unwrap();
    }

    drop(kept);
    let until = Instant::now() + Duration::from_secs(10);
    while http.post(&resolve).body(padded.clone()).send().await.unwrap().status() != StatusCode::OK {
        assert!(Instant::now() < until, "the room is not free again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(http.get(&referrers).send().await.unwrap().status(), StatusCode::OK);
    server.stop().await;
}
