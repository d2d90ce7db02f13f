//! Registries that want to know who comes: Basic, and the dance for a token.

use std::net::SocketAddr;

use crate::front::{Front, Login, Manners, Seen};
use crate::support::{artifact, layout, login, reference, serve};
use symseal_bundle::Digest;
use symseal_registry::{Elsewhere, Options, RegistryAuth, RegistryError, pull, push, push_with};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const BEARER: Login = Login::Bearer { user: "robot", password: "s:ecret", identity: "an identity" };

struct Scene {
    root: tempfile::TempDir,
    front: Front,
    source: symseal_bundle::LayoutDir,
    digest: Digest,
}

impl Scene {
    async fn new(manners: Manners) -> Self {
        let root = tempfile::tempdir().unwrap();
        let front = Front::start(serve(&root.path().join("data")).await, manners);
        let source = layout(&root, "source");
        let digest = artifact(&source, &[vec![1; 3000], vec![2; 70_000]], None);
        Self { root, front, source, digest }
    }

    async fn push(&self, options: &Options) -> Result<(), RegistryError> {
        push(&self.source, &self.digest, &reference(self.front.address, "team/app:v1"), options).await.map(drop)
    }

    async fn pull(&self, options: &Options) -> Result<Digest, RegistryError> {
        pull(&reference(self.front.address, "team/app:v1"), &layout(&self.root, "target"), options)
            .await
            .map(|pulled| pulled.digest)
    }
}

fn refused(error: &RegistryError, parts: &[&str]) {
    let text = error.to_string();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{text}");
    for part in parts.iter().chain(&["docker login", "SYMSEAL_REGISTRY_USER"]) {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[tokio::test]
async fn a_password_is_sent_when_it_is_asked_for_and_not_before() {
    let scene =
        Scene::new(Manners { login: Login::Basic { user: "robot", password: "s:ecret" }, ..Manners::default() }).await;
    scene.push(&login("robot", "s:ecret")).await.unwrap();
    let seen = scene.front.take();
    assert_eq!(seen.first().unwrap().authorization, None);
    assert!(
        seen.iter().filter(|seen| seen.authorization.is_none()).count() <= 4,
        "one refusal for each blob under way"
    );
    assert_eq!(scene.pull(&login("robot", "s:ecret")).await.unwrap(), scene.digest);
}

#[tokio::test]
async fn a_wrong_password_and_none_at_all_are_told_with_the_user_and_what_to_do() {
    for login_kind in [Login::Basic { user: "robot", password: "s:ecret" }, BEARER] {
        let scene = Scene::new(Manners { login: login_kind, ..Manners::default() }).await;
        let error = scene.push(&login("robot", "wrong")).await.unwrap_err();
        refused(&error, &["the user \"robot\""]);
        assert!(!error.to_string().contains("wrong"), "{error}");
        refused(&scene.push(&Options::default()).await.unwrap_err(), &["a caller without credentials"]);
        let token = Options { auth: RegistryAuth::Bearer("made up".into()), ..Options::default() };
        refused(&scene.push(&token).await.unwrap_err(), &["a bearer token"]);
        refused(&scene.pull(&login("nobody", "x")).await.unwrap_err(), &["the user \"nobody\""]);
    }
}

/// A registry that refuses every request, for a reason that no other credentials would change.
async fn one_that_denies(reason: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let body = format!(r#"{{"errors":[{{"code":"DENIED","message":"{reason}"}}]}}"#);
            let length = body.len();
            let answer =
                format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn what_a_registry_denies_for_its_own_reasons_is_told_without_a_word_of_logging_in() {
    let root = tempfile::tempdir().unwrap();
    let address = one_that_denies("it was taken down on Monday").await;
    for options in [Options::default(), login("robot", "s:ecret")] {
        let error = pull(&reference(address, "team/app:v1"), &layout(&root, "target"), &options).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, RegistryError::Forbidden { .. }), "{text}");
        assert!(text.contains("DENIED it was taken down on Monday"), "{text}");
        assert!(!text.contains("docker login") && !text.contains("credentials that allow"), "{text}");
    }
}

fn tokens_asked(seen: &[Seen]) -> Vec<&Seen> {
    seen.iter().filter(|seen| seen.path == "/token").collect()
}

#[tokio::test]
async fn one_token_serves_a_push_and_the_password_goes_to_the_token_server_alone() {
    let scene = Scene::new(Manners { login: BEARER, ..Manners::default() }).await;
    scene.push(&login("robot", "s:ecret")).await.unwrap();
    let seen = scene.front.take();
    let asked = tokens_asked(&seen);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].query.contains("scope=repository%3Ateam%2Fapp%3Apull%2Cpush"), "{asked:?}");
    for other in seen.iter().filter(|seen| seen.path != "/token") {
        assert!(other.authorization.as_ref().is_none_or(|header| header.starts_with("Bearer token-")), "{other:?}");
    }
    assert_eq!(scene.pull(&login("robot", "s:ecret")).await.unwrap(), scene.digest);
    let seen = scene.front.take();
    assert!(
        tokens_asked(&seen)[0].query.contains("scope=repository%3Ateam%2Fapp%3Apull&")
            || tokens_asked(&seen)[0].query.ends_with("%3Apull")
    );
}

#[tokio::test]
async fn an_identity_token_is_changed_for_an_access_token() {
    let scene = Scene::new(Manners { login: BEARER, ..Manners::default() }).await;
    scene.push(&login("<token>", "an identity")).await.unwrap();
    let seen = scene.front.take();
    let asked = tokens_asked(&seen);
    assert!(
        asked.iter().all(|seen| seen.method == axum::http::Method::POST && seen.authorization.is_none()),
        "{asked:?}"
    );
    let error = scene.push(&login("<token>", "another")).await.unwrap_err();
    refused(&error, &["an identity token"]);
}

#[tokio::test]
async fn a_token_that_expires_under_way_is_renewed() {
    let scene = Scene::new(Manners { login: BEARER, token_uses: Some(3), ..Manners::default() }).await;
    // One request at a time: beside others, a token of three uses may be used up before the one that asked for it.
    let one_by_one = Options { concurrency: 1, ..login("robot", "s:ecret") };
    scene.push(&one_by_one).await.unwrap();
    let asked = tokens_asked(&scene.front.take()).len();
    assert!(asked >= 3, "{asked} tokens for more than nine requests");
    assert_eq!(scene.pull(&one_by_one).await.unwrap(), scene.digest);
}

#[tokio::test]
async fn a_mount_has_a_token_that_allows_to_pull_from_the_other_repository() {
    let scene = Scene::new(Manners { login: BEARER, ..Manners::default() }).await;
    let robot = login("robot", "s:ecret");
    scene.push(&robot).await.unwrap();
    let files: Vec<Digest> = [vec![1; 3000], vec![2; 70_000]].iter().map(|bytes| Digest::of(bytes)).collect();
    for file in &files {
        std::fs::remove_file(scene.source.blob_path(file)).unwrap();
    }
    let mut elsewhere = Elsewhere::default();
    elsewhere.add(&reference(scene.front.address, "team/app"), &robot, files);
    scene.front.take();
    let to = reference(scene.front.address, "other/app:v1");
    let report = push_with(&scene.source, &scene.digest, &to, &elsewhere, &robot).await.unwrap();
    assert_eq!((report.blobs_mounted, report.blobs_copied, report.bytes_fetched), (2, 0, 0));
    let seen = scene.front.take();
    assert_eq!(
        seen.iter().filter(|seen| seen.is_upload()).map(|seen| seen.sent).sum::<u64>(),
        2,
        "the empty configuration"
    );
}
