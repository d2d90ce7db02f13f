//! A bundle in several repositories, sealed in one of them: what the others tell and show of it, and to whom.

use crate::support::programs::has;
use crate::support::sealing::{Built, Scene};
use crate::support::{Running, options};
use reqwest::StatusCode;
use reqwest::header::ACCEPT;
use serde_json::{Value, json};
use symseal_registry::{Options, RegistryAuth, push};
use symseal_server::{AccessConfig, Config, Server};

/// A server whose repositories below `public` everybody may read, and where `public/strict` asks for seals.
async fn serve(scene: &Scene) -> Running {
    let mut config = Config::new(scene.data(), ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: vec!["public".parse().unwrap()] };
    Running::run(Server::bind(config).await.unwrap().judging(scene.rules(&["public/strict"])).await.unwrap())
}

async fn push_as(server: &Running, token: &str, built: &Built, repository: &str) {
    let auth = RegistryAuth::Basic("ci".into(), token.into());
    let reference = server.reference(&format!("{repository}:1"));
    push(&built.layout, &built.digest, &reference, &Options { auth, ..options() }).await.unwrap();
}

/// One who asks, by a token or as everybody.
struct Asker<'a> {
    scene: &'a Scene,
    server: &'a Running,
    token: Option<&'a str>,
}

impl Asker<'_> {
    async fn ask(&self, request: reqwest::RequestBuilder) -> (StatusCode, String) {
        let request = self.token.iter().fold(request, |request, token| request.bearer_auth(token));
        let answer = request.send().await.unwrap();
        (answer.status(), String::from_utf8_lossy(&answer.bytes().await.unwrap()).into_owned())
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        self.ask(self.scene.http.get(self.server.url(path))).await
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await.1).unwrap()
    }

    /// Every answer of ours that says whether a bundle is sealed: whether it says so in each, and all of their text.
    async fn told(&self, built: &Built) -> (Vec<bool>, String) {
        let digest = built.digest.to_string();
        let bundle = self.json(&format!("/api/v1/bundles/{digest}")).await;
        let listed = self.json("/api/v1/bundles?debug_id=abcdef01").await;
        let found = self.json("/api/v1/search?q=app").await;
        let (_, page) = self.get(&format!("/bundles/{digest}")).await;
        // Programs get a line of text there.
        let browsed = self.scene.http.get(self.server.url("/")).header(ACCEPT, "text/html");
        let (_, home) = self.ask(browsed).await;
        let asked = json!({"platform": "linux", "debug_id": "abcdef01", "addresses": ["0x1"]});
        let resolve = self.scene.http.post(self.server.url("/api/v1/resolve")).json(&asked);
        let resolved: Value = serde_json::from_str(&self.ask(resolve).await.1).unwrap();
        let is_sealed = |verification: &Value| verification["status"] == "sealed";
        let said = vec![
            !bundle["seal"].is_null(),
            is_sealed(&bundle["verification"]),
            is_sealed(&listed["bundles"][0]["verification"]),
            is_sealed(&found["releases"][0]["verification"]),
            page.contains(">sealed<"),
            home.contains("<b>1</b> of them sealed") && home.contains(">sealed<"),
            !resolved["provenance"]["seal"].is_null(),
        ];
        assert_eq!(resolved["provenance"]["bundle"], digest, "{resolved}");
        (said, [bundle.to_string(), listed.to_string(), found.to_string(), page, home, resolved.to_string()].concat())
    }

    /// Whether a repository shows the bundle's file to debuggers.
    async fn is_shown_in(&self, repository: &str) -> bool {
        self.get(&format!("/s/{repository}/buildid/abcdef01/debuginfo")).await.0 == StatusCode::OK
    }
}

#[tokio::test]
async fn a_seal_in_a_private_repository_says_nothing_of_the_bundle_in_a_public_one() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let token = scene.token(&["write:*"]).await;
    let mut server = serve(&scene).await;
    let built = scene.build("app", "abcdef01", "one", &["-g"]);
    push_as(&server, &token, &built, "public/app").await;
    push_as(&server, &token, &built, "public/strict/app").await;
    let seal = scene.seal(&built);
    push_as(&server, &token, &built, "vault/app").await;
    let signer = scene.key.key_id().to_string();
    for starts_again in [false, true] {
        if starts_again {
            server.stop().await;
            server = serve(&scene).await;
        }
        let stranger = Asker { scene: &scene, server: &server, token: None };
        let (said, text) = stranger.told(&built).await;
        assert_eq!(said, [false; 7], "{text}");
        assert!(!text.contains(&signer) && !text.contains("log.example") && !text.contains("vault"), "{text}");
        assert!(stranger.is_shown_in("public/app").await);
        assert!(!stranger.is_shown_in("public/strict").await, "another repository's seal is none here");
        let owner = Asker { token: Some(&token), ..stranger };
        let (said, text) = owner.told(&built).await;
        assert_eq!(said, [true; 7], "{text}");
        assert!(text.contains(&signer), "{text}");
        assert!(owner.is_shown_in("vault").await && !owner.is_shown_in("public/strict").await);
    }

    // Sealed there as well it outlives the private one's seal.
    push_as(&server, &token, &built, "public/strict/app").await;
    let delete = scene.http.delete(server.url(&format!("/v2/vault/app/manifests/{seal}"))).bearer_auth(&token);
    assert_eq!(delete.send().await.unwrap().status(), StatusCode::ACCEPTED);
    let stranger = Asker { scene: &scene, server: &server, token: None };
    let (said, text) = stranger.told(&built).await;
    assert_eq!(said, [true; 7], "{text}");
    assert!(stranger.is_shown_in("public/strict").await && stranger.is_shown_in("public/app").await);
    // And the other way round: nobody is told of what the public ones have lost.
    let delete = scene.http.delete(server.url(&format!("/v2/public/strict/app/manifests/{seal}"))).bearer_auth(&token);
    assert_eq!(delete.send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(stranger.told(&built).await.0, [false; 7]);
    assert!(!stranger.is_shown_in("public/strict").await && stranger.is_shown_in("public/app").await);
}

/// A gateway looks at the first of them alone.
#[tokio::test]
async fn bundles_and_repositories_with_a_seal_are_told_of_first_also_by_a_server_that_judges_none() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = Running::start(&scene.data()).await;
    let (poor, rich) =
        (scene.build("app", "abcdef01", "one", &["-g1"]), scene.build("other", "abcdef01", "two", &["-g3"]));
    for (built, repository) in [(&rich, "a/other"), (&poor, "a/app")] {
        scene.push(&server, built, repository).await.unwrap();
    }
    scene.seal(&poor);
    scene.push(&server, &poor, "z/app").await.unwrap();
    let listed = scene.json(&server, "/api/v1/bundles?debug_id=abcdef01").await;
    let told = |at: usize| (&listed["bundles"][at]["sha256"], &listed["bundles"][at]["repositories"]);
    assert_eq!(told(0), (&json!(poor.digest.to_string()), &json!(["z/app", "a/app"])), "{listed}");
    assert_eq!(told(1), (&json!(rich.digest.to_string()), &json!(["a/other"])), "{listed}");
    assert_eq!(listed["more"], false);
}
