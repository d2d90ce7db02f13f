//! The HTTP client of this crate.

/// What every client begins with: the cryptography of TLS is chosen for the process, by whoever needs it first.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // An error means that the program has installed a provider already: that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The address of a part of an upload is the registry's secret, and not for whoever the registry leads to.
    reqwest::Client::builder().referer(false).user_agent(concat!("symseal/", env!("CARGO_PKG_VERSION")))
}
