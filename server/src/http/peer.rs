//! Who is at the other end of the connection.

use std::net::IpAddr;

/// The address of the client, or of the proxy before it; an extension of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);
