//! `GET /`: who answers here.

/// Scripts look for `debuginfod (` to know a debuginfod server.
pub(crate) async fn get() -> String {
    format!("debuginfod (symseal) {}\n", env!("CARGO_PKG_VERSION"))
}
