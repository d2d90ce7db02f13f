//! A server that may have few files open: a program of its own, as the limit is a process's.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::support::{Running, http};

/// What tells the program that is this one to be a server.
const CALLED: &str = "SYMSEAL_TEST_FEW_FILES";

/// The server, with a limit of 64 open files. It ends with this.
struct Few {
    child: Child,
    address: SocketAddr,
}

impl Few {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        shell.args(["--exact", "few_files::serve_with_few_files", "--ignored", "--nocapture"]).env(CALLED, "1");
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.rsplit_once("listens on ")?.1.parse().ok()).unwrap();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// What is answered on a connection of its own.
    fn ask(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
#[ignore = "a part of the tests below, which run it with few files"]
async fn serve_with_few_files() {
    if std::env::var_os(CALLED).is_none() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Running::start(data.path()).await;
    println!("\nlistens on {}", server.address);
    // Until whoever runs it is gone.
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
}

#[test]
fn however_many_connections_say_nothing_whoever_asks_is_answered_and_what_is_under_way_goes_on() {
    let server = Few::start();
    let mut upload = server.connect();
    let head = "POST /v2/app/blobs/uploads/?digest=sha256:bf2cb58a68f684d95a3b78ef8f661c9a4e5b09e82cc8f9cc88cce90528caeb27 HTTP/1.1\r\n\
                Host: localhost\r\nContent-Length: 10\r\nConnection: close\r\n\r\naaaaa";
    upload.write_all(head.as_bytes()).unwrap();
    let mut kept = server.connect();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut part = [0; 12];
    kept.read_exact(&mut part).unwrap();
    assert_eq!(&part, b"HTTP/1.1 200");
    // Those who say nothing, and those who say half of it.
    let mut silent: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n");
    }
    let asked = Instant::now();
    assert!(server.ask("/healthz").starts_with("HTTP/1.1 200"));
    // Each of them would have half a minute for its request.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    // What was answered, and asks for nothing more, is closed in order.
    kept.read_to_end(&mut Vec::new()).unwrap();
    upload.write_all(b"aaaaa").unwrap();
    let mut said = String::new();
    upload.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    let metrics = server.ask("/metrics");
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    let (open, most) = (value("symseal_connections "), value("symseal_connections_capacity "));
    assert!((8..32).contains(&most) && open <= most + most / 4 + 2, "{open} of {most}");
    assert!(value("symseal_connections_sent_away_total ") >= 100 - most, "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_file_to_open_says_when_to_come_again() {
    let server = Few::start();
    let address = server.address;
    let pushes = (0..150).map(|number| async move {
        let index = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"annotations":{{"number":"{number}"}}}}"#
        );
        let put = http().put(format!("http://{address}/v2/app/manifests/t{number}"));
        let put = put.header("content-type", "application/vnd.oci.image.index.v1+json").body(index);
        put.timeout(Duration::from_secs(60)).send().await
    });
    let answers = futures_util::future::join_all(pushes).await;
    let mut done = 0;
    for answer in answers {
        let Ok(answer) = answer else { continue };
        match answer.status() {
            StatusCode::CREATED => done += 1,
            StatusCode::SERVICE_UNAVAILABLE => assert!(answer.headers().contains_key("retry-after"), "{answer:?}"),
            other => panic!("{other}: {}", answer.text().await.unwrap_or_default()),
        }
    }
    assert!(done > 0, "nothing was taken");
    // And what was acknowledged is there.
    let tags: serde_json::Value =
        http().get(format!("http://{address}/v2/app/tags/list?n=1000")).send().await.unwrap().json().await.unwrap();
    assert!(tags["tags"].as_array().unwrap().len() >= done, "{done}: {tags}");
}
