//! A socket for clients who may be slow.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::unsent::LEAST;

/// Listens. What is accepted begins with the least bound (see `Unsent`).
///
/// # Errors
/// Of the system: the address is taken, or not this machine's.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    // Accepted sockets take it over from the one that listens.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    socket2::SockRef::from(&listener).set_tcp_notsent_lowat(LEAST)?;
    Ok(listener)
}
