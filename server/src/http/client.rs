//! Clients of the server itself.

use reqwest::ClientBuilder;

/// What every client of other servers begins with: the cryptography of TLS is chosen for the process, by whoever needs it first.
pub(crate) fn client() -> ClientBuilder {
    choose_cryptography();
    // The address that an operator gave may hold a token (`/t/TOKEN`), which is not for whoever a server leads to.
    reqwest::Client::builder().referer(false)
}

/// The same for a client that another library makes.
pub(crate) fn choose_cryptography() {
    // Another part of the program may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
