//! What the repositories below a prefix may hold.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use symseal_bundle::{Digest, oci};
use symseal_server::{Config, QuotaConfig};

use crate::support::{Running, http, noise};

pub(crate) const LIMIT: u64 = 1_000_000;

pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    quotas: Vec<QuotaConfig>,
    pub(crate) http: Client,
}

impl Scene {
    pub(crate) fn new(quotas: &[(&str, Option<u64>, Option<u64>)]) -> Self {
        let quota = |(prefix, bytes, bundles): &(&str, _, _)| QuotaConfig {
            prefix: prefix.parse().unwrap(),
            bytes: *bytes,
            bundles: *bundles,
        };
        Self { root: tempfile::tempdir().unwrap(), quotas: quotas.iter().map(quota).collect(), http: http() }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.root.path(), ([127, 0, 0, 1], 0).into());
        config.quotas = self.quotas.clone();
        config
    }

    pub(crate) async fn start(&self) -> Running {
        Running::start_as(self.config()).await
    }

    pub(crate) async fn push(&self, server: &Running, repository: &str, bytes: &[u8]) -> Response {
        let url = server.url(&format!("/v2/{repository}/blobs/uploads/?digest={}", Digest::of(bytes)));
        self.http.post(url).body(bytes.to_vec()).send().await.unwrap()
    }

    async fn manifest(&self, server: &Running, repository: &str, tag: &str, kind: &str, text: &str) -> Response {
        let url = server.url(&format!("/v2/{repository}/manifests/{tag}"));
        self.http.put(url).header(CONTENT_TYPE, kind).body(text.to_owned()).send().await.unwrap()
    }

    pub(crate) async fn metric(&self, server: &Running, name: &str) -> u64 {
        let text = self.http.get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

fn manifest(layers: &[&[u8]]) -> String {
    let layers: Vec<_> = layers
        .iter()
        .map(|bytes| json!({"mediaType": "a/b", "digest": Digest::of(bytes).to_string(), "size": bytes.len()}))
        .collect();
    json!({"schemaVersion": 2, "mediaType": oci::MANIFEST, "artifactType": "a/b", "layers": layers}).to_string()
}

pub(crate) async fn refused(answer: Response, status: StatusCode) -> String {
    assert_eq!(answer.status(), status);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["errors"][0]["code"], "DENIED", "{body}");
    body["errors"][0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_push_above_the_quota_is_refused_before_its_bytes_and_leaves_nothing() {
    let scene = Scene::new(&[("team", Some(LIMIT), None), ("*", Some(10 * LIMIT), None)]);
    let server = scene.start().await;
    let (first, second) = (noise(600_000, 1), noise(500_000, 2));
    assert_eq!(scene.push(&server, "team/a", &first).await.status(), StatusCode::CREATED);
    let large = scene.push(&server, "team/b", &second).await;
    let message = refused(large, StatusCode::PAYLOAD_TOO_LARGE).await;
    for part in ["team", "1000000", "600000", "500000", "quotas.bytes", "operator"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let head = scene.http.head(server.url(&format!("/v2/team/b/blobs/{}", Digest::of(&second))));
    assert_eq!(head.send().await.unwrap().status(), StatusCode::NOT_FOUND);
    // Where its length is not announced it is refused when it has come.
    let chunks: Vec<_> = second.chunks(50_000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
    let url = server.url(&format!("/v2/team/b/blobs/uploads/?digest={}", Digest::of(&second)));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    refused(scene.http.post(url).body(body).send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE).await;
    // What is there already costs nothing, another repository has to pay for it too, be it mounted or sent; elsewhere there is room.
    assert_eq!(scene.push(&server, "team/a", &first).await.status(), StatusCode::CREATED);
    let mount = server.url(&format!("/v2/team/b/blobs/uploads/?mount={}&from=team/a", Digest::of(&first)));
    refused(scene.http.post(mount).send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!(scene.push(&server, "teams", &second).await.status(), StatusCode::CREATED);
    assert_eq!(scene.push(&server, "team/b", &noise(400_000, 3)).await.status(), StatusCode::CREATED);
    assert_eq!(scene.metric(&server, "symseal_quota_bytes{prefix=\"team\"}").await, LIMIT);
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"team\"}").await, 1_000_000);
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"*\"}").await, 1_500_000);
    assert_eq!(scene.metric(&server, "symseal_over_quota_total").await, 3);
    // Full to the last byte: a manifest has no room, and is not seen by its tag.
    let text = manifest(&[&first]);
    let full = scene.manifest(&server, "team/a", "v1", oci::MANIFEST, &text).await;
    refused(full, StatusCode::PAYLOAD_TOO_LARGE).await;
    let tags = scene.http.get(server.url("/v2/team/a/tags/list")).send().await.unwrap().text().await.unwrap();
    assert!(!tags.contains("v1"), "{tags}");
    // What is deleted makes room.
    let blob = server.url(&format!("/v2/team/b/blobs/{}", Digest::of(&noise(400_000, 3))));
    assert_eq!(scene.http.delete(blob).send().await.unwrap().status(), StatusCode::ACCEPTED);
    let stored = scene.manifest(&server, "team/a", "v1", oci::MANIFEST, &text).await;
    assert_eq!(stored.status(), StatusCode::CREATED);
    let held = 600_000 + text.len() as u64;
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"team\"}").await, held);
    server.stop().await;

    // After a restart it is the same, and the command beside the server says so too.
    let server = scene.start().await;
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"team\"}").await, held);
    let config = scene.config();
    let found = tokio::task::spawn_blocking(move || symseal_server::usage(&config)).await.unwrap().unwrap();
    assert_eq!((found.quotas[0].bytes, found.quotas[0].bytes_limit), (held, Some(LIMIT)));
    assert_eq!((found.repositories[0].name.as_str(), found.repositories[0].bytes), ("team/a", held));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_at_the_same_time_do_not_fit_each_by_itself_and_together_not() {
    let scene = Scene::new(&[("r", Some(LIMIT), None)]);
    let server = scene.start().await;
    let blobs: Vec<Vec<u8>> = (0..20).map(|seed| noise(150_000, seed)).collect();
    let pushes = blobs.iter().map(|bytes| scene.push(&server, "r", bytes));
    let answers = futures_util::future::join_all(pushes).await;
    let stored = answers.iter().filter(|answer| answer.status() == StatusCode::CREATED).count();
    let refused = answers.iter().filter(|answer| answer.status() == StatusCode::PAYLOAD_TOO_LARGE).count();
    assert_eq!(stored + refused, 20);
    let held = scene.metric(&server, "symseal_quota_bytes_held{prefix=\"r\"}").await;
    assert!(held == 150_000 * stored as u64 && held <= LIMIT, "{held}");
    // What was refused for another's sake finds room now, up to the quota.
    for bytes in &blobs {
        scene.push(&server, "r", bytes).await;
    }
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"r\"}").await, 900_000);
    server.stop().await;
}

#[tokio::test]
async fn a_bundle_too_many_is_refused_with_its_manifest_and_other_artifacts_are_not() {
    let scene = Scene::new(&[("r", None, Some(1))]);
    let server = scene.start().await;
    // Bundles are checked when they come: one that is none is refused for that, and does not count.
    let broken =
        json!({"schemaVersion": 2, "mediaType": oci::IMAGE_INDEX, "artifactType": oci::BUNDLE, "manifests": []});
    let answer = scene.manifest(&server, "r", "1", oci::IMAGE_INDEX, &broken.to_string()).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(scene.metric(&server, "symseal_quota_bundles_held{prefix=\"r\"}").await, 0);
    let layouts = tempfile::tempdir().unwrap();
    let source = layouts.path().join("app.c");
    let binary = layouts.path().join("app");
    if !crate::support::programs::has("gcc") {
        return;
    }
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    crate::support::programs::run("gcc", &["-g", "-o", binary.to_str().unwrap(), source.to_str().unwrap()]);
    let mut refusals = Vec::new();
    for version in ["1", "2"] {
        let layout = symseal_bundle::LayoutDir::create(layouts.path().join(version)).unwrap();
        let release = symseal_builder::Options { name: "app".into(), version: version.into(), ..Default::default() };
        let built = symseal_builder::SymbolBundleBuilder::new(release).add_path(&binary).build(&layout).unwrap();
        let to = server.reference(&format!("r:{version}"));
        if let Err(error) = symseal_registry::push(&layout, &built.digest, &to, &crate::support::options()).await {
            refusals.push((version, error.to_string()));
        }
        if version == "1" {
            // Again, and under another tag: it is the same bundle.
            let to = server.reference("r:again");
            symseal_registry::push(&layout, &built.digest, &to, &crate::support::options()).await.unwrap();
        }
    }
    let [("2", message)] = refusals.as_slice() else { panic!("{refusals:?}") };
    assert!(message.contains("may hold 1 bundles") && message.contains("quotas.bundles"), "{message}");
    assert_eq!(scene.metric(&server, "symseal_quota_bundles_held{prefix=\"r\"}").await, 1);
    let tags = scene.http.get(server.url("/v2/r/tags/list")).send().await.unwrap().text().await.unwrap();
    assert!(!tags.contains("\"2\""), "{tags}");
    server.stop().await;
}

#[tokio::test]
async fn a_bundle_that_is_deleted_makes_room_at_once_and_costs_the_same_when_it_is_pushed_again() {
    if !crate::support::programs::has("gcc") {
        return;
    }
    let scene = Scene::new(&[("app", Some(10 * LIMIT), None)]);
    let server = scene.start().await;
    let root = tempfile::tempdir().unwrap();
    let (source, binary) = (root.path().join("app.c"), root.path().join("app"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    crate::support::programs::run("gcc", &["-g", "-o", binary.to_str().unwrap(), source.to_str().unwrap()]);
    let held = async |server: &Running| scene.metric(server, "symseal_quota_bytes_held{prefix=\"app\"}").await;
    let digest = crate::support::programs::publish(&server, root.path(), "1", &[&binary]).await;
    let whole = held(&server).await;
    assert!(whole > std::fs::metadata(&binary).unwrap().len(), "{whole}");
    // No collector runs here, as none does behind an object store.
    let url = server.url(&format!("/v2/app/manifests/{digest}"));
    assert_eq!(scene.http.delete(&url).send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(held(&server).await, 0);
    server.stop().await;
    let server = scene.start().await;
    assert_eq!(held(&server).await, 0);
    let layout = symseal_bundle::LayoutDir::open(root.path().join("layout-1")).unwrap();
    let to = server.reference("app:1");
    symseal_registry::push(&layout, &digest, &to, &crate::support::options()).await.unwrap();
    assert_eq!(held(&server).await, whole);
    server.stop().await;
}

#[tokio::test]
async fn what_a_deletion_left_cannot_be_taken_back_above_the_quota() {
    let scene = Scene::new(&[("r", Some(LIMIT), None)]);
    let server = scene.start().await;
    let (first, second) = (noise(600_000, 1), noise(600_000, 2));
    let (one, two) = (manifest(&[&first]), manifest(&[&second]));
    for (bytes, text, tag) in [(&first, &one, "1"), (&second, &two, "2")] {
        assert_eq!(scene.push(&server, "r", bytes).await.status(), StatusCode::CREATED);
        assert_eq!(scene.manifest(&server, "r", tag, oci::MANIFEST, text).await.status(), StatusCode::CREATED);
        let url = server.url(&format!("/v2/r/manifests/{}", Digest::of(text.as_bytes())));
        assert_eq!(scene.http.delete(url).send().await.unwrap().status(), StatusCode::ACCEPTED);
        assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"r\"}").await, 0);
    }
    // Both blobs are here still, and only one of them fits.
    assert_eq!(scene.manifest(&server, "r", "1", oci::MANIFEST, &one).await.status(), StatusCode::CREATED);
    refused(scene.manifest(&server, "r", "2", oci::MANIFEST, &two).await, StatusCode::PAYLOAD_TOO_LARGE).await;
    server.stop().await;
}

#[tokio::test]
async fn what_uploads_have_brought_counts_until_they_end() {
    let scene = Scene::new(&[("team", Some(LIMIT), None)]);
    let server = scene.start().await;
    let begin = async || {
        let answer = scene.http.post(server.url("/v2/team/a/blobs/uploads/")).send().await.unwrap();
        server.url(answer.headers()["location"].to_str().unwrap())
    };
    let send = async |at: &str, bytes: Vec<u8>| scene.http.patch(at).body(bytes).send().await.unwrap();
    let (one, two) = (begin().await, begin().await);
    assert_eq!(send(&one, noise(400_000, 1)).await.status(), StatusCode::ACCEPTED);
    assert_eq!(send(&two, noise(400_000, 2)).await.status(), StatusCode::ACCEPTED);
    let three = begin().await;
    refused(send(&three, noise(400_000, 3)).await, StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_unfinished{prefix=\"team\"}").await, 800_000);
    let direct = scene.push(&server, "team/b", &noise(400_000, 3)).await;
    refused(direct, StatusCode::PAYLOAD_TOO_LARGE).await;
    // One goes on with what it has, another is cancelled: then there is room again.
    assert_eq!(send(&one, noise(100_000, 4)).await.status(), StatusCode::ACCEPTED);
    assert_eq!(scene.http.delete(&two).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    // What was refused has ended.
    assert_eq!(send(&three, noise(400_000, 3)).await.status(), StatusCode::NOT_FOUND);
    let three = begin().await;
    assert_eq!(send(&three, noise(400_000, 3)).await.status(), StatusCode::ACCEPTED);
    // What became a blob counts once.
    let whole = [noise(400_000, 1), noise(100_000, 4)].concat();
    let end = format!("{one}?digest={}", Digest::of(&whole));
    assert_eq!(scene.http.put(end).send().await.unwrap().status(), StatusCode::CREATED);
    let end = format!("{three}?digest={}", Digest::of(&noise(400_000, 3)));
    assert_eq!(scene.http.put(end).send().await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(scene.metric(&server, "symseal_quota_bytes_held{prefix=\"team\"}").await, 900_000);
    // No manifest names them yet.
    let config = scene.config();
    let found = tokio::task::spawn_blocking(move || symseal_server::usage(&config)).await.unwrap().unwrap();
    assert_eq!((found.quotas[0].bytes, found.quotas[0].unnamed, found.quotas[0].unfinished), (0, 900_000, 0));
    assert_eq!((found.repositories[0].name.as_str(), found.repositories[0].unnamed), ("team/a", 900_000));
    assert_eq!(scene.push(&server, "team/b", &noise(100_000, 5)).await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn an_upload_that_is_refused_for_the_quota_leaves_its_place_to_others_and_what_is_left_is_told() {
    let scene = Scene::new(&[("team", Some(LIMIT), None)]);
    let server = scene.start().await;
    let begin = async || {
        let answer = scene.http.post(server.url("/v2/team/a/blobs/uploads/")).send().await.unwrap();
        server.url(answer.headers()["location"].to_str().unwrap())
    };
    // Without a length, so that most of it is there before it is seen to be too much.
    let chunked = |bytes: &[u8]| {
        let chunks: Vec<_> = bytes.chunks(50_000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        reqwest::Body::wrap_stream(futures_util::stream::iter(chunks))
    };
    let unfinished = async || scene.metric(&server, "symseal_quota_bytes_unfinished{prefix=\"team\"}").await;
    let (at, large) = (begin().await, noise(1_400_000, 1));
    let first = scene.http.patch(&at).body(chunked(&large[..700_000])).send().await.unwrap();
    assert_eq!((first.status(), unfinished().await), (StatusCode::ACCEPTED, 700_000));
    let config = scene.config();
    let found = tokio::task::spawn_blocking(move || symseal_server::usage(&config)).await.unwrap().unwrap();
    assert_eq!((found.quotas[0].bytes, found.quotas[0].unfinished), (0, 700_000));
    assert_eq!((found.repositories[0].name.as_str(), found.repositories[0].unfinished), ("team/a", 700_000));
    let message = refused(scene.push(&server, "team/b", &noise(500_000, 2)).await, StatusCode::PAYLOAD_TOO_LARGE).await;
    for part in ["hold 0", "not finished have 700000", "500000 more", "cancel"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let second = scene.http.patch(&at).body(chunked(&large[700_000..])).send().await.unwrap();
    assert!(!second.headers().contains_key("location"));
    refused(second, StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!((unfinished().await, scene.http.get(&at).send().await.unwrap().status()), (0, StatusCode::NOT_FOUND));
    // So it is where the last request is the one that is too much.
    let at = begin().await;
    let end = format!("{at}?digest={}", Digest::of(&large));
    refused(scene.http.put(end).body(chunked(&large)).send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!((unfinished().await, scene.http.get(&at).send().await.unwrap().status()), (0, StatusCode::NOT_FOUND));
    assert_eq!(std::fs::read_dir(scene.root.path().join("repositories/team/a/_uploads")).unwrap().count(), 0);
    assert_eq!(scene.push(&server, "team/b", &noise(LIMIT as usize, 3)).await.status(), StatusCode::CREATED);
    server.stop().await;
}
