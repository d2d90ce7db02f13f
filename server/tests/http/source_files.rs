//! Source files, names and compressed forms, as debuginfod clients ask for them.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::programs::{Fixture, has, publish, run};
use crate::support::{Running, http, options};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, RANGE, VARY,
};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use symseal_builder::{Options, SourceOptions, SymbolBundleBuilder};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::push;
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config, Origins};

const PROGRAM: &str = "int twice(int x) { return 2 * x; }\nint main(void) { return twice(3) - 6; }\n";

/// A program whose line table says `path` of its source.
fn compile(folder: &Path, name: &str, id: &str, more: &[&str]) -> (PathBuf, PathBuf) {
    let (source, binary) = (folder.join(format!("{name} +#.c")), folder.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let id = format!("-Wl,--build-id=0x{id}");
    let mut arguments = vec![source.to_str().unwrap(), "-g", "-o", binary.to_str().unwrap(), &id];
    arguments.extend(more);
    run("cc", &arguments);
    (source, binary)
}

/// Publishes a program; its sources too where `sources_to` says where. The sources' digest.
async fn publish_with_sources(
    server: &Running,
    root: &Path,
    version: &str,
    binary: &Path,
    sources_to: Option<&str>,
) -> Digest {
    let layout = LayoutDir::create(root.join(format!("layout-{version}"))).unwrap();
    let release = Options { name: "app".into(), version: version.into(), ..Options::default() };
    let sources = SourceOptions { roots: vec![root.into()], maps: Vec::new() };
    let built = SymbolBundleBuilder::new(release).add_path(binary).sources(sources).build(&layout).unwrap();
    let digest = built.index.sources.unwrap();
    if let Some(to) = sources_to {
        push(&layout, &digest, &server.reference(to), &options()).await.unwrap();
    }
    push(&layout, &built.digest, &server.reference(&format!("app:{version}")), &options()).await.unwrap();
    digest
}

/// As libdebuginfod writes a path.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[tokio::test]
async fn a_source_is_read_out_of_its_pack_where_its_artifact_is_here_and_not_before() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path().canonicalize().unwrap();
    let (source, binary) = compile(&folder, "full", "abcdef01", &[]);
    let url = fixture.server.url(&format!("/buildid/abcdef01/source{}", escaped(source.to_str().unwrap())));
    let digest = publish_with_sources(&fixture.server, &folder, "1", &binary, None).await;
    assert_eq!(fixture.http.get(&url).send().await.unwrap().status(), StatusCode::NOT_FOUND, "they are not here");
    let layout = LayoutDir::open(folder.join("layout-1")).unwrap();
    push(&layout, &digest, &fixture.server.reference("app-sources:1"), &options()).await.unwrap();

    let answer = fixture.http.get(&url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let headers = answer.headers().clone();
    assert_eq!(headers["x-debuginfod-size"], PROGRAM.len().to_string().as_str());
    assert_eq!(headers["x-debuginfod-sha256"], Digest::of(PROGRAM.as_bytes()).hex().as_str());
    assert_eq!(headers["x-debuginfod-file"], source.to_str().unwrap());
    assert_eq!(answer.text().await.unwrap(), PROGRAM);
    let unchanged = fixture.http.get(&url).header(IF_NONE_MATCH, &headers[ETAG]).send().await.unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
    let part = fixture.http.get(&url).header(RANGE, "bytes=4-8").send().await.unwrap();
    assert_eq!(part.headers()[CONTENT_RANGE], format!("bytes 4-8/{}", PROGRAM.len()).as_str());
    assert_eq!(part.text().await.unwrap(), "twice");
    let too_large = fixture.http.get(&url).header("x-debuginfod-maxsize", "3").send().await.unwrap();
    assert_eq!(too_large.status(), StatusCode::NOT_ACCEPTABLE);

    // A prefix says whose ids are meant: their sources may lie elsewhere.
    let place = |prefix: &str| format!("/s/{prefix}/buildid/abcdef01/source{}", escaped(source.to_str().unwrap()));
    assert_eq!(fixture.get(&place("app")).await.text().await.unwrap(), PROGRAM);
    assert_eq!(fixture.get(&place("app-sources")).await.status(), StatusCode::NOT_FOUND);

    // A client that sends the path as it is; another form of the same path; what is not there.
    let name = escaped(source.file_name().unwrap().to_str().unwrap());
    let place = folder.display();
    let raw = raw_get(&fixture.server, &format!("/buildid/abcdef01/source{place}/./x/..//{name}")).await;
    assert!(raw.starts_with("HTTP/1.1 200") && raw.ends_with(PROGRAM), "{raw}");
    for path in ["/etc/passwd", "/../../../etc/passwd", "/", ""] {
        let raw = raw_get(&fixture.server, &format!("/buildid/abcdef01/source{path}")).await;
        assert!(raw.starts_with("HTTP/1.1 404"), "{path}: {raw}");
    }
    let other = fixture.get(&format!("/buildid/abcdef02/source{}", escaped(source.to_str().unwrap()))).await;
    assert_eq!(other.status(), StatusCode::NOT_FOUND);

    if has("debuginfod-find") {
        let found = find(&fixture.server, &folder, &["source", "abcdef01", source.to_str().unwrap()]).await.unwrap();
        assert_eq!(std::fs::read_to_string(found).unwrap(), PROGRAM);
    }
}

#[tokio::test]
async fn sources_in_a_repository_of_their_own_are_for_those_who_may_read_that() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let (source, binary) = compile(&folder, "full", "abcdef01", &[]);
    let data = folder.join("data");
    let server = Running::start(&data).await;
    publish_with_sources(&server, &folder, "1", &binary, Some("app-sources:1")).await;
    server.stop().await;
    let mut config = Config::new(&data, ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: vec!["app".parse().unwrap()] };
    let tokens = Tokens::open(&data, None).await.unwrap();
    let server = Running::start_as(config).await;
    let grants = vec!["read:app".parse().unwrap(), "read:app-sources".parse().unwrap()];
    let new = NewToken { name: "t".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
    let reader = tokens.create(new).await.unwrap().0.expose().to_owned();
    for prefix in ["", "/s/app"] {
        let url = server.url(&format!("{prefix}/buildid/abcdef01/source{}", escaped(source.to_str().unwrap())));
        let stranger = http().get(&url).send().await.unwrap();
        assert_eq!(stranger.status(), StatusCode::NOT_FOUND, "{prefix}");
        let answer = http().get(&url).bearer_auth(&reader).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), PROGRAM, "{prefix}");
    }
}

/// A GET whose path goes out as it is.
async fn raw_get(server: &Running, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// What elfutils' client finds.
async fn find(server: &Running, folder: &Path, arguments: &[&str]) -> Option<PathBuf> {
    let mut command = Command::new("debuginfod-find");
    command
        .args(arguments)
        .env("DEBUGINFOD_URLS", server.url(""))
        .env("DEBUGINFOD_CACHE_PATH", folder.join("client-cache"))
        .env("DEBUGINFOD_TIMEOUT", "20");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().into())
}

#[tokio::test]
async fn files_of_a_directory_that_the_operator_names_are_sources_and_nothing_beside_it_is() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("usr/src")).unwrap();
    std::fs::write(tree.join("usr/src/a.c"), "below").unwrap();
    std::fs::write(folder.join("secret.c"), "secret").unwrap();
    std::os::unix::fs::symlink("../../../secret.c", tree.join("usr/src/link.c")).unwrap();
    let origins = Origins { source_roots: vec![tree.clone()], ..Origins::default() };
    let server = Running::start_with(&folder.join("data"), &origins).await;
    let (_, binary) = compile(&folder, "full", "abcdef01", &[]);
    publish(&server, &folder, "1", &[&binary]).await;
    let get = async |path: &str| raw_get(&server, &format!("/buildid/{path}")).await;
    let found = get("abcdef01/source/usr/src/a.c").await;
    assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("below"), "{found}");
    assert!(get(&format!("abcdef01/source{}/usr/src/a.c", tree.display())).await.ends_with("below"));
    for path in [
        "abcdef01/source/usr/src/link.c",
        "abcdef01/source/../secret.c",
        "abcdef01/source/usr/src/%2e%2e/%2e%2e/%2e%2e/secret.c",
        "abcdef01/source/usr%2f..%2f..%2fsecret.c",
        "abcdef01/source/usr/src/a.c%00",
        "abcdef01/source/usr/src",
        "abcdef02/source/usr/src/a.c",
    ] {
        assert!(get(path).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(get(&format!("abcdef01/source{}/secret.c", folder.display())).await.starts_with("HTTP/1.1 404"));
    let nowhere = Origins { source_roots: vec![folder.join("none")], ..Origins::default() };
    let config = symseal_server::Config::new(folder.join("other"), ([127, 0, 0, 1], 0).into());
    let refused = symseal_server::Server::bind(config).await.unwrap().with_origins(&nowhere);
    assert!(refused.err().unwrap().to_string().contains("none"));
}

#[tokio::test]
async fn a_source_that_is_written_over_while_it_is_sent_breaks_off_also_where_its_time_is_set_back() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    // More than connections hold between two programs.
    let (file, mut bytes) = (tree.join("large.c"), vec![b' '; 32 << 20]);
    std::fs::write(&file, &bytes).unwrap();
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    let origins = Origins { source_roots: vec![tree], ..Origins::default() };
    let server = Running::start_with(&folder.join("data"), &origins).await;
    let (_, binary) = compile(&folder, "full", "abcdef01", &[]);
    publish(&server, &folder, "1", &[&binary]).await;
    let url = server.url("/buildid/abcdef01/source/large.c");
    let mut answer = http().get(&url).send().await.unwrap();
    let mut received = answer.chunk().await.unwrap().unwrap().len();
    bytes[31 << 20] = b'x';
    std::fs::write(&file, &bytes).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
    let broken = loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => received += chunk.len(),
            ended => break ended.is_err(),
        }
    };
    assert!(broken && received < bytes.len(), "{received} bytes");
    // What is there now is a source like any other.
    assert!(http().get(&url).send().await.unwrap().bytes().await.unwrap() == bytes);
}

#[tokio::test]
async fn files_of_such_a_directory_are_sources_of_files_without_a_bundle_for_those_who_may_have_the_files() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let (sources, tree) = (folder.join("sources"), folder.join("tree"));
    std::fs::create_dir_all(&sources).unwrap();
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(sources.join("a.c"), "below").unwrap();
    let (_, loose) = compile(&folder, "loose", "abcdef01", &[]);
    let (_, in_place) = compile(&folder, "in-place", "abcdef02", &[]);
    std::fs::copy(&in_place, tree.join("in-place")).unwrap();
    let origins = Origins { source_roots: vec![sources], trees: vec![tree], ..Origins::default() };
    let server = Running::start_with(&folder.join("data"), &origins).await;
    let http = http();
    let put = http.put(server.url("/api/v1/symbols?name=loose")).body(std::fs::read(&loose).unwrap());
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    let get = async |path: &str| http.get(server.url(path)).send().await.unwrap();
    for _ in 0..300 {
        if get("/buildid/abcdef02/executable").await.status() == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for path in ["/buildid/abcdef01/source/a.c", "/buildid/abcdef02/source/a.c", "/s/loose/buildid/abcdef01/source/a.c"]
    {
        let answer = get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.text().await.unwrap(), "below", "{path}");
    }
    // Of what nobody has, or not there where it is asked for.
    for path in [
        "/buildid/abcdef03/source/a.c",
        "/s/app/buildid/abcdef01/source/a.c",
        "/s/app/buildid/abcdef02/source/a.c",
        "/buildid/abcdef01/source/b.c",
    ] {
        assert_eq!(get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn metadata_lists_files_by_name_pattern_and_id() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let (_, full) = compile(folder, "full", "abcdef01", &[]);
    let (_, stripped) = compile(folder, "stripped", "abcdef02", &["-s"]);
    // A program and its debug file, which is called by its own name.
    let (_, apart) = compile(folder, "apart", "abcdef03", &["-g"]);
    let debug = folder.join("apart.debug");
    let debug_text = debug.to_str().unwrap();
    run("objcopy", &["--only-keep-debug", apart.to_str().unwrap(), debug_text]);
    run("objcopy", &["--strip-all", apart.to_str().unwrap()]);
    publish(&fixture.server, folder, "1", &[&full, &stripped]).await;
    publish(&fixture.server, folder, "2", &[&apart, &debug]).await;
    let ask = async |query: &str| -> Value {
        let answer = fixture.get(&format!("/metadata?{query}")).await;
        assert_eq!(answer.status(), StatusCode::OK, "{query}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };
    let row = |kind: &str, id: &str, file: &str| serde_json::json!({"type": kind, "buildid": id, "file": file});
    let both = [row("debuginfo", "abcdef01", "full"), row("executable", "abcdef01", "full")];
    let one = [row("executable", "abcdef02", "stripped")];
    let pair = [row("debuginfo", "abcdef03", ".build-id/ab/cdef03.debug"), row("executable", "abcdef03", "apart")];
    for (query, expected) in [
        ("key=file&value=full", both.to_vec()),
        ("key=file&value=stripped", one.to_vec()),
        ("key=buildid&value=ABCDEF01", both.to_vec()),
        ("key=buildid&value=abcdef02", one.to_vec()),
        ("key=glob&value=s*d", one.to_vec()),
        ("key=buildid&value=abcdef03", pair.to_vec()),
        ("key=file&value=apart", pair.to_vec()),
        ("key=file&value=.build-id/ab/cdef03.debug", pair[..1].to_vec()),
        ("key=glob&value=.build-id/*/cdef03.*", pair[..1].to_vec()),
        ("key=file&value=none", vec![]),
        ("key=glob&value=/usr/bin/*", vec![]),
        ("key=buildid&value=xyz", vec![]),
    ] {
        assert_eq!(ask(query).await, serde_json::json!({"results": expected, "complete": true}), "{query}");
    }
    // Below a prefix of repositories: there, and nowhere else.
    for (prefix, expected) in [("app", both.to_vec()), ("other", vec![])] {
        let answer: Value =
            fixture.get(&format!("/s/{prefix}/metadata?key=file&value=full")).await.json().await.unwrap();
        assert_eq!(answer, serde_json::json!({"results": expected, "complete": true}), "{prefix}");
    }
    for query in ["", "key=other&value=x", "key=file", "value=full"] {
        assert_eq!(fixture.get(&format!("/metadata?{query}")).await.status(), StatusCode::BAD_REQUEST, "{query}");
    }
}

#[tokio::test]
async fn a_compressed_form_is_made_once_and_given_to_those_who_take_it() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (folder, data) = (root.path(), root.path().join("data"));
    let server = Running::start(&data).await;
    let (_, binary) = compile(folder, "full", "abcdef01", &["-g3"]);
    publish(&server, folder, "1", &[&binary]).await;
    let bytes = std::fs::read(&binary).unwrap();
    // One that leaves bodies as they come.
    let as_sent = reqwest::Client::builder().no_gzip().no_zstd().no_brotli().no_deflate().build().unwrap();
    let get = async |server: &Running, coding: &'static str| -> Response {
        let url = server.url("/buildid/abcdef01/debuginfo");
        as_sent.get(url).header(ACCEPT_ENCODING, coding).send().await.unwrap()
    };
    // Dates have whole seconds: a form is made in a later one than the file came.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for (coding, name) in [("deflate, gzip, br, zstd", "zstd"), ("gzip", "gzip")] {
        // The first one gets the file as it is, and has the form made.
        let first = get(&server, coding).await;
        assert!(!first.headers().contains_key(CONTENT_ENCODING));
        assert_eq!(first.headers()[VARY], "accept-encoding");
        let stored = first.headers()[LAST_MODIFIED].clone();
        assert!(first.bytes().await.unwrap() == bytes);
        let mut answer = get(&server, coding).await;
        for _ in 0..200 {
            if answer.headers().contains_key(CONTENT_ENCODING) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer = get(&server, coding).await;
        }
        assert_eq!(answer.headers()[CONTENT_ENCODING], name);
        assert_eq!(answer.headers()[LAST_MODIFIED], stored);
        assert_eq!(answer.headers()["x-debuginfod-size"], bytes.len().to_string().as_str());
        let etag = answer.headers()[ETAG].to_str().unwrap().to_owned();
        assert!(etag.ends_with(&format!("-{name}\"")), "{etag}");
        let compressed = answer.bytes().await.unwrap();
        assert!(compressed.len() * 10 < bytes.len() * 9);
        let mut decoded = Vec::new();
        match name {
            "zstd" => zstd::Decoder::new(&compressed[..]).unwrap().read_to_end(&mut decoded).unwrap(),
            _ => flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut decoded).unwrap(),
        };
        assert!(decoded == bytes);
    }
    let cached = || std::fs::read_dir(data.join("cache")).unwrap().count();
    assert_eq!(cached(), 2, "one form a coding");
    let url = server.url("/buildid/abcdef01/debuginfo");
    let part = http().get(&url).header(ACCEPT_ENCODING, "zstd").header(RANGE, "bytes=1-3").send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert!(!part.headers().contains_key(CONTENT_ENCODING));
    assert!(part.bytes().await.unwrap() == bytes[1..=3]);
    let refused = http().get(&url).header(ACCEPT_ENCODING, "zstd").header("x-debuginfod-maxsize", "100");
    assert_eq!(
        refused.send().await.unwrap().status(),
        StatusCode::NOT_ACCEPTABLE,
        "the bound is on the file's own size"
    );
    if has("debuginfod-find") {
        // It takes what its libcurl can decode.
        let found = find(&server, folder, &["debuginfo", "abcdef01"]).await.unwrap();
        assert!(std::fs::read(found).unwrap() == bytes);
    }
    if has("curl") {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--compressed", &url]);
        let output = tokio::task::spawn_blocking(move || curl.output().unwrap()).await.unwrap();
        assert!(output.stdout == bytes);
    }
    server.stop().await;
    let server = Running::start(&data).await;
    assert_eq!(get(&server, "zstd").await.headers()[CONTENT_ENCODING], "zstd", "it is kept");
    assert_eq!(cached(), 2);
}

#[tokio::test]
async fn a_pack_that_is_taken_down_hides_no_other_bundles_copy_of_a_file() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path().canonicalize().unwrap();
    let (source, binary) = compile(&folder, "full", "abcdef01", &[]);
    let first = publish_with_sources(&fixture.server, &folder, "1", &binary, Some("app-sources:1")).await;
    // The same module, beside another one: its sources are in another pack.
    let both = folder.join("both");
    std::fs::create_dir(&both).unwrap();
    std::fs::copy(&binary, both.join("full")).unwrap();
    let (_, more) = compile(&folder, "more", "abcdef02", &["-DMORE"]);
    std::fs::write(folder.join("more +#.c"), format!("{PROGRAM}// more\n")).unwrap();
    std::fs::copy(&more, both.join("more")).unwrap();
    let second = publish_with_sources(&fixture.server, &folder, "2", &both, Some("app-sources:2")).await;
    let pack = async |sources: &Digest| -> String {
        let manifest = fixture.get(&format!("/v2/app-sources/manifests/{sources}")).await;
        let manifest: Value = manifest.json().await.unwrap();
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 2, "a table and a pack: {manifest}");
        layers[1]["digest"].as_str().unwrap().to_owned()
    };
    let packs = [pack(&first).await, pack(&second).await];
    assert_ne!(packs[0], packs[1]);
    let path = format!("/buildid/abcdef01/source{}", escaped(source.to_str().unwrap()));
    let config = symseal_server::Config::new(folder.join("data"), ([127, 0, 0, 1], 0).into());
    let tombstones = symseal_server::Tombstones::open(&config).await.unwrap();
    let note = symseal_server::Note { at: "2026-01-02T03:04:05Z".into(), reason: "a name".into(), by: "a test".into() };
    let is_down = async |digest: &str, path: &str, expected: StatusCode| {
        tombstones.take_down(digest, note.clone()).await.unwrap();
        let started = std::time::Instant::now();
        while fixture.get(path).await.status() != expected {
            assert!(started.elapsed() < Duration::from_secs(10), "{path} is not {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Whichever of the two is asked first.
    for pack in &packs {
        is_down(pack, &format!("/v2/app-sources/blobs/{pack}"), StatusCode::NOT_FOUND).await;
        let answer = fixture.get(&path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{pack}");
        assert_eq!(answer.text().await.unwrap(), PROGRAM);
        tombstones.lift(pack).await.unwrap();
    }
    is_down(&packs[0], &format!("/v2/app-sources/blobs/{}", packs[0]), StatusCode::NOT_FOUND).await;
    is_down(&packs[1], &path, StatusCode::NOT_FOUND).await;
    for pack in &packs {
        tombstones.lift(pack).await.unwrap();
    }
    // The file itself, out of whatever pack.
    is_down(&Digest::of(PROGRAM.as_bytes()).to_string(), &path, StatusCode::NOT_FOUND).await;
    // A bundle leaves its sources where they are, and whoever takes it down is told.
    let bundle = fixture.get("/v2/app/manifests/2").await.headers()["docker-content-digest"].clone();
    let (bundle, sources) = (bundle.to_str().unwrap(), second.to_string());
    let mut told = Vec::new();
    for digest in [bundle, &sources, bundle] {
        told.push(tombstones.take_down(digest, note.clone()).await.unwrap().sources);
    }
    assert_eq!(told, [Some(sources.clone()), None, None]);
}

#[tokio::test]
async fn a_file_below_a_directory_of_sources_that_is_taken_down_is_not_served() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let (source, binary) = compile(&folder, "full", "abcdef01", &[]);
    let origins = Origins { source_roots: vec![folder.clone()], ..Origins::default() };
    let server = Running::start_with(&folder.join("data"), &origins).await;
    publish(&server, &folder, "1", &[&binary]).await;
    let url = server.url(&format!("/buildid/abcdef01/source{}", escaped(source.to_str().unwrap())));
    assert_eq!(http().get(&url).send().await.unwrap().text().await.unwrap(), PROGRAM);
    let config = symseal_server::Config::new(folder.join("data"), ([127, 0, 0, 1], 0).into());
    let tombstones = symseal_server::Tombstones::open(&config).await.unwrap();
    let note = symseal_server::Note { at: "2026-01-02T03:04:05Z".into(), reason: "a name".into(), by: "a test".into() };
    let digest = Digest::of(PROGRAM.as_bytes()).to_string();
    for (other, expected) in [(Digest::of(b"other").to_string(), StatusCode::OK), (digest, StatusCode::NOT_FOUND)] {
        tombstones.take_down(&other, note.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let answer = http().get(&url).send().await.unwrap();
        assert_eq!(answer.status(), expected);
        assert!(expected != StatusCode::OK || answer.text().await.unwrap() == PROGRAM);
    }
    server.stop().await;
}
