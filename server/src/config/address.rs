//! Where a server listens, as people write it.

use std::net::{SocketAddr, ToSocketAddrs as _};

/// An address with its port, or a host's name: `127.0.0.1:8790`, `[::]:8790`, `localhost:8790`. Of a name that means several the first of IPv4 counts, as
/// clients try that for it too. Blocks where a name must be looked up.
///
/// # Errors
/// It is neither.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let expected = "expected ADDRESS:PORT or HOST:PORT, such as 127.0.0.1:8790";
    let found = text.to_socket_addrs().map_err(|error| format!("{error}: {expected}"))?;
    let all: Vec<SocketAddr> = found.collect();
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    first.copied().ok_or_else(|| format!("{text} is no address: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_name_is_an_address() {
        for (text, expected) in [
            ("127.0.0.1:8790", "127.0.0.1:8790"),
            ("[::]:1", "[::]:1"),
            ("localhost:8790", "127.0.0.1:8790"),
            ("localhost:0", "127.0.0.1:0"),
        ] {
            assert_eq!(parse_address(text).unwrap(), expected.parse().unwrap(), "{text}");
        }
        for text in ["", "here", "localhost", "localhost:", "localhost:x", "127.0.0.1", "127.0.0.1:70000"] {
            assert!(parse_address(text).unwrap_err().contains("expected ADDRESS:PORT"), "{text}");
        }
    }
}
