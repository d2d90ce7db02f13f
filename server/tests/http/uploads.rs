//! The upload protocol, request by request, as foreign clients speak it.

use crate::support::{Running, http, noise};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use reqwest::{Client, Response, StatusCode};
use symseal_bundle::Digest;
use tokio::io::AsyncWriteExt;

struct Fixture {
    root: tempfile::TempDir,
    server: Running,
    http: Client,
}

impl Fixture {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let server = Running::start(root.path()).await;
        Self { server, http: http(), root }
    }

    /// Starts a session; its path.
    async fn session(&self) -> String {
        let response = self.http.post(self.server.url("/v2/repo/blobs/uploads/")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        location(&response)
    }

    async fn patch(&self, at: &str, range: Option<&str>, bytes: &'static [u8]) -> Response {
        let mut request = self.http.patch(self.server.url(at)).body(bytes);
        if let Some(range) = range {
            request = request.header(CONTENT_RANGE, range);
        }
        request.send().await.unwrap()
    }

    async fn put(&self, at: &str, digest: &Digest, bytes: &'static [u8]) -> Response {
        self.http.put(self.server.url(&format!("{at}?digest={digest}"))).body(bytes).send().await.unwrap()
    }

    async fn status(&self, at: &str) -> Response {
        self.http.get(self.server.url(at)).send().await.unwrap()
    }

    async fn blob(&self, digest: &Digest) -> Response {
        self.http.get(self.server.url(&format!("/v2/repo/blobs/{digest}"))).send().await.unwrap()
    }
}

/// Both at once, as each takes the half minute that a body has to come on.
#[tokio::test]
async fn an_upload_that_does_not_come_on_is_ended_and_a_session_goes_on_from_where_it_was() {
    use tokio::io::AsyncReadExt;
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    let send = async |method: &str, path: &str| {
        let mut stream = tokio::net::TcpStream::connect(fixture.server.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(std::time::Duration::from_secs(60), read)
            .await
            .expect("no answer within a minute")
            .unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (blob, file) = tokio::join!(send("PATCH", &session), send("PUT", "/api/v1/symbols?name=app.debug"));
    for answer in [&blob, &file] {
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("too slowly"), "{answer}");
    }
    let status = fixture.status(&session).await;
    assert_eq!(status.headers()[RANGE], "0-2", "what came counts");
    let whole = Digest::of(b"abcdef");
    assert_eq!(fixture.put(&session, &whole, b"def").await.status(), StatusCode::CREATED);
}

fn location(response: &Response) -> String {
    let location = response.headers()[LOCATION].to_str().unwrap();
    assert!(location.starts_with("/v2/"), "a location must be relative: {location}");
    location.to_owned()
}

async fn error_code(response: Response) -> String {
    let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    body["errors"][0]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn chunks_in_order_become_a_blob_and_a_chunk_out_of_order_is_416() {
    let fixture = Fixture::new().await;
    let at = fixture.session().await;
    assert_eq!(fixture.patch(&at, Some("0-3"), b"abcd").await.headers()[RANGE], "0-3");
    let wrong = fixture.patch(&at, Some("8-9"), b"xy").await;
    assert_eq!(wrong.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(wrong.headers()[RANGE], "0-3");
    let status = fixture.status(&at).await;
    assert_eq!((status.status(), &status.headers()[RANGE]), (StatusCode::NO_CONTENT, &"0-3".parse().unwrap()));
    assert_eq!(fixture.patch(&at, Some("4-5"), b"ef").await.status(), StatusCode::ACCEPTED);
    let digest = Digest::of(b"abcdefgh");
    let stored = fixture.put(&at, &digest, b"gh").await;
    assert_eq!(stored.status(), StatusCode::CREATED);
    assert_eq!(stored.headers()["docker-content-digest"], digest.to_string().as_str());
    assert_eq!(fixture.blob(&digest).await.text().await.unwrap(), "abcdefgh");
    assert_eq!(fixture.status(&at).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_chunk_whose_length_is_not_what_it_says_changes_nothing() {
    let fixture = Fixture::new().await;
    let at = fixture.session().await;
    fixture.patch(&at, None, b"abcd").await;
    let refused = fixture.patch(&at, Some("4-9"), b"xy").await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(error_code(refused).await, "SIZE_INVALID");
    assert_eq!(fixture.put(&at, &Digest::of(b"abcd"), b"").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_wrong_digest_is_refused_and_nothing_is_visible() {
    let fixture = Fixture::new().await;
    let (right, wrong) = (Digest::of(b"bytes"), Digest::of(b"other"));
    let at = fixture.session().await;
    let refused = fixture.put(&at, &wrong, b"bytes").await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(error_code(refused).await, "DIGEST_INVALID");
    for digest in [right, wrong] {
        let missing = fixture.blob(&digest).await;
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
        assert_eq!(error_code(missing).await, "BLOB_UNKNOWN");
    }
}

#[tokio::test]
async fn a_cancelled_upload_is_gone() {
    let fixture = Fixture::new().await;
    let at = fixture.session().await;
    fixture.patch(&at, None, b"abcd").await;
    let cancelled = fixture.http.delete(fixture.server.url(&at)).send().await.unwrap();
    assert_eq!(cancelled.status(), StatusCode::NO_CONTENT);
    assert_eq!(fixture.status(&at).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(fixture.patch(&at, None, b"more").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_upload_belongs_to_its_repository() {
    let fixture = Fixture::new().await;
    let at = fixture.session().await.replace("/repo/", "/other/");
    assert_eq!(fixture.status(&at).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_post_with_a_digest_stores_a_blob_and_a_mount_shares_it() {
    let fixture = Fixture::new().await;
    let digest = Digest::of(b"whole");
    let post = |url: String, body: &'static [u8]| fixture.http.post(url).body(body).send();
    let url = fixture.server.url(&format!("/v2/repo/blobs/uploads/?digest={digest}"));
    assert_eq!(post(url, b"whole").await.unwrap().status(), StatusCode::CREATED);
    let wrong = fixture.server.url(&format!("/v2/repo/blobs/uploads/?digest={}", Digest::of(b"other")));
    assert_eq!(post(wrong, b"whole").await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(std::fs::read_dir(fixture.root.path().join("repositories/repo/_uploads")).unwrap().count(), 0);
    let elsewhere = fixture.server.url(&format!("/v2/new/blobs/{digest}"));
    assert_eq!(fixture.http.head(&elsewhere).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let url = fixture.server.url(&format!("/v2/new/blobs/uploads/?mount={digest}&from=repo"));
    assert_eq!(post(url, b"").await.unwrap().status(), StatusCode::CREATED);
    let head = fixture.http.head(&elsewhere).send().await.unwrap();
    assert_eq!((head.status(), &head.headers()[CONTENT_LENGTH]), (StatusCode::OK, &"5".parse().unwrap()));
    let url = fixture.server.url(&format!("/v2/new/blobs/uploads/?mount={}&from=repo", Digest::of(b"absent")));
    assert_eq!(post(url, b"").await.unwrap().status(), StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_client_that_dies_in_the_middle_goes_on_after_a_restart_of_the_server() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let http = http();
    let started = http.post(server.url("/v2/repo/blobs/uploads/")).send().await.unwrap();
    let at = location(&started);
    let whole = noise(4 << 20, 1);

    let mut dying = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = format!("PATCH {at} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", whole.len());
    dying.write_all(head.as_bytes()).await.unwrap();
    dying.write_all(&whole[..3 << 20]).await.unwrap();
    drop(dying);

    let mut have = 0;
    for _ in 0..200 {
        let status = http.get(server.url(&at)).send().await.unwrap();
        have = status.headers()[RANGE].to_str().unwrap().trim_start_matches("0-").parse::<usize>().unwrap() + 1;
        if have == 3 << 20 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(have, 3 << 20);
    server.stop().await;

    let server = Running::start(root.path()).await;
    let rest = whole[have..].to_vec();
    let range = format!("{have}-{}", whole.len() - 1);
    let patched = http.patch(server.url(&at)).header(CONTENT_RANGE, range).body(rest).send().await.unwrap();
    assert_eq!(patched.status(), StatusCode::ACCEPTED);
    let digest = Digest::of(&whole);
    let stored = http.put(server.url(&format!("{at}?digest={digest}"))).send().await.unwrap();
    assert_eq!(stored.status(), StatusCode::CREATED);
    let blob = http.get(server.url(&format!("/v2/repo/blobs/{digest}"))).send().await.unwrap();
    assert!(blob.bytes().await.unwrap() == whole);
}

#[tokio::test]
async fn any_range_is_what_slicing_gives() {
    let fixture = Fixture::new().await;
    let whole = noise(600_000, 2);
    let digest = Digest::of(&whole);
    let url = fixture.server.url(&format!("/v2/repo/blobs/uploads/?digest={digest}"));
    fixture.http.post(url).body(whole.clone()).send().await.unwrap();
    let url = fixture.server.url(&format!("/v2/repo/blobs/{digest}"));
    let size = whole.len();
    // The edges of the blob and of the blocks that the server reads, and some places between.
    let places = [0, 1, 262_143, 262_144, 262_145, 300_000, 524_288, size - 2, size - 1, size, size + 5];
    for first in places {
        for last in places {
            let response = fixture.http.get(&url).header(RANGE, format!("bytes={first}-{last}")).send().await.unwrap();
            if first >= size || last < first {
                assert_eq!(response.status(), StatusCode::RANGE_NOT_SATISFIABLE, "{first}-{last}");
                assert_eq!(response.headers()[CONTENT_RANGE], format!("bytes */{size}").as_str());
                continue;
            }
            let end = last.min(size - 1);
            assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT, "{first}-{last}");
            assert_eq!(response.headers()[CONTENT_RANGE], format!("bytes {first}-{end}/{size}").as_str());
            assert!(response.bytes().await.unwrap() == whole[first..=end], "{first}-{last}");
        }
    }
}

#[tokio::test]
async fn a_manifest_keeps_its_bytes_and_one_with_a_missing_child_is_refused() {
    let fixture = Fixture::new().await;
    let config = Digest::of(b"{}");
    let manifest = format!(
        "{{ \"schemaVersion\": 2,\n \"mediaType\": \"application/vnd.oci.image.manifest.v1+json\",\"unknown\":1,
        \"config\":{{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\"digest\":\"{config}\",\"size\":2}},\"layers\":[] }}"
    );
    let url = fixture.server.url("/v2/repo/manifests/v1");
    let put = || {
        let request = fixture.http.put(&url).header(CONTENT_TYPE, "application/vnd.oci.image.manifest.v1+json");
        request.body(manifest.clone()).send()
    };
    let refused = put().await.unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
    assert_eq!(error_code(refused).await, "MANIFEST_BLOB_UNKNOWN");
    let at = fixture.session().await;
    fixture.put(&at, &config, b"{}").await;
    assert_eq!(put().await.unwrap().status(), StatusCode::CREATED);
    let digest = Digest::of(manifest.as_bytes());
    for name in ["v1".to_owned(), digest.to_string()] {
        let got = fixture.http.get(fixture.server.url(&format!("/v2/repo/manifests/{name}"))).send().await.unwrap();
        assert_eq!(got.headers()["docker-content-digest"], digest.to_string().as_str());
        assert_eq!(got.text().await.unwrap(), manifest);
    }
}

#[tokio::test]
async fn a_manifest_above_four_mebibytes_is_413() {
    let fixture = Fixture::new().await;
    let url = fixture.server.url("/v2/repo/manifests/v1");
    let response = fixture.http.put(&url).body(vec![b' '; (4 << 20) + 1]).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}
