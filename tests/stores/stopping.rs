//! A server that is told to end while clients are in the middle of something.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::program::{RunningServer, tool};
use crate::scene::{ask, get, noise, server, sha256, wait_until};

/// More than the buffers of a connection hold.
const LARGE: usize = 48 << 20;

/// A connection, and what was sent on it.
fn send(address: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{head}\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// The head of an answer, and what of its body came along.
fn head(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            return (String::from_utf8(read).unwrap(), body);
        }
        let more = stream.read(&mut buffer).unwrap();
        assert!(more > 0, "{}", String::from_utf8_lossy(&read));
        read.extend(&buffer[..more]);
    }
}

fn push(folder: &std::path::Path, server: &RunningServer, bytes: &[u8]) -> String {
    let (file, digest) = (folder.join("blob"), sha256(bytes));
    std::fs::write(&file, bytes).unwrap();
    let body = format!("@{}", file.display());
    let path = format!("/v2/app/blobs/uploads/?digest={digest}");
    let pushed = ask(&server.address, &path, &["--request", "POST", "--data-binary", &body]);
    assert_eq!(pushed.status, 201, "{pushed:?}");
    format!("/v2/app/blobs/{digest}")
}

fn signal(server: &RunningServer, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &server.id().to_string()]).status().unwrap().success());
}

fn terminate(server: &RunningServer) {
    signal(server, "TERM");
    wait_until("no new client is taken", || TcpStream::connect(&server.address).is_err());
}

#[test]
fn a_download_and_an_upload_under_way_are_finished_before_the_server_ends() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let mut running = server(&data, &[], &[]);
    let (large, other) = (noise(LARGE, 1), noise(2 << 20, 2));
    let blob = push(root.path(), &running, &large);

    let mut reading = send(&running.address, &format!("GET {blob} HTTP/1.1"), b"");
    let (told, mut got) = head(&mut reading);
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    let (first, rest) = other.split_at(other.len() / 2);
    let digest = sha256(&other);
    let upload = format!(
        "POST /v2/app/blobs/uploads/?digest={digest} HTTP/1.1\r\nContent-Type: application/octet-stream\r\nContent-Length: {}",
        other.len()
    );
    let mut writing = send(&running.address, &upload, first);
    // The second half of the upload is sent when the server was told to end, and so is the most of the download read.
    std::thread::sleep(Duration::from_millis(300));
    terminate(&running);

    writing.write_all(rest).unwrap();
    let (told, _) = head(&mut writing);
    assert!(told.starts_with("HTTP/1.1 201"), "{told}");
    reading.read_to_end(&mut got).unwrap();
    assert!(got == large, "{} of {LARGE} bytes", got.len());
    assert_eq!(running.wait().code(), Some(0));

    let again = server(&data, &[], &[]);
    let kept = get(&again.address, &format!("/v2/app/blobs/{digest}"));
    assert!(kept.status == 200 && kept.body == other, "{}", kept.status);
}

#[test]
fn a_client_that_reads_no_further_holds_up_the_end_for_as_long_as_the_operator_says() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let mut running = server(&root.path().join("data"), &[], &[("SYMSEAL_SERVER_STOP_WITHIN", "1s".to_owned())]);
    let blob = push(root.path(), &running, &noise(LARGE, 1));
    let mut reading = send(&running.address, &format!("GET {blob} HTTP/1.1"), b"");
    let (_, mut got) = head(&mut reading);
    terminate(&running);
    assert_eq!(running.wait().code(), Some(0));
    // What it did not read is cut off, and is not taken for a whole body, whose length was said.
    let _ = reading.read_to_end(&mut got);
    assert!(got.len() < LARGE);
}

/// elfutils' client keeps "there is no such file" for ten minutes of a connection that is closed in order before it was answered, and its request may be on the way.
#[test]
fn a_connection_that_was_not_answered_yet_is_reset_when_the_server_ends() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let mut running = server(root.path(), &[], &[]);
    let connect = || {
        let stream = TcpStream::connect(&running.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let (mut fresh, mut answered) = (connect(), send(&running.address, "GET /healthz HTTP/1.1", b""));
    let (told, _) = head(&mut answered);
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    // The server has taken the connection when it has answered a later one.
    assert_eq!(get(&running.address, "/healthz").status, 200);
    terminate(&running);
    let (mut byte, reset) = ([0], std::io::ErrorKind::ConnectionReset);
    assert_eq!(fresh.read(&mut byte).map_err(|error| error.kind()), Err(reset), "not answered");
    let mut rest = Vec::new();
    assert_eq!(answered.read_to_end(&mut rest).map_err(|error| error.kind()), Ok(rest.len()), "answered");
    assert_eq!(running.wait().code(), Some(0));
}

/// Those who rotate logs and renew certificates send them, and systemd counts an end by SIGHUP as one that was wanted.
#[test]
fn signals_of_habit_do_not_end_a_server() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let mut running = server(root.path(), &[], &[]);
    for name in ["HUP", "USR1", "USR2"] {
        signal(&running, name);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(get(&running.address, "/healthz").status, 200, "{name}");
    }
    terminate(&running);
    assert_eq!(running.wait().code(), Some(0));
}
