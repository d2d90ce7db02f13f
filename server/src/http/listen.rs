//! A socket for clients who may be slow.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

/// How much of an answer the kernel holds for a client beyond what is on its way to it, in bytes.
///
/// By itself it takes up to 4 MiB for each (`tcp_wmem`), so that some hundred clients who do not read use up the memory that all of TCP has, and the kernel
/// resets connections. What is on its way is bounded by the window that the client offers, so a fast and distant one gets as much as without this bound.
const UNSENT: u32 = 256 << 10;

/// While fewer connections are open, a new one is not bound so: they cannot take much together (32 times 4 MiB), and a large file goes out in fewer steps, at a
/// fifth of the cost where several clients ask at once (`docs/performance.md`, "The server beside Debian's debuginfod").
const FEW: usize = 32;

/// Listens, with that bound for every connection that is accepted.
///
/// # Errors
/// Of the system: the address is taken, or not this machine's.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    // Accepted sockets take it over from the one that listens.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    socket2::SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT)?;
    Ok(listener)
}

/// Takes the bound off an accepted connection where, with it, few are `open`.
pub(crate) fn unbound_while_few(stream: &TcpStream, open: usize) {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    if open <= FEW {
        // What the system says for all. Where it cannot be had the bound stays.
        let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(0);
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    let _ = (stream, open);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Bytes that the kernel takes for a client who does not read, the connection being one of so many.
    async fn taken(open: usize) -> usize {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let client = tokio::net::TcpSocket::new_v4().unwrap();
        let window = 16 << 10;
        client.set_recv_buffer_size(window).unwrap();
        let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let mut accepted: TcpStream = listener.accept().await.unwrap().0;
        unbound_while_few(&accepted, open);
        let (part, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), accepted.write(&part)).await {
            taken += written.unwrap();
        }
        drop(client);
        taken
    }

    #[tokio::test]
    async fn a_client_who_does_not_read_costs_the_kernel_little_where_there_are_many() {
        let (few, many) = (taken(FEW).await, taken(FEW + 1).await);
        assert!(many < 2 << 20, "the kernel takes {many} bytes");
        assert!(few > many, "{few} bytes, and {many} where there are many");
    }
}
