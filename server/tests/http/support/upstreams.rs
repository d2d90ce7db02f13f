//! Other servers, which answer as they are told.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symseal_server::{Origins, Patience};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::noise;
use super::programs::run;

/// A program with a build-id, and bytes behind its code that do not repeat, as large debug information is.
pub(crate) fn compile(folder: &Path, name: &str, id: &str, bytes: usize) -> PathBuf {
    let (source, binary) = (folder.join(format!("{name}.c")), folder.join(name));
    let blob = folder.join(format!("{name}.bin"));
    std::fs::write(&blob, noise(bytes, 7)).unwrap();
    let text = format!(
        "__asm__(\".section .debug_noise,\\\"\\\",@progbits\\n.incbin \\\"{}\\\"\\n.previous\\n\"); int main(void) {{ return 0; }}\n",
        blob.display()
    );
    std::fs::write(&source, text).unwrap();
    let id = format!("-Wl,--build-id=0x{id}");
    run("cc", &[source.to_str().unwrap(), "-g", "-o", binary.to_str().unwrap(), &id]);
    binary
}

pub(crate) fn asking(upstreams: &[String]) -> Origins {
    let patience = Patience {
        connect: Duration::from_secs(1),
        head: Duration::from_secs(2),
        silence: Duration::from_secs(2),
        stall: Duration::from_secs(2),
        pause: Duration::from_millis(400),
        absence: Duration::from_secs(60),
    };
    Origins { upstreams: upstreams.to_vec(), patience, ..Origins::default() }
}

/// A server that answers every request as it is told.
pub(crate) struct Told {
    pub(crate) url: String,
    does: Arc<Mutex<Does>>,
    heads: Arc<Mutex<Vec<String>>>,
    asked: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
}

/// What a told server does with a connection whose request it has read.
#[derive(Clone)]
pub(crate) enum Does {
    /// Sends these bytes, then closes.
    Sends(Vec<u8>),
    /// Sends what stands beside the beginning of the path, the first that fits, then closes.
    ByPath(Vec<(String, Vec<u8>)>),
    /// Waits first.
    SendsLater(Duration, Vec<u8>),
    /// Waits before it sends a file, and answers everything else at once.
    IsBusy(Duration, Vec<u8>),
    /// Sends the first bytes, waits until it is told, sends the rest.
    SendsInTwo(Vec<u8>, Arc<tokio::sync::Notify>, Vec<u8>),
    /// Sends these bytes, then others for as long as somebody takes them.
    NeverEnds(Vec<u8>),
    /// Sends these bytes, then one now and then.
    Trickles(Vec<u8>),
    /// Waits for ever.
    Sleeps,
}

impl Told {
    pub(crate) async fn does(does: Does) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, sent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let does = Arc::new(Mutex::new(does));
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let this = Self { url, does: does.clone(), heads: heads.clone(), asked: asked.clone(), sent: sent.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let does = does.lock().unwrap().clone();
                tokio::spawn(answer(stream, does, heads.clone(), asked.clone(), sent.clone()));
            }
        });
        this
    }

    /// From the next request on.
    pub(crate) fn does_now(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    /// What was asked so far, each with its headers.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Bytes that went out without an end, or that were taken into buffers on their way.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

async fn answer(
    mut stream: TcpStream,
    does: Does,
    heads: Arc<Mutex<Vec<String>>>,
    asked: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let is_of_file = head.starts_with(b"GET /buildid") || head.starts_with(b"GET /app");
    if is_of_file || head.starts_with(b"GET /metadata") {
        asked.fetch_add(1, Ordering::SeqCst);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(text);
    match does {
        Does::ByPath(answers) => {
            let found = answers.into_iter().find(|(start, _)| path.starts_with(start));
            let absent = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
            drop(stream.write_all(&found.map_or(absent, |(_, bytes)| bytes)).await)
        }
        Does::Sends(bytes) => drop(stream.write_all(&bytes).await),
        Does::SendsLater(pause, bytes) => {
            tokio::time::sleep(pause).await;
            let _ = stream.write_all(&bytes).await;
        }
        Does::IsBusy(..) if !is_of_file => {
            drop(stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await)
        }
        Does::IsBusy(pause, bytes) => {
            tokio::time::sleep(pause).await;
            let _ = stream.write_all(&bytes).await;
        }
        Does::SendsInTwo(first, go_on, rest) => {
            let _ = stream.write_all(&first).await;
            go_on.notified().await;
            let _ = stream.write_all(&rest).await;
        }
        Does::NeverEnds(first) => {
            let block = noise(64 << 10, 3);
            let _ = stream.write_all(&first).await;
            while stream.write_all(&block).await.is_ok() {
                sent.fetch_add(block.len(), Ordering::SeqCst);
            }
        }
        Does::Trickles(first) => {
            let _ = stream.write_all(&first).await;
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Does::Sleeps => tokio::time::sleep(Duration::from_secs(600)).await,
    }
}

/// The head of an answer with more headers, and a body.
pub(crate) fn answer_with(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{headers}Connection: close\r\n\r\n").as_bytes(), body].concat()
}

/// The answer that leads to another place.
pub(crate) fn leads_to(place: &str) -> Vec<u8> {
    let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n";
    format!("{head}Location: {place}\r\n\r\n").into_bytes()
}

pub(crate) fn ok(length: usize, body: &[u8]) -> Vec<u8> {
    answer_with(&format!("Content-Length: {length}\r\nX-DEBUGINFOD-FILE: /usr/bin/app\r\n"), body)
}
