//! What stands between a server and its object store here: everything passes, but for blobs that are asked for while it is closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a gate treats requests for blobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blobs {
    Pass,
    /// The connection breaks.
    Break,
    /// They wait until they may pass.
    Wait,
}

/// A gate on a port of its own. Its threads end with the test.
pub(crate) struct Gate {
    pub(crate) port: u16,
    blobs: Arc<AtomicU8>,
    requests: Arc<Requests>,
    answer: Arc<Mutex<Option<Answer>>>,
}

/// What some requests are answered with in the place of the object store.
struct Answer {
    /// What their lines begin with, and a part of these.
    method: &'static str,
    part: String,
    bytes: Vec<u8>,
}

/// What becomes of all requests.
#[derive(Default)]
struct Requests {
    /// Milliseconds that each is held for.
    delay: AtomicU64,
    /// How many there were.
    seen: AtomicU64,
    /// How many are held now, and the most that ever were at one time.
    held: AtomicU64,
    most_held: AtomicU64,
}

impl Requests {
    fn hold_one(&self) {
        self.seen.fetch_add(1, Ordering::SeqCst);
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_held.fetch_max(held, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(self.delay.load(Ordering::SeqCst)));
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port_here, answer) = (listener.local_addr().unwrap().port(), Arc::default());
        let gate = Self { port: port_here, blobs: Arc::default(), requests: Arc::default(), answer };
        let (blobs, requests) = (Arc::clone(&gate.blobs), Arc::clone(&gate.requests));
        let answer = Arc::clone(&gate.answer);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (blobs, server) = (Arc::clone(&blobs), TcpStream::connect(("127.0.0.1", port)));
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Ok(server) = server else { return };
                    let (mut answers, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    let answering = std::thread::spawn(move || {
                        let _ = std::io::copy(&mut answers, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                    pass(&client, &server, &blobs, &requests, &answer);
                    for side in [client, server] {
                        let _ = side.shutdown(Shutdown::Both);
                    }
                    let _ = answering.join();
                });
            }
        });
        gate
    }

    /// Holds each request for so long.
    pub(crate) fn hold(&self, each: Duration) {
        self.requests.delay.store(u64::try_from(each.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// How many requests came since this was asked last.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.seen.swap(0, Ordering::SeqCst)
    }

    /// The most requests that were held at one time since this was asked last.
    pub(crate) fn most_held(&self) -> u64 {
        self.requests.most_held.swap(0, Ordering::SeqCst)
    }

    /// Answers requests with this method, and this in their path, by itself: with these bytes, after which the connection ends.
    pub(crate) fn answer(&self, method: &'static str, part: &str, bytes: &[u8]) {
        let answer = Answer { method, part: part.to_owned(), bytes: bytes.to_vec() };
        *self.answer.lock().unwrap() = Some(answer);
    }

    /// Passes all on again.
    pub(crate) fn answer_nothing(&self) {
        *self.answer.lock().unwrap() = None;
    }

    pub(crate) fn let_blobs(&self, how: Blobs) {
        self.blobs.store(how as u8, Ordering::SeqCst);
    }
}

/// Passes on requests, whose heads come in one piece each.
fn pass(
    mut client: &TcpStream,
    mut server: &TcpStream,
    blobs: &AtomicU8,
    requests: &Requests,
    answer: &Mutex<Option<Answer>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = client.read(&mut buffer) {
        let bytes = &buffer[..read];
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        if [&b"GET "[..], b"HEAD ", b"PUT ", b"POST "].iter().any(|method| line.starts_with(method)) {
            requests.hold_one();
        }
        let answered = answer.lock().unwrap().as_ref().and_then(|answer| {
            let line = String::from_utf8_lossy(line);
            (line.starts_with(answer.method) && line.contains(&answer.part)).then(|| answer.bytes.clone())
        });
        if let Some(bytes) = answered {
            let _ = client.write_all(&bytes);
            return;
        }
        let is_for_blob = line.starts_with(b"GET ") && line.windows(7).any(|part| part == b"/blobs/");
        while is_for_blob && blobs.load(Ordering::SeqCst) == Blobs::Wait as u8 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_broken = is_for_blob && blobs.load(Ordering::SeqCst) == Blobs::Break as u8;
        if read == 0 || is_broken || server.write_all(bytes).is_err() {
            return;
        }
    }
}
