//! Talking to OCI registries: push, resume, pull, referrers.
//!
//! A bundle lies in an OCI layout on disk ([`symseal_bundle::LayoutDir`]); [`push`] sends it and its referrers to any
//! registry, [`pull`] brings it back. Blobs are streamed from and to files: memory does not grow with them. Bytes that
//! come in are checked against their digest before they are seen in the layout; a transfer that broke off goes on where
//! it stopped.
//!
//! Registries on loopback addresses are spoken to by HTTP, all others by HTTPS.
//!
//! The crate does not: verify seals (`symseal-bundle` does, offline), build manifests, or keep credentials.
#![forbid(unsafe_code)]

mod error;
mod manifests;
mod options;
mod pull;
mod push;
mod reference;
mod referrers;
mod session;
mod transfer;
mod upload;

pub use error::RegistryError;
pub use oci_client::secrets::RegistryAuth;
pub use options::{Options, Progress, PushReport};
pub use pull::pull;
pub use push::push;
pub use reference::{ParseReferenceError, Reference, Target};

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}

    #[test]
    fn transfers_may_run_on_any_thread() {
        let layout = symseal_bundle::LayoutDir::create(tempfile::tempdir().unwrap().path()).unwrap();
        let reference = Reference::parse("localhost/a").unwrap();
        let (options, digest) = (Options::default(), symseal_bundle::Digest::of(b""));
        is_send(&push(&layout, &digest, &reference, &options));
        is_send(&pull(&reference, &layout, &options));
    }
}
