//! A bundle of compiled programs, as debuginfod clients see it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::programs::{Fixture, has, publish, run};
use crate::support::{Running, http, options};
use reqwest::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use reqwest::{Method, StatusCode};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::push;
use symseal_server::Config;

const PROGRAM: &str = "int twice(int x) { return 2 * x; } int main(void) { return twice(3) - 6; }\n";

/// A program with the build-id `id` and debug information as `flags` say.
fn compile(folder: &Path, name: &str, id: &str, flags: &[&str]) -> PathBuf {
    let (source, binary) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let id = format!("-Wl,--build-id=0x{id}");
    let mut arguments = vec![source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id];
    arguments.extend(flags);
    run("cc", &arguments);
    binary
}

#[tokio::test]
async fn an_unstripped_program_answers_both_and_a_stripped_one_only_as_executable() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let full = compile(fixture.root.path(), "full", "abcdef01", &["-g"]);
    let stripped = compile(fixture.root.path(), "stripped", "abcdef02", &["-s"]);
    publish(&fixture.server, fixture.root.path(), "1", &[&full, &stripped]).await;

    let bytes = std::fs::read(&full).unwrap();
    for kind in ["debuginfo", "executable"] {
        let answer = fixture.get(&format!("/buildid/ABCDEF01/{kind}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let headers = answer.headers().clone();
        assert_eq!(headers["x-debuginfod-size"], bytes.len().to_string().as_str());
        assert_eq!(headers[CONTENT_LENGTH], bytes.len().to_string().as_str());
        assert_eq!(headers["x-debuginfod-file"], "full");
        assert_eq!(headers["x-debuginfod-sha256"], Digest::of(&bytes).hex().as_str());
        assert_eq!(headers[ACCEPT_RANGES], "bytes");
        assert_eq!(headers["cache-control"], "public, max-age=3600");
        assert!(headers.contains_key(LAST_MODIFIED) && headers.contains_key("repr-digest"));
        assert!(answer.bytes().await.unwrap() == bytes);
    }
    let executable = fixture.get("/buildid/abcdef02/executable").await;
    assert!(executable.bytes().await.unwrap() == std::fs::read(&stripped).unwrap());
    let missing = fixture.get("/buildid/abcdef02/debuginfo").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(missing.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));

    for path in [
        "/buildid/abcdef03/debuginfo",
        "/buildid/abc/debuginfo",
        "/buildid/xyz/executable",
        "/buildid/abcdef01/source/a.c",
        "/buildid/abcdef01/debuginfo//",
        "//buildid/abcdef01/debuginfo",
        "/buildid/../buildid/abcdef01/debuginfo/x",
        "/buildid/abcdef01/section/.nothing",
    ] {
        assert_eq!(fixture.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let post = fixture.http.post(fixture.server.url("/buildid/abcdef01/debuginfo")).send().await.unwrap();
    assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(fixture.get("/").await.text().await.unwrap().starts_with("debuginfod ("));
    let metrics = fixture.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("symseal_build_ids 2\n"), "{metrics}");
}

/// What a browser asks before it lets a page of another origin read, and what it holds the answer against (Fetch Standard).
#[tokio::test]
async fn pages_of_other_origins_read_where_the_operator_lets_them_and_send_no_token() {
    if !has("cc") {
        return;
    }
    for is_open in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let mut config = Config::new(root.path().join("data"), ([127, 0, 0, 1], 0).into());
        config.cors = is_open;
        let fixture = Fixture { server: Running::start_as(config).await, http: http(), root };
        let full = compile(fixture.root.path(), "full", "abcdef01", &["-g"]);
        publish(&fixture.server, fixture.root.path(), "1", &[&full]).await;
        for path in
            ["/buildid/abcdef01/debuginfo", "/s/app/buildid/abcdef01/debuginfo", "/metadata?key=file&value=full"]
        {
            let url = fixture.server.url(path);
            let asked = fixture.http.request(Method::OPTIONS, &url).header("origin", "https://page.example");
            let asked = asked.header("access-control-request-method", "GET");
            let asked = asked.header("access-control-request-headers", "range, authorization").send().await.unwrap();
            let answer = fixture.http.get(&url).header("origin", "https://page.example").send().await.unwrap();
            let missing = fixture.get("/buildid/abcdef02/debuginfo").await;
            let allows = |answer: &reqwest::Response| {
                answer.headers().get("access-control-allow-origin").is_some_and(|origin| origin == "*")
            };
            assert_eq!((answer.status(), missing.status()), (StatusCode::OK, StatusCode::NOT_FOUND), "{path}");
            assert_eq!((allows(&answer), allows(&missing), allows(&asked)), (is_open, is_open, is_open), "{path}");
            assert!(!asked.headers().contains_key("access-control-allow-credentials"));
            if !is_open {
                assert_eq!(asked.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
                continue;
            }
            assert_eq!(asked.status(), StatusCode::NO_CONTENT, "{path}");
            assert_eq!(asked.headers()["access-control-allow-methods"], "GET, HEAD, OPTIONS");
            let headers = asked.headers()["access-control-allow-headers"].to_str().unwrap();
            assert!(headers.contains("range") && !headers.contains("authorization"), "{headers}");
            assert_eq!(answer.headers()["access-control-expose-headers"], "*");
        }
        let url = fixture.server.url("/api/v1/bundles?debug_id=abcdef01");
        let other = fixture.http.get(&url).header("origin", "https://page.example").send().await.unwrap();
        assert!(!other.headers().contains_key("access-control-allow-origin"), "the rest is not for pages");
    }
}

#[tokio::test]
async fn head_ranges_and_conditions_follow_http() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let full = compile(fixture.root.path(), "full", "abcdef01", &["-g"]);
    publish(&fixture.server, fixture.root.path(), "1", &[&full]).await;
    let bytes = std::fs::read(&full).unwrap();
    let url = fixture.server.url("/buildid/abcdef01/debuginfo");

    let head = fixture.http.head(&url).send().await.unwrap();
    assert_eq!(
        (head.status(), &head.headers()[CONTENT_LENGTH]),
        (StatusCode::OK, &bytes.len().to_string().parse().unwrap())
    );
    let etag = head.headers()[ETAG].clone();
    let modified = head.headers()[LAST_MODIFIED].clone();

    let unchanged = fixture.http.get(&url).header(IF_NONE_MATCH, &etag).send().await.unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
    let unchanged = fixture.http.get(&url).header("if-modified-since", &modified).send().await.unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);

    // symbolicator asks for the first 128 MiB and reads the total from the answer.
    let part = fixture.http.get(&url).header(RANGE, "bytes=0-134217727").send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()[CONTENT_RANGE], format!("bytes 0-{}/{}", bytes.len() - 1, bytes.len()).as_str());
    assert!(part.bytes().await.unwrap() == bytes);
    let request = |if_range: &str| fixture.http.get(&url).header(RANGE, "bytes=1-3").header(IF_RANGE, if_range).send();
    assert_eq!(request(etag.to_str().unwrap()).await.unwrap().status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(request("\"other\"").await.unwrap().status(), StatusCode::OK);

    let limited = |limit: u64| fixture.http.get(&url).header("X-DEBUGINFOD-MAXSIZE", limit).send();
    let refused = limited(100).await.unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(refused.text().await.unwrap(), "File too large, max size=100\n");
    assert_eq!(limited(bytes.len() as u64).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_cache_that_asks_again_for_an_id_hears_of_another_file_and_what_has_its_digest_in_the_path_is_kept() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let poor = std::fs::read(compile(fixture.root.path(), "poor", "abcdef01", &["-g1"])).unwrap();
    let rich = std::fs::read(compile(fixture.root.path(), "rich", "abcdef01", &["-g3"])).unwrap();
    let upload = async |bytes: &Vec<u8>| {
        let put = fixture.http.put(fixture.server.url("/api/v1/symbols?name=app")).body(bytes.clone());
        let answer: serde_json::Value = put.send().await.unwrap().json().await.unwrap();
        answer["manifest"].as_str().unwrap().to_owned()
    };
    upload(&poor).await;
    // Dates have whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let better = upload(&rich).await;
    let section = "/buildid/abcdef01/section/.debug_info";
    let mut kept = Vec::new();
    let symbols = format!("/symbols/app/elf-buildid-abcdef01{}/app", "0".repeat(32));
    for path in ["/buildid/abcdef01/debuginfo", &symbols, section] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.headers()["cache-control"], "public, max-age=3600", "{path}");
        kept.push((path, answer.headers()[ETAG].clone(), answer.headers()[LAST_MODIFIED].clone()));
        assert!(path == section || answer.bytes().await.unwrap() == rich, "{path}");
    }
    let asked_again = async |path: &str, name: HeaderName, value: &HeaderValue| {
        let answer = fixture.http.get(fixture.server.url(path)).header(name, value).send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap())
    };
    for (path, etag, modified) in &kept {
        assert_eq!(asked_again(path, IF_NONE_MATCH, etag).await.0, StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(asked_again(path, IF_MODIFIED_SINCE, modified).await.0, StatusCode::NOT_MODIFIED, "{path}");
    }
    // Who wants other bytes, or older ones, gets none, whatever part of them is asked for.
    let digest = format!("/v2/loose/blobs/{}", Digest::of(&rich));
    let blob = (digest.as_str(), HeaderValue::try_from(format!("\"{}\"", Digest::of(&rich))).unwrap());
    let asked = kept.iter().map(|(path, etag, _)| (*path, etag.clone())).chain([blob]);
    let (other, long_ago) =
        (HeaderValue::from_static("\"other\""), HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    for (path, etag) in asked {
        for (name, value, expected) in [
            (IF_MATCH, &etag, StatusCode::PARTIAL_CONTENT),
            (IF_MATCH, &HeaderValue::from_static("*"), StatusCode::PARTIAL_CONTENT),
            (IF_MATCH, &other, StatusCode::PRECONDITION_FAILED),
            (IF_UNMODIFIED_SINCE, &long_ago, StatusCode::PRECONDITION_FAILED),
        ] {
            let request = fixture.http.get(fixture.server.url(path)).header(RANGE, "bytes=0-0").header(&name, value);
            // A form that is compressed has another tag, and is not what such a request means.
            let answer = request.header("accept-encoding", "zstd").send().await.unwrap();
            assert_eq!(answer.status(), expected, "{path} {name}: {value:?}");
            if expected == StatusCode::PRECONDITION_FAILED {
                assert_eq!(
                    (&answer.headers()[ETAG], &answer.headers()["cache-control"]),
                    (&etag, &HeaderValue::from_static("no-store")),
                    "{path}"
                );
                assert!(answer.bytes().await.unwrap().is_empty(), "{path}");
            }
        }
    }
    // The file that answers goes, and one that was stored before it answers.
    let gone = fixture.server.url(&format!("/api/v1/symbols/{better}"));
    assert_eq!(fixture.http.delete(gone).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    for (path, etag, modified) in &kept {
        for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, modified)] {
            let (status, bytes) = asked_again(path, name, value).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert!(*path == section || bytes == poor, "{path}");
        }
    }
    let by_digest = fixture.get(&format!("/v2/loose/blobs/{}", Digest::of(&poor))).await;
    assert_eq!(by_digest.headers()["cache-control"], "public, max-age=31536000, immutable");
}

#[tokio::test]
async fn a_section_is_its_stored_bytes() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let fixture = Fixture::new().await;
    let full = compile(fixture.root.path(), "full", "abcdef01", &["-g", "-gz=zlib"]);
    publish(&fixture.server, fixture.root.path(), "1", &[&full]).await;
    for section in [".text", ".debug_line", ".comment", ".debug_str"] {
        let dump = fixture.root.path().join("section");
        // The dump has the bytes as they are stored: objcopy would decompress, so the file's own place is read.
        let bytes = stored_section(&full, section);
        std::fs::write(&dump, &bytes).unwrap();
        let answer = fixture.get(&format!("/buildid/abcdef01/section/{section}")).await;
        assert_eq!(answer.status(), StatusCode::OK, "{section}");
        assert_eq!(answer.headers()["x-debuginfod-size"], bytes.len().to_string().as_str());
        assert!(answer.bytes().await.unwrap() == bytes);
        let url = fixture.server.url(&format!("/buildid/abcdef01/section/{section}"));
        let part = fixture.http.get(url).header(RANGE, "bytes=2-4").send().await.unwrap();
        assert!(part.bytes().await.unwrap() == bytes[2..=4]);
    }
    assert_eq!(fixture.get("/buildid/abcdef01/section/.bss").await.status(), StatusCode::NOT_FOUND);
}

/// A section's bytes by what `readelf` says of its place.
fn stored_section(binary: &Path, section: &str) -> Vec<u8> {
    let output = Command::new("readelf").args(["--wide", "--sections"]).arg(binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| {
        let (_, row) = line.split_once(']')?;
        row.trim_start().strip_prefix(section)?.strip_prefix(' ')
    });
    let columns: Vec<&str> = line.unwrap().split_whitespace().collect();
    let number = |column: &str| usize::from_str_radix(column, 16).unwrap();
    let (offset, size) = (number(columns[2]), number(columns[3]));
    std::fs::read(binary).unwrap()[offset..offset + size].to_vec()
}

#[tokio::test]
async fn the_file_with_more_debug_information_answers_also_after_a_restart() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let (poor_dir, rich_dir) = (root.path().join("poor"), root.path().join("rich"));
    std::fs::create_dir_all(&poor_dir).unwrap();
    std::fs::create_dir_all(&rich_dir).unwrap();
    let poor = compile(&poor_dir, "app", "abcdef01", &["-g1"]);
    let rich = compile(&rich_dir, "app", "abcdef01", &["-g"]);
    let server = Running::start(&data).await;
    publish(&server, root.path(), "rich", &[&rich]).await;
    let poor_digest = publish(&server, root.path(), "poor", &[&poor]).await;
    let expected = std::fs::read(&rich).unwrap();
    let get = async |server: &Running| {
        http().get(server.url("/buildid/abcdef01/debuginfo")).send().await.unwrap().bytes().await.unwrap()
    };
    assert!(get(&server).await == expected);
    server.stop().await;
    let server = Running::start(&data).await;
    assert!(get(&server).await == expected);

    // Without the better bundle the other one answers; without both nothing does.
    let withdraw = async |version: &str| {
        let head = http().head(server.url(&format!("/v2/app/manifests/{version}"))).send().await.unwrap();
        let digest = head.headers()["docker-content-digest"].to_str().unwrap().to_owned();
        let delete = http().delete(server.url(&format!("/v2/app/manifests/{digest}"))).send().await.unwrap();
        assert_eq!(delete.status(), StatusCode::ACCEPTED);
    };
    withdraw("rich").await;
    assert!(get(&server).await == std::fs::read(&poor).unwrap());
    withdraw("poor").await;
    let gone = http().request(Method::HEAD, server.url("/buildid/abcdef01/debuginfo")).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let known = http().get(server.url(&format!("/api/v1/bundles/{poor_digest}"))).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_bundle_is_recorded_and_one_whose_file_is_missing_or_lies_is_refused() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let full = compile(fixture.root.path(), "full", "abcdef01", &["-g"]);
    let digest = publish(&fixture.server, fixture.root.path(), "1", &[&full]).await;
    let record = fixture.get(&format!("/api/v1/bundles/{digest}")).await.text().await.unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!((record["name"].as_str(), record["os"].as_str()), (Some("app"), Some("linux")));
    assert!(record["index"]["linux"]["abcdef01"].is_object());

    // The same index, with the build-id of another module: its bytes contradict it.
    let layout = LayoutDir::open(fixture.root.path().join("layout-1")).unwrap();
    let lying = rename_module(&layout, &digest, "abcdef01", "abcdef99");
    let error = push(&layout, &lying, &fixture.server.reference("lie:1"), &options()).await.unwrap_err().to_string();
    assert!(error.contains("abcdef99") && error.contains("abcdef01"), "{error}");
    assert_eq!(fixture.get("/buildid/abcdef99/debuginfo").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/v2/lie/manifests/1").await.status(), StatusCode::NOT_FOUND);
}

/// The bundle `digest` of a layout with one id replaced by another wherever an index says it; its digest.
fn rename_module(layout: &LayoutDir, digest: &Digest, from: &str, to: &str) -> Digest {
    use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
    let limit = oci::MAX_MANIFEST_BYTES;
    let mut image_index = ImageIndex::parse(&layout.read_blob(digest, limit).unwrap()).unwrap();
    let root = &mut image_index.manifests[0];
    let mut manifest = Manifest::parse(&layout.read_blob(&root.digest, limit).unwrap()).unwrap();
    let layer = manifest.layers.iter_mut().find(|layer| layer.media_type == oci::SYMBOL_INDEX).unwrap();
    let text = String::from_utf8(layout.read_blob(&layer.digest, limit).unwrap()).unwrap();
    let index = text.replace(&format!("\"{from}\""), &format!("\"{to}\""));
    layout.write_blob(index.as_bytes()).unwrap();
    *layer =
        Descriptor { annotations: layer.annotations.clone(), ..Descriptor::of(oci::SYMBOL_INDEX, index.as_bytes()) };
    let bytes = manifest.to_bytes().unwrap();
    layout.write_blob(&bytes).unwrap();
    (root.digest, root.size) = (Digest::of(&bytes), bytes.len() as u64);
    let bytes = image_index.to_bytes().unwrap();
    layout.write_blob(&bytes).unwrap()
}

#[tokio::test]
async fn a_file_that_is_known_and_cannot_be_read_breaks_the_connection() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let full = compile(fixture.root.path(), "full", "abcdef01", &["-g"]);
    publish(&fixture.server, fixture.root.path(), "1", &[&full]).await;
    let hex = Digest::of(&std::fs::read(&full).unwrap()).hex();
    std::fs::remove_file(fixture.root.path().join("data/blobs/sha256").join(&hex[..2]).join(&hex)).unwrap();
    // An error status would be kept by clients for ten minutes as "there is nothing".
    let broken = fixture.http.get(fixture.server.url("/buildid/abcdef01/debuginfo")).send().await;
    assert!(broken.is_err(), "{broken:?}");
    assert_eq!(fixture.get("/").await.status(), StatusCode::OK);
}

/// Whichever of the two is the better one, the other answers where that is lost.
#[tokio::test]
async fn a_file_that_is_lost_does_not_hide_another_of_its_id() {
    if !has("cc") {
        return;
    }
    for is_first_lost in [true, false] {
        let fixture = Fixture::new().await;
        let root = fixture.root.path();
        let files = [
            compile(root, "first", "abcdef01", &["-g"]),
            compile(root, "second", "abcdef01", &["-g", "-O2", "-DMORE=1"]),
        ];
        let bytes = files.each_ref().map(|file| std::fs::read(file).unwrap());
        assert!(bytes[0] != bytes[1]);
        publish(&fixture.server, root, "1", &[&files[0]]).await;
        publish(&fixture.server, root, "2", &[&files[1]]).await;
        let (lost, left) = if is_first_lost { (&bytes[0], &bytes[1]) } else { (&bytes[1], &bytes[0]) };
        let hex = Digest::of(lost).hex();
        std::fs::remove_file(root.join("data/blobs/sha256").join(&hex[..2]).join(&hex)).unwrap();
        for kind in ["debuginfo", "executable"] {
            let answer = fixture.get(&format!("/buildid/abcdef01/{kind}")).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert!(answer.bytes().await.unwrap() == *left, "{kind}, {is_first_lost}");
        }
    }
}

#[tokio::test]
async fn the_ids_of_a_bundle_that_was_deleted_are_forgotten_and_its_bytes_collected() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let (gone, kept) = (
        compile(fixture.root.path(), "gone", "abcdef0a", &["-g"]),
        compile(fixture.root.path(), "kept", "abcdef0b", &["-g"]),
    );
    let digest = publish(&fixture.server, fixture.root.path(), "1", &[&gone, &kept]).await;
    publish(&fixture.server, fixture.root.path(), "2", &[&kept]).await;
    let blob = fixture.server.url(&format!("/v2/app/blobs/{}", Digest::of(&std::fs::read(&gone).unwrap())));
    // While the bundle is visible nothing of it goes, by request or by collection.
    assert_eq!(fixture.http.delete(&blob).send().await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    let wait = || tokio::time::sleep(std::time::Duration::from_millis(20));
    wait().await;
    fixture.server.collector.collect(std::time::Duration::ZERO).await.unwrap();
    assert_eq!(fixture.get("/buildid/abcdef0a/debuginfo").await.status(), StatusCode::OK);
    let index = fixture.server.url(&format!("/v2/app/manifests/{digest}"));
    assert_eq!(fixture.http.delete(index).send().await.unwrap().status(), StatusCode::ACCEPTED);
    // The index's manifests, then what they named.
    for _ in 0..2 {
        wait().await;
        fixture.server.collector.collect(std::time::Duration::ZERO).await.unwrap();
    }
    assert_eq!(fixture.get("/buildid/abcdef0a/debuginfo").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(fixture.http.get(&blob).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let answer = fixture.get("/buildid/abcdef0b/debuginfo").await;
    assert!(answer.bytes().await.unwrap() == std::fs::read(&kept).unwrap());
}
