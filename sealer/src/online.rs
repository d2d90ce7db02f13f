//! Talking over HTTP from a crate whose face is synchronous.

use std::time::Duration;

/// What every client of this crate is made from: no redirections, TLS by `ring`.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // An error means that the program has installed a provider already: that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("symseal/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
}

/// Does `work` within a time. It is one runtime on one thread of its own, as a caller may itself run inside a runtime. `failed`
/// makes an error of what went wrong beside the work.
pub(crate) fn within<T: Send, E: Send>(
    limit: Duration,
    work: impl AsyncFnOnce() -> Result<T, E> + Send,
    failed: impl Fn(String) -> E + Sync,
) -> Result<T, E> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(format!("no runtime: {error}")))?;
        runtime.block_on(async {
            // What is left of a limit is told as the limit.
            let late = || failed(format!("no answer within {} seconds", limit.as_secs_f32().ceil()));
            tokio::time::timeout(limit, work()).await.unwrap_or_else(|_| Err(late()))
        })
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(failed("the client ended without an answer".to_owned())))
}

/// An error with its causes: the outermost says little of what went wrong.
pub(crate) fn reasons(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
