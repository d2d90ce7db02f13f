//! The server's readers of headers, paths, queries and manifests: with the feature `server`.

pub(super) fn run(bytes: &[u8]) {
    symseal_server::fuzzing::read_requests(bytes);
}
