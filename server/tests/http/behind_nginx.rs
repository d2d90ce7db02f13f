//! Two servers behind nginx as `release-jobs/deploy/nginx.conf` sets it up: what a server does not answer, nginx does not
//! either.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use reqwest::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::nginx::Nginx;
use crate::support::programs::{has, missing};
use crate::support::upstreams::{asking, compile};
use crate::support::{Running, http};

const KNOWN: &str = "abcdef03abcdef03abcdef03abcdef03abcdef03";
const ELSEWHERE: &str = "1111111111111111111111111111111111111111";
const TOKEN: &str = "symseal_5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

/// How a connection ends on which elfutils' client asks for a path: with the answer's first line, or without any.
async fn ask(address: SocketAddr, path: &str) -> Result<String, ErrorKind> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: elfutils/0.192\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_reset_reaches_the_debugger_behind_nginx_and_takes_no_server_from_others() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let file = std::fs::read(compile(root.path(), "app", KNOWN, 10_000)).unwrap();
    // Nobody listens there, so what is not here may be there.
    let away = asking(&["http://127.0.0.1:1".into()]);
    let one = Running::start_with(&root.path().join("one"), &away).await;
    let two = Running::start_with(&root.path().join("two"), &away).await;
    for server in [&one, &two] {
        let put = http().put(server.url("/api/v1/symbols?name=app")).body(file.clone()).send().await.unwrap();
        assert_eq!(put.status(), StatusCode::CREATED);
    }
    let Some(program) = Nginx::program() else { return missing("nginx") };
    let nginx = Nginx::start(program, &root.path().join("nginx"), [one.address, two.address]);
    let unknown = format!("/buildid/{ELSEWHERE}/debuginfo");
    for _ in 0..4 {
        assert_eq!(ask(nginx.address, &unknown).await, Err(ErrorKind::ConnectionReset));
        for _ in 0..4 {
            let known = http().get(nginx.url(&format!("/buildid/{KNOWN}/executable"))).send().await.unwrap();
            assert_eq!(known.status(), StatusCode::OK);
            assert!(known.bytes().await.unwrap() == file);
        }
    }
    // A failure is told in the logs, and a token in none of them.
    assert_eq!(ask(nginx.address, &format!("/t/{TOKEN}{unknown}")).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(
        ask(nginx.address, &format!("/t/{TOKEN}/buildid/{KNOWN}/executable")).await.as_deref(),
        Ok("HTTP/1.1 200 OK")
    );
    for log in ["access.log", "error.log"] {
        let text = nginx.log(log);
        assert!(text.contains(&unknown), "{log}: {text}");
        assert!(!text.contains(TOKEN), "{log}: {text}");
    }
    if has("debuginfod-find") {
        let cache = root.path().join("cache");
        let mut find = Command::new("debuginfod-find");
        find.args(["debuginfo", ELSEWHERE]).env("DEBUGINFOD_URLS", nginx.url(""));
        find.env("DEBUGINFOD_CACHE_PATH", &cache).env("DEBUGINFOD_TIMEOUT", "20");
        let said = tokio::task::spawn_blocking(move || find.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("Connection reset by peer"), "{said}");
        // An empty file there would say for ten minutes that there is nothing.
        assert!(!cache.join(ELSEWHERE).join("debuginfo").exists());
    }
}

/// A server that answers as one that starts does, and the first lines of what it was asked.
async fn starting() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            noted.lock().unwrap().extend(String::from_utf8_lossy(&head).lines().next().map(str::to_owned));
            let answer =
                "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Else what is unread would make a reset of it.
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    (address, asked)
}

#[tokio::test]
async fn behind_nginx_a_server_that_starts_is_passed_over_by_readers_and_no_change_is_sent_twice() {
    let root = tempfile::tempdir().unwrap();
    let Some(program) = Nginx::program() else { return missing("nginx") };
    let ready = Running::start(&root.path().join("ready")).await;
    let (one, asked_of_one) = starting().await;
    let nginx = Nginx::start(program, &root.path().join("nginx"), [one, ready.address]);
    for path in ["/v2/", "/readyz", "/", "/api/v1/alerts", &format!("/t/{TOKEN}/v2/")] {
        for _ in 0..4 {
            assert_eq!(http().get(nginx.url(path)).send().await.unwrap().status(), StatusCode::OK, "{path}");
            assert_eq!(http().head(nginx.url(path)).send().await.unwrap().status(), StatusCode::OK, "{path}");
        }
    }
    assert!(!asked_of_one.lock().unwrap().is_empty());
    drop(nginx);

    let (two, asked_of_two) = starting().await;
    let nginx = Nginx::start(program, &root.path().join("nginx-2"), [one, two]);
    for prefix in [String::new(), format!("/t/{TOKEN}")] {
        for (method, path) in [
            ("POST", "/v2/app/blobs/uploads/"),
            ("PATCH", "/v2/app/blobs/uploads/1"),
            ("PUT", "/v2/app/manifests/1"),
            ("DELETE", "/v2/app/manifests/1"),
        ] {
            [&asked_of_one, &asked_of_two].iter().for_each(|asked| asked.lock().unwrap().clear());
            let request = http().request(method.parse().unwrap(), nginx.url(&format!("{prefix}{path}")));
            let answer = request.body(vec![b'a'; 100_000]).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{method} {prefix}");
            assert_eq!(answer.headers()["retry-after"], "5", "{method} {prefix}");
            let asked = [asked_of_one.lock().unwrap().clone(), asked_of_two.lock().unwrap().clone()].concat();
            assert_eq!(asked, [format!("{method} {prefix}{path} HTTP/1.1")]);
        }
    }
    assert!(!nginx.log("error.log").contains(TOKEN) && !nginx.log("access.log").contains(TOKEN));
}

#[tokio::test]
async fn behind_nginx_debuggers_get_no_error_status_where_all_servers_are_gone_and_others_do() {
    let root = tempfile::tempdir().unwrap();
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let Some(program) = Nginx::program() else { return missing("nginx") };
    let nginx = Nginx::start(program, root.path(), [nowhere; 2]);
    for path in [
        format!("/buildid/{ELSEWHERE}/debuginfo"),
        format!("/buildid/{ELSEWHERE}/source//usr/src/a.c"),
        "/metadata?key=file&value=/bin/ls".to_owned(),
        "/symbols/app.pdb/72E103A85CB249078B76B2E7C06257B13/app.pdb".to_owned(),
        format!("/s/team/app/buildid/{ELSEWHERE}/debuginfo"),
        format!("/t/{TOKEN}/buildid/{ELSEWHERE}/debuginfo"),
        format!("/t/{TOKEN}/symbols/app.pdb/72E103A85CB249078B76B2E7C06257B13/app.pdb"),
    ] {
        assert_eq!(ask(nginx.address, &path).await, Err(ErrorKind::ConnectionReset), "{path}");
    }
    for path in ["/v2/", "/api/v1/alerts", "/", "/symbolicate/v5"] {
        assert_eq!(ask(nginx.address, path).await.as_deref(), Ok("HTTP/1.1 502 Bad Gateway"), "{path}");
    }
    assert!(!nginx.log("error.log").contains(TOKEN) && !nginx.log("access.log").contains(TOKEN));
}
