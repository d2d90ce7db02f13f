//! Paths that lead out of a store if they are taken for names of files, and bytes that no name has, sent as they are: no client library
//! tidies them up.

use std::path::Path;
use std::time::Duration;

use crate::support::Running;
use crate::support::programs::{has, publish, run};
use symseal_server::Origins;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// In a file beside the data directory, in one below it that is nobody's, and in one below a directory of sources that a link leads to.
const SECRET: &str = "nobody-may-read-this";

/// Where names of repositories, files, ids and digests stand.
const PLACES: [&str; 16] = [
    "/{}",
    "/buildid/{}",
    "/buildid/abcdef03/{}",
    "/buildid/abcdef03/source/{}",
    "/buildid/abcdef03/section/{}",
    "/s/{}/buildid/abcdef03/debuginfo",
    "/symbols/{}",
    "/symbols/{}/abcdef03/a.pdb",
    "/symbols/app/{}/app",
    "/v2/{}/manifests/1",
    "/v2/app/manifests/{}",
    "/v2/app/blobs/{}",
    "/v2/app/blobs/uploads/{}",
    "/bundles/{}",
    "/api/v1/traces/{}",
    "/tile/{}",
];

/// The ways that lead there, and those that are taken for them. `/` in each stands for itself and for its coded forms.
const WAYS: [&str; 8] = [
    "../../secret",
    "../secret",
    "..//..//secret",
    "./../../secret",
    "a/../../../secret",
    "..\\..\\secret",
    "secret\0",
    "sha256/../../../secret",
];

/// A path in a coding that some server takes apart once too often.
fn codings(way: &str) -> Vec<String> {
    let plain = way.replace('\\', "%5c").replace('\0', "%00");
    let mut all =
        vec![plain.clone(), plain.replace('/', "%2f"), plain.replace('/', "%252F"), plain.replace('.', "%2e")];
    all.push(plain.replace('.', "%2E").replace('/', "%2F"));
    // An overlong slash (RFC 3629, section 10).
    all.push(plain.replace('/', "%c0%af"));
    all
}

/// The answer to a request line, head and body; empty where the connection ends without one.
async fn ask(server: &Running, method: &str, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "{method} {path}: no end of the answer");
    answer
}

/// RFC 9112, 3.2.
#[tokio::test]
async fn a_request_of_http_1_1_says_once_what_it_calls_the_server() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let asked = async |version: &str, hosts: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET /healthz HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(asked("1.1", "Host: localhost\r\n").await, "200");
    assert_eq!(asked("1.1", "").await, "400");
    assert_eq!(asked("1.1", "Host: localhost\r\nHost: localhost\r\n").await, "400");
    assert_eq!(asked("1.0", "").await, "200");
    assert_eq!(asked("1.0", "Host: localhost\r\nHost: other\r\n").await, "400");
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A folder's files with their sizes.
fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn no_path_leads_out_of_the_stores() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let sources = at("sources");
    std::fs::create_dir_all(sources.join("usr/src")).unwrap();
    std::fs::create_dir_all(at("data")).unwrap();
    for place in ["secret", "data/secret", "sources-secret"] {
        std::fs::write(at(place), SECRET).unwrap();
    }
    std::fs::write(sources.join("usr/src/app.c"), "int main(void) { return 0; }\n").unwrap();
    std::os::unix::fs::symlink(at("secret"), sources.join("secret")).unwrap();
    std::os::unix::fs::symlink(root.path(), sources.join("usr/up")).unwrap();
    let origins = Origins { source_roots: vec![sources.clone()], ..Origins::default() };
    let server = Running::start_with(&at("data"), &origins).await;
    let binary = at("app");
    let source = sources.join("usr/src/app.c");
    run("cc", &["-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), "-Wl,--build-id=0xabcdef03"]);
    publish(&server, root.path(), "1", &[&binary]).await;
    // What may be read is read: the places below are those that answer.
    let answer = ask(&server, "GET", "/buildid/abcdef03/source/usr/src/app.c").await;
    assert!(holds(&answer, "int main"), "{}", String::from_utf8_lossy(&answer));
    let before = (names(root.path()), names(&at("data")));

    let absolute = at("secret").display().to_string();
    let ways = WAYS.iter().copied().chain([absolute.as_str(), "usr/up/secret", "secret"]);
    let ways: Vec<String> = ways.flat_map(codings).collect();
    let mut asked = 0;
    for place in PLACES {
        for way in &ways {
            let path = place.replace("{}", way);
            for method in ["GET", "PUT", "DELETE"] {
                let answer = ask(&server, method, &path).await;
                let said = String::from_utf8_lossy(&answer);
                assert!(!holds(&answer, SECRET), "{method} {path} gives it away: {said}");
                let status = said.get(9..12).unwrap_or_default();
                assert!(["400", "404", "405", "416"].contains(&status), "{method} {path}: {said}");
                asked += 1;
            }
        }
    }
    assert_eq!(asked, PLACES.len() * ways.len() * 3);
    // Bytes that no URL has: the request is refused whole.
    for path in ["/buildid/abcdef03/source/\0", "/buildid/\u{7f}/debuginfo", "/v2/app/manifests/1\u{1}"] {
        let answer = ask(&server, "GET", path).await;
        assert!(answer.starts_with(b"HTTP/1.1 400"), "{path:?}: {}", String::from_utf8_lossy(&answer));
    }
    assert_eq!((names(root.path()), names(&at("data"))), before, "a request made or removed a file");
    for place in ["secret", "data/secret"] {
        assert_eq!(std::fs::read_to_string(at(place)).unwrap(), SECRET, "{place}");
    }
}

#[tokio::test]
async fn what_a_path_does_not_know_is_told_in_the_form_of_its_api_with_what_it_knows() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let http = crate::support::http();
    for (method, path, status, code, allow) in [
        ("GET", "/api/v1/nothing", 404, Some("path-unknown"), None),
        ("POST", "/api/v3/bundles", 404, Some("path-unknown"), None),
        ("DELETE", "/api/v1/bundles", 405, Some("method-unknown"), Some("GET, HEAD")),
        ("DELETE", "/api/v1/symbols", 405, Some("method-unknown"), Some("GET, HEAD, PUT")),
        ("GET", "/api/v1/resolve", 405, Some("method-unknown"), Some("POST")),
        ("GET", "/api/v2/log/entries", 405, Some("method-unknown"), Some("POST")),
        ("GET", "/nothing", 404, None, None),
        ("DELETE", "/healthz", 405, None, Some("GET, HEAD")),
        ("DELETE", "/buildid/abcd/debuginfo", 405, None, Some("GET, HEAD")),
        ("DELETE", "/v2/app/tags/list", 405, None, Some("GET, HEAD")),
    ] {
        let answer = http.request(method.parse().unwrap(), server.url(path)).send().await.unwrap();
        let said = answer.headers().get("allow").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((answer.status().as_u16(), said.as_deref()), (status, allow), "{method} {path}");
        let text = answer.text().await.unwrap();
        let found = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()["error"]["code"].take();
        assert_eq!(found.as_str(), code, "{method} {path}: {text}");
    }
    server.stop().await;
}
