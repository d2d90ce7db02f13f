//! How much of its answers the kernel holds for the clients together, beyond what is on its way to them.
//!
//! By itself it takes up to 4 MiB for each connection (`tcp_wmem`), so that some hundred clients who do not read use up the memory that all of TCP has, and
//! the kernel resets connections. What is on its way is bounded by the window that the client offers, so a fast and distant one gets as much as without a
//! bound. A small bound costs steps, though: a large file goes out at a fifth of the cost where the kernel takes megabytes of it at a time
//! (`docs/performance.md`, "The server beside Debian's debuginfod"). So the connections that are open share what there is, and all alike: where some may
//! have more than others, the others wait several times as long.

use std::sync::Arc;

use tokio::net::TcpStream;

/// What each connection may have in any case, in bytes. Less that is to be written needs no look at the bound.
pub(super) const LEAST: u32 = 256 << 10;

/// More than this the kernel does not take for one connection, unless it is told to (`tcp_wmem`).
const MOST: u32 = 4 << 20;

/// What all connections share where the system does not tell how much TCP may have.
const SHARED: u64 = 64 << 20;

/// What they share of what TCP may have. Connections that filled their share while few were open keep it, so that there can be several times as much.
const PART: u64 = 32;

/// What the connections of a server share. Each connection has a clone.
#[derive(Clone, Debug)]
pub(crate) struct Unsent {
    connections: Arc<()>,
    shared: u64,
}

impl Unsent {
    /// A part of the memory that the system lets TCP have.
    pub(crate) fn of_the_system() -> Self {
        let told = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok();
        Self { connections: Arc::new(()), shared: told.and_then(|told| part(&told)).unwrap_or(SHARED) }
    }

    /// The bound for each connection at this time: a power of two, so that it seldom changes.
    fn each(&self) -> u32 {
        // One clone is the server's own.
        let open = (Arc::strong_count(&self.connections) as u64).saturating_sub(1).max(1);
        let each = u32::try_from(self.shared / open).unwrap_or(MOST).clamp(LEAST, MOST);
        1 << each.ilog2()
    }
}

/// Of the third number, in pages: the most that all sockets may have.
fn part(tcp_mem: &str) -> Option<u64> {
    let pages: u64 = tcp_mem.split_whitespace().nth(2)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64) / PART)
}

/// The share of one connection.
#[derive(Debug)]
pub(super) struct Bound {
    unsent: Unsent,
    /// As the system has it.
    bytes: u32,
    /// Bytes since the last look.
    written: usize,
}

impl Bound {
    /// Of a stream that was accepted of [`super::listen`].
    pub(super) fn new(stream: &TcpStream, unsent: &Unsent) -> Self {
        let mut bound = Self { unsent: unsent.clone(), bytes: LEAST, written: 0 };
        bound.adapt(stream, usize::MAX);
        bound
    }

    /// Takes the share that the connection has now, where `length` bytes that are to be written could fill it, with what went before them: what is
    /// encrypted comes in small records.
    pub(super) fn adapt(&mut self, stream: &TcpStream, length: usize) {
        self.written = self.written.saturating_add(length);
        if self.written < LEAST as usize {
            return;
        }
        self.written = 0;
        let bytes = self.unsent.each();
        if bytes != self.bytes {
            #[cfg(any(target_os = "linux", target_os = "macos"))]
            // Where it cannot be had, the bound that there is stays.
            let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(bytes);
            #[cfg(not(any(target_os = "linux", target_os = "macos")))]
            let _ = stream;
            self.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::http::{Breakable, listen};

    #[test]
    fn connections_share_what_there_is() {
        let unsent = Unsent { connections: Arc::new(()), shared: 64 << 20 };
        let mut open = Vec::new();
        let mut found = Vec::new();
        for count in [1, 16, 17, 32, 33, 64, 65, 128, 256, 10_000] {
            open.resize(count, unsent.clone());
            found.push(unsent.each() >> 10);
        }
        assert_eq!(found, [4096, 4096, 2048, 2048, 1024, 1024, 512, 512, 256, 256]);
        drop(open);
        assert_eq!(unsent.each(), MOST);
    }

    #[test]
    fn the_system_tells_how_much_there_is() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(part("287901\t383869\t575802\n"), Some(575_802 * page / 32));
        assert_eq!(part("287901 383869"), None);
        assert_eq!(part("a b c"), None);
        assert_eq!(part(&format!("0 0 {}", u64::MAX)), Some(u64::MAX / PART));
    }

    /// Bytes that the kernel takes for a client who does not read, where so many others are open when it is accepted, and so many later.
    async fn taken(at_first: usize, later: usize) -> usize {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let client = tokio::net::TcpSocket::new_v4().unwrap();
        let window = 16 << 10;
        client.set_recv_buffer_size(window).unwrap();
        let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let unsent = Unsent { connections: Arc::new(()), shared: 64 << 20 };
        let mut others = vec![unsent.clone(); at_first];
        let mut accepted = Breakable::new(listener.accept().await.unwrap().0, &unsent);
        others.resize(later, unsent.clone());
        // A record of TLS.
        let (part, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), accepted.write(&part)).await {
            taken += written.unwrap();
        }
        drop(client);
        taken
    }

    #[tokio::test]
    async fn a_client_who_does_not_read_costs_the_kernel_little_where_there_are_many() {
        let (few, many) = (taken(1, 1).await, taken(1000, 1000).await);
        assert!(many < 2 << 20, "the kernel takes {many} bytes");
        assert!(few > many, "{few} bytes, and {many} where there are many");
        let (became_many, became_few) = (taken(1, 1000).await, taken(1000, 1).await);
        assert!(became_many < 2 << 20, "the kernel takes {became_many} bytes");
        assert!(became_few > many, "{became_few} bytes, and {many} where there are many");
    }
}
