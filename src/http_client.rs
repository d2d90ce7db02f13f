//! The HTTP client of the commands themselves, where no room has one for what they ask.

/// What every client begins with: the cryptography of TLS is chosen for the process, by whoever needs it first.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // An error means that a room has installed a provider already: that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}
