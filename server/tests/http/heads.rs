//! Heads of requests that no client library sends, as they are.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Running;

/// All that is answered until the server closes the connection.
async fn said(server: &Running, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test]
async fn bodies_that_come_otherwise_than_in_chunks_and_targets_of_other_schemes_are_refused_and_end_the_connection() {
    let data = tempfile::tempdir().unwrap();
    let server = Running::start(data.path()).await;
    let chunks = "5\r\naaaaa\r\n0\r\n\r\n";
    let push = "/v2/app/blobs/uploads/?digest=sha256:bf2cb58a68f684d95a3b78ef8f661c9a4e5b09e82cc8f9cc88cce90528caeb27";
    for encoding in ["gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        let request =
            format!("POST {push} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {encoding}\r\n\r\n{chunks}");
        let said = said(&server, &format!("{request}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 501 ") && said.contains("connection: close"), "{encoding}: {said}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{encoding}: {said}");
    }
    let plain = format!(
        "POST {push} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\naaaaa\r\n{chunks}"
    );
    assert!(said(&server, &plain).await.starts_with("HTTP/1.1 201 "));
    for (target, status) in [
        ("ftp://x/healthz", 421),
        ("gopher://x/t/secret/healthz", 421),
        ("http://localhost/healthz", 200),
        ("http://evil.example/v2/_catalog", 421),
        ("http://evil.example/t/x/v2/_catalog", 421),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let said = said(&server, &request).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {said}");
    }
}

#[tokio::test]
async fn the_audit_logs_own_ids_are_given_to_no_request() {
    let data = tempfile::tempdir().unwrap();
    let server = Running::start(data.path()).await;
    for (id, is_taken) in [("build-7", true), ("retention", false), ("takedown", false)] {
        let head = format!("Host: localhost\r\nConnection: close\r\nX-Request-Id: {id}");
        let said = said(&server, &format!("GET /healthz HTTP/1.1\r\n{head}\r\n\r\n")).await;
        assert_eq!(said.contains(&format!("x-request-id: {id}\r\n")), is_taken, "{said}");
    }
}
