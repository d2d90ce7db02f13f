//! Sessions of registry clients: what was asked for of what the token may do, and nothing beside it.

use std::path::Path;

use reqwest::{Client, Method, StatusCode};
use symseal_bundle::{Digest, oci};
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config};

use crate::support::{Running, http};

struct Scene {
    server: Running,
    http: Client,
    /// May write to `team` and all below it.
    token: String,
}

/// The manifest that every repository has at its tag `v1`: an empty index.
const INDEX: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;

impl Scene {
    async fn start(root: &Path) -> Self {
        let data = root.join("data");
        let tokens = Tokens::open(&data, None).await.unwrap();
        let grants = vec!["write:team".parse().unwrap(), "traces:write".parse().unwrap()];
        let new = NewToken { name: "writer".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
        let token = tokens.create(new).await.unwrap().0.expose().to_owned();
        let mut config = Config::new(&data, ([127, 0, 0, 1], 0).into());
        config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
        let scene = Self { server: Running::start_as(config).await, http: http(), token };
        for repository in ["team/x", "team/x/sub", "team/z"] {
            let path = format!("/v2/{repository}/blobs/uploads/?digest={}", blob());
            assert_eq!(scene.ask(Method::POST, &path, &scene.token, "{}").await.0, StatusCode::CREATED);
            let path = format!("/v2/{repository}/manifests/v1");
            assert_eq!(scene.ask(Method::PUT, &path, &scene.token, INDEX).await.0, StatusCode::CREATED);
        }
        scene
    }

    /// The status, the challenge and the text of an answer.
    async fn ask(&self, method: Method, path: &str, token: &str, body: &'static str) -> (StatusCode, String, String) {
        let request = self.http.request(method, self.server.url(path)).bearer_auth(token);
        let answer = request.header("content-type", oci::IMAGE_INDEX).body(body).send().await.unwrap();
        let challenge = answer.headers().get("www-authenticate").map_or("", |value| value.to_str().unwrap()).to_owned();
        (answer.status(), challenge, answer.text().await.unwrap())
    }

    async fn session(&self, query: &str) -> String {
        let (status, _, text) = self.ask(Method::GET, &format!("/api/v1/token?{query}"), &self.token, "").await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["token"].as_str().unwrap().to_owned()
    }

    /// Whether a session reads, writes, and deletes a blob, of a repository.
    async fn may(&self, session: &str, repository: &str) -> [bool; 3] {
        let blob = format!("/v2/{repository}/blobs/{}", blob());
        let mut may = [false; 3];
        for (may, (method, path)) in may.iter_mut().zip([
            (Method::GET, format!("/v2/{repository}/tags/list")),
            (Method::POST, format!("/v2/{repository}/blobs/uploads/")),
            (Method::DELETE, blob),
        ]) {
            let (status, challenge, _) = self.ask(method, &path, session, "").await;
            *may = status != StatusCode::UNAUTHORIZED;
            assert!(*may || challenge.contains("error=\"insufficient_scope\""), "{path}: {challenge}");
        }
        may
    }
}

#[tokio::test]
async fn pages_of_other_sites_cannot_load_what_a_token_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::start(folder.path()).await;
    for path in ["/v2/team/x/tags/list", "/v2/team/none/tags/list", "/api/v1/search?q=x", "/buildid/ab/debuginfo"] {
        let url = scene.server.url(path);
        let answer = scene.http.get(url).basic_auth("me", Some(&scene.token)).send().await.unwrap();
        assert_eq!(answer.headers()["cross-origin-resource-policy"], "same-origin", "{path}");
    }
}

fn blob() -> Digest {
    Digest::of(b"{}")
}

#[tokio::test]
async fn a_session_does_what_was_asked_for_in_the_repository_that_was_named() {
    let root = tempfile::tempdir().unwrap();
    let scene = Scene::start(root.path()).await;
    for (asked, x, sub) in [
        ("repository:team/x:pull", [true, false, false], [false; 3]),
        ("repository:team/x:push", [false, true, false], [false; 3]),
        ("repository:team/x:pull,push", [true, true, false], [false; 3]),
        ("repository:team/x:delete", [false, false, true], [false; 3]),
        ("repository:team/x:*", [true; 3], [false; 3]),
        ("repository:team/x:pull,push&scope=repository:team/x/sub:pull", [true, true, false], [true, false, false]),
        ("repository:team/x:pull+repository:team/x:delete", [true, false, true], [false; 3]),
        ("registry:catalog:*", [false; 3], [false; 3]),
        ("repository:elsewhere:pull,push", [false; 3], [false; 3]),
    ] {
        let session = scene.session(&format!("service=s&scope={asked}")).await;
        assert_eq!(scene.may(&session, "team/x").await, x, "{asked}: team/x");
        assert_eq!(scene.may(&session, "team/x/sub").await, sub, "{asked}: team/x/sub");
        assert_eq!(scene.may(&session, "team/z").await, [false; 3], "{asked}: team/z");
        // Nor is it good for anything that is not the registry's.
        let trace = "/api/v1/traces/00000000-0000-0000-0000-000000000001";
        assert_eq!(scene.ask(Method::PUT, trace, &session, "{}").await.0, StatusCode::FORBIDDEN, "{asked}");
    }
    let all = scene.session("service=s").await;
    assert_eq!((scene.may(&all, "team/x").await, scene.may(&all, "team/z").await), ([true; 3], [true; 3]));
    scene.server.stop().await;
}

#[tokio::test]
async fn who_deletes_is_told_to_ask_for_that() {
    let root = tempfile::tempdir().unwrap();
    let scene = Scene::start(root.path()).await;
    let pushes = scene.session("scope=repository:team/x:pull,push").await;
    let path = "/v2/team/x/manifests/v1";
    let (status, challenge, _) = scene.ask(Method::DELETE, path, &pushes, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(challenge.contains("scope=\"repository:team/x:pull,delete\""), "{challenge}");
    // As clients go on that keep what they asked for before.
    let both = scene.session("scope=repository:team/x:pull,delete&scope=repository:team/x:pull,push").await;
    assert_eq!(scene.ask(Method::DELETE, path, &both, "").await.0, StatusCode::ACCEPTED);
    scene.server.stop().await;
}

#[tokio::test]
async fn the_list_of_repositories_is_for_sessions_that_asked_for_it() {
    let root = tempfile::tempdir().unwrap();
    let scene = Scene::start(root.path()).await;
    let lists = scene.session("scope=registry:catalog:*").await;
    let (status, _, text) = scene.ask(Method::GET, "/v2/_catalog", &lists, "").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, r#"{"repositories":["team/x","team/x/sub","team/z"]}"#));
    let reads = scene.session("scope=repository:team/x:pull").await;
    let (status, challenge, _) = scene.ask(Method::GET, "/v2/_catalog", &reads, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(challenge.contains("scope=\"registry:catalog:*\""), "{challenge}");
    scene.server.stop().await;
}
