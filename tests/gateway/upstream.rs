//! A server that does with each request what a test says.

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
    /// 200 with these bytes, said to be so many.
    Announces(usize, Vec<u8>),
    /// 200 with the first bytes, a pause, then the others.
    Pauses(Vec<u8>, Duration, Vec<u8>),
    /// Bytes without end.
    NeverEnds,
    /// 200 with these bytes in a coding that nobody asked for.
    Encodes(Vec<u8>),
    /// 302.
    Redirects(String),
}

/// Ends with the process: connections are threads of it.
pub(crate) struct Upstream {
    pub(crate) url: String,
    paths: Arc<Mutex<HashMap<String, Does>>>,
    asked: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, paths: Arc::default(), asked: Arc::default() };
        let (paths, asked) = (this.paths.clone(), this.asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (paths, asked) = (paths.clone(), asked.clone());
                std::thread::spawn(move || answer(stream, &paths, &asked));
            }
        });
        this
    }

    pub(crate) fn does(&self, path: &str, does: Does) {
        self.paths.lock().unwrap().insert(path.to_owned(), does);
    }

    /// Requests for files so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, paths: &Mutex<HashMap<String, Does>>, asked: &AtomicUsize) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let does = paths.lock().unwrap().get(&path).cloned();
    asked.fetch_add(usize::from(!path.starts_with("/api/") && path != "/"), Ordering::SeqCst);
    let ok = |length: usize, more: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n").into_bytes()
    };
    match does {
        None => {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found").ok()
        }
        Some(Does::Gives(bytes)) => stream.write_all(&[ok(bytes.len(), ""), bytes].concat()).ok(),
        Some(Does::Announces(length, bytes)) => stream.write_all(&[ok(length, ""), bytes].concat()).ok(),
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
