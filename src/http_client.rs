//! The HTTP client of the commands themselves, where no room has one for what they ask.

/// What every client begins with: the cryptography of TLS is chosen for the process, by whoever needs it first.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // An error means that a room has installed a provider already: that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The address of a server may hold a token (`/t/TOKEN`), which is not for whoever the server leads to.
    reqwest::Client::builder().referer(false)
}
