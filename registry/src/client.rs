//! The HTTP client of this crate.

/// What every client begins with: the cryptography of TLS is chosen for the process, by whoever needs it first.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // An error means that the program has installed a provider already: that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().user_agent(concat!("symseal/", env!("CARGO_PKG_VERSION")))
}
