//! The address that the server listens on.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::Finding;
use super::process::{Process, of_port};

pub(super) fn look(address: SocketAddr, server: Option<&Process>) -> Finding {
    const ID: &str = "listen.address";
    if address.port() == 0 {
        return Finding::ok(ID, format!("{address}: a free port is taken at the start"));
    }
    // Given back at once: nobody can have been accepted.
    let error = match TcpListener::bind(address) {
        Ok(_) => return Finding::ok(ID, format!("{address} is free")),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::AddrInUse => match of_port(address) {
            Some(process) if Some(&process) == server => Finding::ok(ID, format!("{process} serves on {address}")),
            Some(process) => Finding::problem(
                ID,
                format!("{address} is taken by {process}, which is not the server of this data directory"),
                "end that process, or choose another address (listen)",
            ),
            None => Finding::warning(
                ID,
                format!("{address} is taken by a process that this user is not told of"),
                "run this as root to learn which; if it is not this server, choose another address (listen)",
            ),
        },
        ErrorKind::PermissionDenied => Finding::warning(
            ID,
            format!("{address}: this user may not listen there"),
            "let the server's unit have CAP_NET_BIND_SERVICE, or choose a port above 1023 (listen)",
        ),
        _ => Finding::problem(ID, format!("{address}: {error}"), "choose an address of this machine (listen)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Standing;

    #[test]
    fn a_port_is_free_or_somebodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = look(address, None);
        assert_eq!(taken.standing, Standing::Problem, "{taken:?}");
        assert!(taken.found.contains(&std::process::id().to_string()), "{taken:?}");
        assert_eq!(look(address, of_port(address).as_ref()).standing, Standing::Ok);
        drop(listener);
        assert_eq!(look(address, None).standing, Standing::Ok);
        // An address for documents (RFC 5737), which no machine has.
        assert_eq!(look(([192, 0, 2, 1], 80).into(), None).standing, Standing::Problem);
    }
}
