//! What a client calls the server: the `Host` of its request.

use std::net::IpAddr;

use axum::http::{HeaderMap, Version, header};

/// What is told of one that [`is_called_once`] does not hold of.
pub(crate) const ONE_HOST: &str = "expected one Host header (RFC 9112, 3.2)";

/// Whether the request says once what it calls the server, as HTTP/1.1 asks for (RFC 9112, 3.2: else the answer has to be 400). Of two, a proxy in front may have
/// believed the other.
pub(crate) fn is_called_once(version: Version, headers: &HeaderMap) -> bool {
    let names = headers.get_all(header::HOST).iter().count();
    names == 1 || names == 0 && version != Version::HTTP_11
}

/// The name or address in `HOST[:PORT]`.
pub(crate) fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether it is a name of the machine that asks. Any other may belong to somebody who has it lead here.
pub(crate) fn is_this_machine(host: &str) -> bool {
    /// Beside `localhost` and what ends with it (RFC 6761, 6.3): what systems write into their tables of hosts.
    const NAMES: [&str; 3] = ["localhost.localdomain", "ip6-localhost", "ip6-loopback"];
    let name = name_of(host).to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name == "localhost"
        || name.ends_with(".localhost")
        || NAMES.contains(&name)
        || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_machine_is_not_this_one() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8791",
            "127.1.2.3",
            "[::1]:80",
            "[::1]",
            "localhost.:80",
            "app.localhost",
            "ip6-localhost",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8791",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost.evil",
            "evillocalhost",
            "[::2]:1",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
