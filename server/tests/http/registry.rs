//! What the registry answers beside what the conformance suite asks: bounds, pages, filters, mounts, deletion.

use crate::support::{Running, http, put_manifest};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH, LINK, RANGE};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use symseal_bundle::Digest;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

struct Fixture {
    server: Running,
    http: Client,
    _root: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { server: Running::start(root.path()).await, http: http(), _root: root }
    }

    async fn get(&self, path: &str) -> Response {
        self.http.get(self.server.url(path)).send().await.unwrap()
    }

    async fn json(&self, path: &str) -> (Value, Option<String>) {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let next = answer.headers().get(LINK).map(|link| {
            let link = link.to_str().unwrap().strip_suffix("; rel=\"next\"").unwrap();
            link.trim_start_matches('<').trim_end_matches('>').to_owned()
        });
        (serde_json::from_str(&answer.text().await.unwrap()).unwrap(), next)
    }

    async fn status(&self, method: &str, path: &str) -> StatusCode {
        let method = method.parse().unwrap();
        self.http.request(method, self.server.url(path)).send().await.unwrap().status()
    }

    async fn blob(&self, repository: &str, bytes: &'static [u8]) -> Digest {
        let digest = Digest::of(bytes);
        let url = self.server.url(&format!("/v2/{repository}/blobs/uploads/?digest={digest}"));
        assert_eq!(self.http.post(url).body(bytes).send().await.unwrap().status(), StatusCode::CREATED);
        digest
    }

    async fn manifest(&self, repository: &str, reference: &str, manifest: &Value) -> Response {
        let url = self.server.url(&format!("/v2/{repository}/manifests/{reference}"));
        self.http.put(url).header(CONTENT_TYPE, MANIFEST).body(manifest.to_string()).send().await.unwrap()
    }

    /// Walks all pages of a list; its entries.
    async fn pages(&self, first: &str, list: &str, at_most: usize) -> Vec<Value> {
        let (mut found, mut next) = (Vec::new(), Some(first.to_owned()));
        while let Some(path) = next {
            let (page, link) = self.json(&path).await;
            let entries = page[list].as_array().unwrap().clone();
            assert!(entries.len() <= at_most, "{path}: {} entries", entries.len());
            found.extend(entries);
            next = link;
        }
        found
    }
}

/// A manifest with an empty configuration.
fn manifest(more: Value) -> Value {
    let config =
        json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}").to_string(), "size": 2});
    let mut manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []});
    manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

#[tokio::test]
async fn a_manifest_of_exactly_four_mebibytes_is_taken_and_given_back_and_one_byte_more_is_413() {
    let fixture = Fixture::new().await;
    fixture.blob("r", b"{}").await;
    let bare = manifest(json!({"annotations": {"filling": ""}})).to_string().len();
    for (size, expected) in [(4 << 20, StatusCode::CREATED), ((4 << 20) + 1, StatusCode::PAYLOAD_TOO_LARGE)] {
        let full = manifest(json!({"annotations": {"filling": "x".repeat(size - bare)}}));
        let answer = fixture.manifest("r", &format!("v{size}"), &full).await;
        assert_eq!(answer.status(), expected, "{size}");
        let got = fixture.get(&format!("/v2/r/manifests/v{size}")).await;
        assert_eq!(got.status().is_success(), expected.is_success());
        if expected.is_success() {
            let (expected, found) = (full.to_string(), got.text().await.unwrap());
            assert!(found == expected);
        }
    }
}

#[tokio::test]
async fn the_type_of_a_manifest_stays_as_it_was_published() {
    let fixture = Fixture::new().await;
    fixture.blob("r", b"{}").await;
    let mut silent = manifest(json!({}));
    silent.as_object_mut().unwrap().remove("mediaType");
    assert_eq!(fixture.manifest("r", "v1", &silent).await.status(), StatusCode::CREATED);
    let digest = Digest::of(silent.to_string().as_bytes());
    for reference in ["other", &digest.to_string()] {
        let url = fixture.server.url(&format!("/v2/r/manifests/{reference}"));
        let put = fixture.http.put(url).header(CONTENT_TYPE, "application/vnd.example+json").body(silent.to_string());
        let refused = put.send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let told = refused.text().await.unwrap();
        assert!(told.contains("MANIFEST_INVALID") && told.contains(MANIFEST), "{told}");
    }
    assert_eq!(fixture.manifest("r", "v2", &silent).await.status(), StatusCode::CREATED);
    for reference in ["v1", "v2"] {
        assert_eq!(fixture.get(&format!("/v2/r/manifests/{reference}")).await.headers()[CONTENT_TYPE], MANIFEST);
    }
}

#[tokio::test]
async fn a_manifest_comes_whole_and_not_packed_under_its_type_in_whatever_case() {
    let fixture = Fixture::new().await;
    let index = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    let put = async |headers: &[(&str, &str)]| {
        let request = fixture.http.put(fixture.server.url("/v2/app/manifests/1"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(index).send().await.unwrap().status()
    };
    assert_eq!(put(&[("content-range", "bytes 0-9/20")]).await, StatusCode::BAD_REQUEST);
    assert_eq!(put(&[("content-encoding", "gzip")]).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(fixture.get("/v2/app/manifests/1").await.status(), StatusCode::NOT_FOUND);
    let mixed = [("content-encoding", "identity"), ("content-type", "Application/vnd.OCI.image.index.v1+JSON")];
    assert_eq!(put(&mixed).await, StatusCode::CREATED);
    let found = fixture.get("/v2/app/manifests/1").await;
    assert_eq!(found.headers()["content-type"], "application/vnd.oci.image.index.v1+json");
    assert_eq!(found.text().await.unwrap(), index);
}

#[tokio::test]
async fn a_manifest_that_is_an_image_and_an_index_at_once_is_refused() {
    let fixture = Fixture::new().await;
    fixture.blob("r", b"{}").await;
    let image = manifest(json!({}));
    assert_eq!(fixture.manifest("r", "image", &image).await.status(), StatusCode::CREATED);
    let of_image = Digest::of(image.to_string().as_bytes()).to_string();
    let child = json!({ "mediaType": MANIFEST, "digest": of_image, "size": image.to_string().len() });
    let index = json!({ "schemaVersion": 2, "manifests": [child] });
    let both = |mut document: Value, field: &str, of: &Value| {
        document[field] = of[field].clone();
        document
    };
    let sent = async |document: &Value, media_type: &str| {
        let mut document = document.clone();
        document["mediaType"] = json!(media_type);
        let url = fixture.server.url("/v2/r/manifests/both");
        let put = fixture.http.put(url).header(CONTENT_TYPE, media_type).body(document.to_string());
        let answer = put.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let oci_index = "application/vnd.oci.image.index.v1+json";
    let list = "application/vnd.docker.distribution.manifest.list.v2+json";
    for (document, media_type) in [
        (both(index.clone(), "layers", &image), oci_index),
        (both(index.clone(), "config", &image), oci_index),
        (both(index.clone(), "config", &image), list),
        (both(image.clone(), "manifests", &index), MANIFEST),
        (both(image.clone(), "manifests", &index), "application/vnd.docker.distribution.manifest.v2+json"),
        (image.clone(), oci_index),
        (index.clone(), MANIFEST),
    ] {
        let (status, told) = sent(&document, media_type).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{media_type} {document}");
        assert!(told.contains("MANIFEST_INVALID") && told.contains(media_type), "{told}");
        let fields = ["layers", "config", "manifests"].into_iter().filter(|field| !document[field].is_null());
        let named = fields.filter(|field| told.contains(&format!("\\\"{field}\\\""))).count();
        assert!(named > 0, "{told}");
        assert_eq!(fixture.get("/v2/r/manifests/both").await.status(), StatusCode::NOT_FOUND);
    }
    for media_type in [oci_index, list] {
        assert_eq!(sent(&index, media_type).await.0, StatusCode::CREATED, "{media_type}");
    }
}

#[tokio::test]
async fn a_sha512_names_blobs_and_manifests_and_comes_back_in_the_header() {
    let fixture = Fixture::new().await;
    let name = |bytes: &[u8]| {
        let hex: String = Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha512:{hex}")
    };
    let digest = name(b"{}");
    // Announced at the start, and computed on the way.
    let session = fixture.http.post(fixture.server.url("/v2/r/blobs/uploads/?digest-algorithm=sha512"));
    let session = session.send().await.unwrap();
    let at = session.headers()["location"].to_str().unwrap().to_owned();
    let put = fixture.http.put(fixture.server.url(&format!("{at}?digest={digest}"))).body("{}");
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    let wrong = fixture.http.post(fixture.server.url(&format!("/v2/r/blobs/uploads/?digest={}", name(b"other"))));
    assert_eq!(wrong.body("{}").send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let unknown = fixture.status("POST", "/v2/r/blobs/uploads/?digest-algorithm=md5").await;
    assert_eq!(unknown, StatusCode::BAD_REQUEST);

    let blob = fixture.get(&format!("/v2/r/blobs/{digest}")).await;
    assert_eq!(blob.headers()["docker-content-digest"], digest.as_str());
    // The same bytes by their other name were not pushed.
    assert_eq!(fixture.status("HEAD", &format!("/v2/r/blobs/{}", Digest::of(b"{}"))).await, StatusCode::NOT_FOUND);
    let mut manifest = manifest(json!({}));
    manifest["config"]["digest"] = json!(digest);
    let by_digest = name(manifest.to_string().as_bytes());
    let put = fixture.manifest("r", &by_digest, &manifest).await;
    assert_eq!(
        (put.status(), &put.headers()["docker-content-digest"]),
        (StatusCode::CREATED, &by_digest.parse().unwrap())
    );
    let got = fixture.get(&format!("/v2/r/manifests/{by_digest}")).await;
    assert_eq!(got.headers()["docker-content-digest"], by_digest.as_str());
    assert_eq!(got.text().await.unwrap(), manifest.to_string());
}

#[tokio::test]
async fn what_is_not_as_the_client_expects_it_is_not_changed() {
    let fixture = Fixture::new().await;
    fixture.blob("r", b"{}").await;
    let [first, second] = [json!({}), json!({"annotations": {"a": "b"}})].map(|more| manifest(more).to_string());
    let tag = |bytes: &str| format!("\"{}\"", Digest::of(bytes.as_bytes()));
    let url = fixture.server.url("/v2/r/manifests/one");
    let put = async |bytes: &str, name: HeaderName, value: &str| {
        let put = fixture.http.put(&url).header(CONTENT_TYPE, MANIFEST).header(name, value);
        put.body(bytes.to_owned()).send().await.unwrap().status()
    };
    assert_eq!(put(&first, IF_MATCH, "*").await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put(&first, IF_NONE_MATCH, "*").await, StatusCode::CREATED);
    assert_eq!(put(&second, IF_NONE_MATCH, "*").await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put(&second, IF_MATCH, &tag(&second)).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(fixture.get("/v2/r/manifests/one").await.text().await.unwrap(), first);
    assert_eq!(put(&second, IF_MATCH, &tag(&first)).await, StatusCode::CREATED);
    let delete = async |value: &str| fixture.http.delete(&url).header(IF_MATCH, value).send().await.unwrap().status();
    assert_eq!(delete(&tag(&first)).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(delete(&tag(&second)).await, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn the_catalog_and_the_tags_come_in_pages_of_the_size_asked_for() {
    let fixture = Fixture::new().await;
    let repositories = ["a", "a/b", "a-b", "team/x", "z"];
    for name in repositories {
        fixture.blob(name, b"{}").await;
        // A repository with blobs alone is not listed.
        assert_eq!(
            fixture.json("/v2/_catalog").await.0["repositories"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|found| *found == name)
                .count(),
            0
        );
        assert_eq!(fixture.manifest(name, "one", &manifest(json!({}))).await.status(), StatusCode::CREATED);
    }
    let mut sorted = repositories.map(Value::from);
    sorted.sort_by_key(|name| name.as_str().unwrap().to_owned());
    for size in 1..=6 {
        assert_eq!(fixture.pages(&format!("/v2/_catalog?n={size}"), "repositories", size).await, sorted);
    }
    for tag in ["two", "Zwei", "10", "_x"] {
        fixture.manifest("a/b", tag, &manifest(json!({}))).await;
    }
    for size in 1..=6 {
        let tags = fixture.pages(&format!("/v2/a/b/tags/list?n={size}"), "tags", size).await;
        assert_eq!(tags, ["10", "Zwei", "_x", "one", "two"].map(Value::from));
    }
    assert_eq!(fixture.json("/v2/a/b/tags/list?n=0").await, (json!({"name": "a/b", "tags": []}), None));
    assert_eq!(fixture.get("/v2/_catalog?n=x").await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn many_referrers_come_in_pages_and_by_type() {
    let fixture = Fixture::new().await;
    fixture.blob("r", b"{}").await;
    let subject = manifest(json!({}));
    let digest = Digest::of(subject.to_string().as_bytes());
    let descriptor = json!({"mediaType": MANIFEST, "digest": digest.to_string(), "size": subject.to_string().len()});
    // Above what one page holds; some carry so much that a page is full of bytes before.
    let mut kinds = [0, 0];
    for number in 0..620 {
        let text = if number % 100 == 0 { "y".repeat(600_000) } else { number.to_string() };
        let kind = ["application/vnd.example.a+json", "application/vnd.example.b+json"][usize::from(number % 3 == 0)];
        kinds[usize::from(number % 3 == 0)] += 1;
        let more = json!({"subject": descriptor, "artifactType": kind, "annotations": {"text": text, "n": number.to_string()}});
        let put = fixture.manifest("r", &format!("t{number}"), &manifest(more)).await;
        assert_eq!(
            (put.status(), &put.headers()["oci-subject"]),
            (StatusCode::CREATED, &digest.to_string().parse().unwrap())
        );
    }
    let path = format!("/v2/r/referrers/{digest}");
    let all = fixture.pages(&path, "manifests", 500).await;
    assert_eq!(all.len(), 620);
    let mut numbers: Vec<u32> =
        all.iter().map(|found| found["annotations"]["n"].as_str().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..620).collect::<Vec<_>>());
    // No page is larger than what clients read.
    let mut next = Some(path.clone());
    while let Some(page) = next {
        assert!(fixture.get(&page).await.text().await.unwrap().len() < 4 << 20);
        next = fixture.json(&page).await.1;
    }
    for (kind, count) in ["a", "b"].into_iter().zip(kinds) {
        let filtered = format!("{path}?artifactType=application%2Fvnd.example.{kind}%2Bjson");
        assert_eq!(fixture.get(&filtered).await.headers()["oci-filters-applied"], "artifactType");
        let found = fixture.pages(&filtered, "manifests", 500).await;
        assert_eq!(found.len(), count);
        let kind = format!("application/vnd.example.{kind}+json");
        assert!(found.iter().all(|found| found["artifactType"] == kind.as_str()));
    }
    assert_eq!(fixture.pages(&format!("{path}?artifactType=other/type"), "manifests", 0).await, Vec::<Value>::new());
}

#[tokio::test]
async fn what_a_manifest_names_is_deleted_after_it_and_not_before() {
    let fixture = Fixture::new().await;
    let config = fixture.blob("r", b"{}").await;
    let child = manifest(json!({}));
    assert_eq!(fixture.manifest("r", "child", &child).await.status(), StatusCode::CREATED);
    let child_digest = Digest::of(child.to_string().as_bytes());
    let index_type = "application/vnd.oci.image.index.v1+json";
    let descriptor =
        json!({"mediaType": MANIFEST, "digest": child_digest.to_string(), "size": child.to_string().len()});
    let index = json!({"schemaVersion": 2, "mediaType": index_type, "manifests": [descriptor]}).to_string();
    let url = fixture.server.url("/v2/r/manifests/index");
    let put = fixture.http.put(url).header(CONTENT_TYPE, index_type).body(index.clone()).send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);

    let (config, child) = (format!("/v2/r/blobs/{config}"), format!("/v2/r/manifests/{child_digest}"));
    let index = format!("/v2/r/manifests/{}", Digest::of(index.as_bytes()));
    for (refused, others) in [(&config, "GET, HEAD"), (&child, "GET, HEAD, PUT")] {
        let answer = fixture.http.delete(fixture.server.url(refused)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()["allow"], others, "RFC 9110, 15.5.6");
        assert_eq!(fixture.status("GET", refused).await, StatusCode::OK);
    }
    let answer = fixture.http.patch(fixture.server.url("/v2/r/tags/list")).send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["allow"]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
    );
    // A tag goes alone.
    assert_eq!(fixture.status("DELETE", "/v2/r/manifests/child").await, StatusCode::ACCEPTED);
    for (order, path) in [&index, &child, &config].into_iter().enumerate() {
        assert_eq!(fixture.status("DELETE", path).await, StatusCode::ACCEPTED, "{order}");
        assert_eq!(fixture.status("GET", path).await, StatusCode::NOT_FOUND, "{order}");
        assert_eq!(fixture.status("DELETE", path).await, StatusCode::NOT_FOUND, "{order}");
    }
}

#[tokio::test]
async fn a_mount_takes_what_the_named_repository_has_and_nothing_else() {
    let fixture = Fixture::new().await;
    let digest = fixture.blob("source", b"shared bytes").await;
    let mount =
        |query: String| fixture.http.post(fixture.server.url(&format!("/v2/target/blobs/uploads/?{query}"))).send();
    for from in ["other", "Not%20a%20name", "../source"] {
        let answer = mount(format!("mount={digest}&from={from}")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED, "{from}");
        assert_eq!(fixture.status("HEAD", &format!("/v2/target/blobs/{digest}")).await, StatusCode::NOT_FOUND);
    }
    assert_eq!(mount(format!("mount={digest}&from=source")).await.unwrap().status(), StatusCode::CREATED);
    // It stays when the source lets go.
    assert_eq!(fixture.status("DELETE", &format!("/v2/source/blobs/{digest}")).await, StatusCode::ACCEPTED);
    let path = format!("/v2/target/blobs/{digest}");
    let head = fixture.http.head(fixture.server.url(&path)).send().await.unwrap();
    assert_eq!(head.headers()[CONTENT_LENGTH], "12");
    let part = fixture.http.get(fixture.server.url(&path)).header(RANGE, "bytes=-5").send().await.unwrap();
    assert_eq!((part.status(), part.text().await.unwrap()), (StatusCode::PARTIAL_CONTENT, "bytes".to_owned()));
    // Without a name, from wherever it is.
    assert_eq!(mount(format!("mount={digest}")).await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn annotations_that_are_long_are_listed_as_they_were_sent_and_types_that_are_long_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let (http, mut server) = (http(), Running::start(root.path()).await);
    let subject = put_manifest(&http, &server, "r", &json!({})).await.unwrap();
    let mut expected: Vec<(String, Value)> = Vec::new();
    // Fewer bytes than are kept in memory, more, and so many that a page has no room for two.
    for (at, bytes) in [100, 5_000, 1_500_000, 1_500_001].into_iter().enumerate() {
        let annotations = json!({ "note": "x".repeat(bytes), "at": at.to_string() });
        let referring = json!({ "subject": subject, "annotations": annotations });
        let descriptor = put_manifest(&http, &server, "r", &referring).await.unwrap();
        expected.push((descriptor["digest"].as_str().unwrap().to_owned(), annotations));
    }
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    for _ in 0..2 {
        let (mut found, mut pages) = (Vec::new(), 0);
        let mut next = Some(format!("/v2/r/referrers/{}", subject["digest"].as_str().unwrap()));
        while let Some(path) = next {
            let answer = http.get(server.url(&path)).send().await.unwrap();
            next = answer.headers().get(LINK).map(|link| {
                let link = link.to_str().unwrap().trim_start_matches('<');
                link.split_once('>').unwrap().0.to_owned()
            });
            let index: Value = answer.json().await.unwrap();
            for it in index["manifests"].as_array().unwrap() {
                found.push((it["digest"].as_str().unwrap().to_owned(), it["annotations"].clone()));
            }
            pages += 1;
        }
        assert!(found == expected && pages > 1, "{pages} pages with {} referrers", found.len());
        // What was read again at a start is listed as well.
        server.stop().await;
        server = Running::start(root.path()).await;
    }
    let typed = |bytes: usize| json!({ "artifactType": "x".repeat(bytes) });
    put_manifest(&http, &server, "r", &typed(255)).await.unwrap();
    assert_eq!(put_manifest(&http, &server, "r", &typed(256)).await.unwrap_err(), StatusCode::BAD_REQUEST);
    server.stop().await;
}
