//! Requests that overlap, break off or come too late: what a repository holds, and what has come to it, counts all the same.

use reqwest::StatusCode;
use symseal_bundle::Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::quotas::{LIMIT, Scene, refused};
use crate::support::{Running, noise};

/// A request whose body is sent by hand.
struct Slow(TcpStream);

impl Slow {
    async fn begin(server: &Running, method: &str, at: &str, head: &str) -> Self {
        let path = at.strip_prefix(&server.url("")).unwrap_or(at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Self(stream)
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    async fn chunk(&mut self, bytes: &[u8]) {
        self.send(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()).await;
    }

    /// Sends no more; the answer's status.
    async fn end(mut self) -> u16 {
        self.0.shutdown().await.unwrap();
        self.answer().await
    }

    async fn answer(mut self) -> u16 {
        let mut text = Vec::new();
        self.0.read_to_end(&mut text).await.unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }
}

/// Bytes of the sessions of `r` on the disk.
fn on_disk(scene: &Scene) -> u64 {
    let sessions = std::fs::read_dir(scene.root.path().join("repositories/r/_uploads")).unwrap();
    sessions.map(|session| session.unwrap().metadata().unwrap().len()).sum()
}

async fn session(scene: &Scene, server: &Running) -> String {
    let answer = scene.http.post(server.url("/v2/r/blobs/uploads/")).send().await.unwrap();
    server.url(answer.headers()["location"].to_str().unwrap())
}

const HELD: &str = "symseal_quota_bytes_held{prefix=\"r\"}";
const UNFINISHED: &str = "symseal_quota_bytes_unfinished{prefix=\"r\"}";

#[tokio::test]
async fn what_was_there_when_a_body_began_and_is_not_any_more_must_fit() {
    let scene = Scene::new(&[("r", Some(LIMIT), None)]);
    let server = scene.start().await;
    let mut waiting = Vec::new();
    for seed in 0..3_u64 {
        let bytes = noise(900_000, seed);
        let digest = Digest::of(&bytes);
        assert_eq!(scene.push(&server, "r", &bytes).await.status(), StatusCode::CREATED);
        let at = format!("{}?digest={digest}", session(&scene, &server).await);
        let mut put = Slow::begin(&server, "PUT", &at, "Content-Length: 900000").await;
        let (last, first) = bytes.split_last().unwrap();
        put.send(first).await;
        // Until it has seen that the blob is there.
        while on_disk(&scene) < (seed + 1) * 500_000 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let delete = scene.http.delete(server.url(&format!("/v2/r/blobs/{digest}")));
        assert_eq!(delete.send().await.unwrap().status(), StatusCode::ACCEPTED);
        waiting.push((put, *last));
    }
    let mut statuses = Vec::new();
    for (mut put, last) in waiting {
        put.send(&[last]).await;
        statuses.push(put.answer().await);
    }
    assert_eq!(statuses, [201, 413, 413]);
    assert_eq!(scene.metric(&server, HELD).await, 900_000);
    // What is there still may come again however full it is.
    assert_eq!(scene.push(&server, "r", &noise(900_000, 0)).await.status(), StatusCode::CREATED);
    server.stop().await;
}

#[tokio::test]
async fn what_came_as_something_that_is_there_and_broke_off_does_not_stay() {
    let scene = Scene::new(&[("r", Some(LIMIT), None)]);
    let server = scene.start().await;
    let there = noise(900_000, 1);
    assert_eq!(scene.push(&server, "r", &there).await.status(), StatusCode::CREATED);
    let at = session(&scene, &server).await;
    let patched = scene.http.patch(&at).body(noise(50_000, 2)).send().await.unwrap();
    assert_eq!(patched.status(), StatusCode::ACCEPTED);
    let end = format!("{at}?digest={}", Digest::of(&there));
    let mut put = Slow::begin(&server, "PUT", &end, "Content-Length: 800010").await;
    put.send(&noise(800_000, 3)).await;
    assert_eq!(put.end().await, 400);
    let status = scene.http.get(&at).send().await.unwrap();
    assert_eq!(status.headers()["range"], "0-49999");
    assert_eq!((on_disk(&scene), scene.metric(&server, UNFINISHED).await), (50_000, 50_000));
    // More than the blob has cannot be it, and counts.
    let long = session(&scene, &server).await;
    let end = format!("{long}?digest={}", Digest::of(&there));
    refused(scene.http.put(end).body(noise(3_000_000, 4)).send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!(scene.metric(&server, UNFINISHED).await, 50_000);
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_hangs_takes_no_place_from_one_that_came_later() {
    let scene = Scene::new(&[("r", Some(LIMIT), None)]);
    let server = scene.start().await;
    let at = session(&scene, &server).await;
    let mut hanging = Slow::begin(&server, "PATCH", &at, "Transfer-Encoding: chunked").await;
    hanging.chunk(b"x").await;
    while scene.metric(&server, UNFINISHED).await == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let taken = scene.http.patch(&at).body(noise(900_000, 1)).send().await.unwrap();
    assert_eq!(taken.status(), StatusCode::ACCEPTED);
    hanging.chunk(b"y").await;
    hanging.send(b"0\r\n\r\n").await;
    assert_eq!(hanging.answer().await, 404, "another request has taken the session over");
    assert_eq!((on_disk(&scene), scene.metric(&server, UNFINISHED).await), (900_000, 900_000));
    refused(scene.push(&server, "r", &noise(200_000, 2)).await, StatusCode::PAYLOAD_TOO_LARGE).await;
    server.stop().await;
}
