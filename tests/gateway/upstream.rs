//! A server that does with each request what a test says, alone or in front of a real one.
#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a path is answered with.
#[derive(Clone)]
pub(crate) enum Does {
    /// 200 with these bytes.
    Gives(Vec<u8>),
    /// 200 with these headers, each with its line's end, and these bytes.
    GivesWith(String, Vec<u8>),
    /// 200 with these bytes, said to be so many.
    Announces(usize, Vec<u8>),
    /// 200 with these bytes, whose end is that of the connection.
    EndsWithIt(Vec<u8>),
    /// 200 with the first bytes, a pause, then the others.
    Pauses(Vec<u8>, Duration, Vec<u8>),
    /// Bytes without end.
    NeverEnds,
    /// 200 with these bytes in a coding that nobody asked for.
    Encodes(Vec<u8>),
    /// 302.
    Redirects(String),
    /// A status with its text and headers, and a body.
    Says(&'static str, String),
    /// What each request is answered with, one after the other; the last one stays.
    InTurn(Vec<Does>),
    /// What the real server answers.
    Passes,
}

/// Ends with the process: connections are threads of it.
pub(crate) struct Upstream {
    pub(crate) url: String,
    paths: Arc<Mutex<HashMap<String, Does>>>,
    asked: Arc<AtomicUsize>,
}

/// What the threads of a server share.
#[derive(Clone)]
struct Shared {
    paths: Arc<Mutex<HashMap<String, Does>>>,
    asked: Arc<AtomicUsize>,
    /// Who answers what nothing is said of.
    behind: Option<String>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        Self::new(None)
    }

    /// In front of the server at this address.
    pub(crate) fn before(address: &str) -> Self {
        Self::new(Some(address.to_owned()))
    }

    fn new(behind: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, paths: Arc::default(), asked: Arc::default() };
        let shared = Shared { paths: this.paths.clone(), asked: this.asked.clone(), behind };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        this
    }

    pub(crate) fn does(&self, path: &str, does: Does) {
        self.paths.lock().unwrap().insert(path.to_owned(), does);
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Requests for files so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let does = match shared.paths.lock().unwrap().get_mut(&path) {
        Some(Does::InTurn(turns)) if turns.len() > 1 => Some(turns.remove(0)),
        Some(Does::InTurn(turns)) => turns.first().cloned(),
        does => does.cloned(),
    };
    shared.asked.fetch_add(usize::from(!path.starts_with("/api/") && path != "/"), Ordering::SeqCst);
    let ok = |length: usize, more: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n").into_bytes()
    };
    match does {
        None | Some(Does::Passes) if shared.behind.is_some() => {
            let mut behind = TcpStream::connect(shared.behind.as_deref()?).ok()?;
            let head = head.strip_suffix("\r\n")?;
            behind.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
            std::io::copy(&mut behind, &mut stream).ok().map(drop)
        }
        Some(Does::Says(head, body)) => {
            let length = body.len();
            let text = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).ok()
        }
        None | Some(Does::Passes | Does::InTurn(_)) => {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found").ok()
        }
        Some(Does::Gives(bytes)) => stream.write_all(&[ok(bytes.len(), ""), bytes].concat()).ok(),
        Some(Does::GivesWith(headers, bytes)) => stream.write_all(&[ok(bytes.len(), &headers), bytes].concat()).ok(),
        Some(Does::Announces(length, bytes)) => stream.write_all(&[ok(length, ""), bytes].concat()).ok(),
        Some(Does::EndsWithIt(bytes)) => {
            stream.write_all(&[&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..], &bytes].concat()).ok()
        }
        Some(Does::Pauses(first, pause, rest)) => {
            stream.write_all(&[ok(first.len() + rest.len(), ""), first].concat()).ok()?;
            std::thread::sleep(pause);
            stream.write_all(&rest).ok()
        }
        Some(Does::NeverEnds) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok()?;
            loop {
                stream.write_all(&[7; 64 << 10]).ok()?;
            }
        }
        Some(Does::Encodes(bytes)) => {
            stream.write_all(&[ok(bytes.len(), "Content-Encoding: gzip\r\n"), bytes].concat()).ok()
        }
        Some(Does::Redirects(to)) => {
            let text =
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(text.as_bytes()).ok()
        }
    }
}
