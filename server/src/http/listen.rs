//! A socket for clients who may be slow.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// How much of an answer the kernel holds for a client beyond what is on its way to it, in bytes.
///
/// By itself it takes up to 4 MiB for each (`tcp_wmem`), so that some hundred clients who do not read use up the memory that all of TCP has, and the kernel
/// resets connections. What is on its way is bounded by the window that the client offers, so a fast and distant one gets as much as without this bound.
const UNSENT: u32 = 256 << 10;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_client_who_does_not_read_costs_the_kernel_little() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let client = tokio::net::TcpSocket::new_v4().unwrap();
        let window = 16 << 10;
        client.set_recv_buffer_size(window).unwrap();
        let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let mut accepted: TcpStream = listener.accept().await.unwrap().0;
        let (part, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), accepted.write(&part)).await {
            taken += written.unwrap();
            assert!(taken < 2 << 20, "the kernel takes {taken} bytes for a client who does not read");
        }
        drop(client);
    }
}
