//! What stands between a server and its object store here: everything passes, but for blobs that are asked for while it is closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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
    /// Milliseconds that each request is held for, and how many there were.
    delay: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let gate = Self {
            port: listener.local_addr().unwrap().port(),
            blobs: Arc::default(),
            delay: Arc::default(),
            requests: Arc::default(),
        };
        let (blobs, delay, requests) = (Arc::clone(&gate.blobs), Arc::clone(&gate.delay), Arc::clone(&gate.requests));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (blobs, server) = (Arc::clone(&blobs), TcpStream::connect(("127.0.0.1", port)));
                let (delay, requests) = (Arc::clone(&delay), Arc::clone(&requests));
                std::thread::spawn(move || {
                    let Ok(server) = server else { return };
                    let (mut answers, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    let answering = std::thread::spawn(move || {
                        let _ = std::io::copy(&mut answers, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                    pass(&client, &server, &blobs, (&delay, &requests));
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
        self.delay.store(u64::try_from(each.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// How many requests came since this was asked last.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn let_blobs(&self, how: Blobs) {
        self.blobs.store(how as u8, Ordering::SeqCst);
    }
}

/// Passes on requests, whose heads come in one piece each.
fn pass(mut client: &TcpStream, mut server: &TcpStream, blobs: &AtomicU8, (delay, requests): (&AtomicU64, &AtomicU64)) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = client.read(&mut buffer) {
        let bytes = &buffer[..read];
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        if [&b"GET "[..], b"HEAD ", b"PUT ", b"POST "].iter().any(|method| line.starts_with(method)) {
            requests.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)));
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
