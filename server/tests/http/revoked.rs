//! What a request keeps that began while its token held, and ends when it holds no longer.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Client, StatusCode};
use symseal_bundle::{Digest, oci};
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, TokenInfo, Tokens};
use symseal_server::{AccessConfig, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Running, http, noise};

/// Longer than what the database said of a token is believed.
const LONG: Duration = Duration::from_millis(2300);

fn now() -> UtcSeconds {
    UtcSeconds(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap())
}

struct Scene {
    root: tempfile::TempDir,
    server: Running,
    tokens: Tokens,
    http: Client,
    /// Holds to the end.
    owner: String,
}

impl Scene {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let tokens = Tokens::open(&data, None).await.unwrap();
        let mut config = Config::new(&data, ([127, 0, 0, 1], 0).into());
        config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
        let server = Running::start_as(config).await;
        let mut scene = Self { root, server, tokens, http: http(), owner: String::new() };
        scene.owner = scene.token(None).await.0;
        scene
    }

    async fn token(&self, expires: Option<UtcSeconds>) -> (String, TokenInfo) {
        let grants = ["write:*", "traces:write"].map(|grant| grant.parse().unwrap()).to_vec();
        let new = NewToken { name: "writer".into(), created: UtcSeconds(1), expires, grants, keys: Vec::new() };
        let (secret, info) = self.tokens.create(new).await.unwrap();
        (secret.expose().to_owned(), info)
    }

    async fn push(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let url = self.server.url(&format!("/v2/r/blobs/uploads/?digest={digest}"));
        let pushed = self.http.post(url).bearer_auth(&self.owner).body(bytes.to_vec()).send().await.unwrap();
        assert_eq!(pushed.status(), StatusCode::CREATED);
        digest
    }

    async fn status(&self, path: &str) -> StatusCode {
        self.http.get(self.server.url(path)).bearer_auth(&self.owner).send().await.unwrap().status()
    }

    async fn session(&self, token: &str) -> String {
        let begun = self.http.post(self.server.url("/v2/r/blobs/uploads/")).bearer_auth(token).send().await.unwrap();
        begun.headers()["location"].to_str().unwrap().to_owned()
    }

    /// Sends the head and the first half of a body, and gives what is to be sent yet.
    async fn half(&self, token: &str, request: &str, kind: &str, body: &[u8]) -> (TcpStream, Vec<u8>) {
        let mut stream = TcpStream::connect(self.server.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let (first, rest) = body.split_at(body.len() / 2);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(first).await.unwrap();
        (stream, rest.to_vec())
    }

    /// Files of unfinished uploads, and of bodies on their way.
    fn unfinished(&self) -> usize {
        let count = |folder: &Path| std::fs::read_dir(folder).map_or(0, |files| files.count());
        let data = self.root.path().join("data");
        count(&data.join("repositories/r/_uploads")) + count(&data.join("temporary"))
    }
}

async fn rest(mut stream: TcpStream, rest: &[u8]) -> String {
    // Who is refused early may be cut off.
    let _ = stream.write_all(rest).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_session_that_does_not_hold_is_told_where_another_is_to_be_had_and_for_what() {
    let scene = Scene::start().await;
    for (method, path, scope) in [
        ("GET", "/v2/team/app/manifests/1", "repository:team/app:pull"),
        ("POST", "/v2/team/app/blobs/uploads/", "repository:team/app:pull,push"),
        ("GET", "/v2/_catalog", "registry:catalog:*"),
    ] {
        let asked = scene.http.request(method.parse().unwrap(), scene.server.url(path));
        let refused = asked.bearer_auth("symsess_eyJ9.x").send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let challenge = refused.headers()["www-authenticate"].to_str().unwrap();
        let named = format!("scope=\"{scope}\",error=\"invalid_token\"");
        assert!(challenge.starts_with("Bearer realm=\"http") && challenge.ends_with(&named), "{challenge}");
    }
    let asked = scene.http.get(scene.server.url("/v2/")).basic_auth("me", Some("wrong"));
    assert_eq!(asked.send().await.unwrap().headers()["www-authenticate"], "Basic realm=\"symseal\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_after_its_token_was_revoked_is_refused_and_leaves_nothing() {
    let scene = Scene::start().await;
    let layer = scene.push(b"layer").await;
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": oci::MANIFEST, "artifactType": "a/b",
        "layers": [{ "mediaType": "a/b", "digest": layer.to_string(), "size": 5 }],
    });
    let manifest = manifest.to_string();
    let (large, small) = (noise(900_000, 1), noise(9_000, 2));
    let (large_digest, small_digest) = (Digest::of(&large), Digest::of(&small));
    let readable = scene.push(&noise(40 << 20, 3)).await;
    for is_revoked in [true, false] {
        // Alive for as long as it takes to begin.
        let expires = (!is_revoked).then(|| UtcSeconds(now().0 + 4));
        let (token, info) = scene.token(expires).await;
        let sessions = [scene.session(&token).await, scene.session(&token).await];
        let octets = "application/octet-stream";
        let mut begun = Vec::new();
        for (request, kind, body) in [
            ("PUT /v2/r/manifests/late".to_owned(), oci::MANIFEST, manifest.as_bytes()),
            (format!("PUT /v2/r/manifests/{}", Digest::of(manifest.as_bytes())), oci::MANIFEST, manifest.as_bytes()),
            (format!("POST /v2/r/blobs/uploads/?digest={small_digest}"), octets, &small),
            (format!("POST /v2/r/blobs/uploads/?digest={large_digest}"), octets, &large),
            (format!("PATCH {}", sessions[0]), octets, &large),
            (format!("PUT {}?digest={large_digest}", sessions[1]), octets, &large),
            ("PUT /api/v1/symbols?name=app".to_owned(), octets, &small),
            ("PUT /api/v1/traces/00000000-0000-4000-8000-000000000001".to_owned(), octets, &small),
        ] {
            begun.push((scene.half(&token, &request, kind, body).await, request));
        }
        let mut reading = scene.http.get(scene.server.url(&format!("/v2/r/blobs/{readable}"))).bearer_auth(&token);
        reading = reading.header("accept-encoding", "identity");
        let mut reading = reading.send().await.unwrap();
        assert_eq!(reading.status(), StatusCode::OK);
        let mut read = reading.chunk().await.unwrap().unwrap().len();
        if is_revoked {
            assert!(scene.tokens.revoke(&info.id, now()).await.unwrap());
            tokio::time::sleep(LONG).await;
        } else {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        for ((stream, left), request) in begun {
            let answer = rest(stream, &left).await;
            assert!(answer.starts_with("HTTP/1.1 401 "), "{request}: {answer}");
            assert!(answer.to_ascii_lowercase().contains("www-authenticate: basic"), "{request}: {answer}");
            assert!(answer.contains("that holds"), "{request}: {answer}");
        }
        for path in [
            "/v2/r/manifests/late".to_owned(),
            format!("/v2/r/manifests/{}", Digest::of(manifest.as_bytes())),
            format!("/v2/r/blobs/{large_digest}"),
            format!("/v2/r/blobs/{small_digest}"),
            format!("/v2/loose/blobs/{small_digest}"),
            "/api/v1/traces/00000000-0000-4000-8000-000000000001".to_owned(),
            sessions[0].clone(),
            sessions[1].clone(),
        ] {
            assert_eq!(scene.status(&path).await, StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(scene.unfinished(), 0);
        // What was only read goes on, and nothing begins any more.
        while let Some(chunk) = reading.chunk().await.unwrap() {
            read += chunk.len();
        }
        assert_eq!(read, 40 << 20);
        let late = scene.http.get(scene.server.url("/v2/r/tags/list")).bearer_auth(&token).send().await.unwrap();
        assert_eq!(late.status(), StatusCode::UNAUTHORIZED);
    }
    // The same request by a token that holds.
    let (stream, left) = scene.half(&scene.owner, "PUT /v2/r/manifests/late", oci::MANIFEST, manifest.as_bytes()).await;
    tokio::time::sleep(LONG).await;
    let answer = rest(stream, &left).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    scene.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_goes_on_and_on_ends_when_its_token_is_revoked() {
    let scene = Scene::start().await;
    let (token, info) = scene.token(None).await;
    let session = scene.session(&token).await;
    let block = noise(300_000, 1);
    // Never ends by itself.
    let blocks = futures_util::stream::unfold((), move |()| {
        let block = block.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((Ok::<_, std::io::Error>(block), ()))
        }
    });
    let body = reqwest::Body::wrap_stream(blocks);
    let sending = scene.http.patch(scene.server.url(&session)).bearer_auth(&token).body(body).send();
    let sending = tokio::spawn(sending);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.unfinished(), 1);
    assert!(scene.tokens.revoke(&info.id, now()).await.unwrap());
    // Who is still sending may see the answer, or the end of its connection.
    let answer = tokio::time::timeout(Duration::from_secs(20), sending).await.unwrap().unwrap();
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED));
    assert_eq!(scene.unfinished(), 0);
    scene.server.stop().await;
}
