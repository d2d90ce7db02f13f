//! Talking to OCI registries: push, resume, pull, referrers.
//!
//! A bundle lies in an OCI layout on disk ([`symseal_bundle::LayoutDir`]); [`push`] sends it and its referrers to any
//! registry, [`pull`] brings it back. Blobs are streamed from and to files: memory does not grow with them. Bytes that
//! come in are checked against their digest before they are seen in the layout; a transfer that broke off goes on where
//! it stopped.
//!
//! Registries on loopback addresses are spoken to by HTTP, all others by HTTPS, unless [`Options::tls`] says otherwise.
//!
//! What is in a registry already is not moved again: [`push_with`] finds it at the destination, or mounts it there.
//! Credentials are those of `docker login` and its like ([`credentials`]), and are sent when a registry asks for them.
//!
//! The crate does not: verify seals (`symseal-bundle` does, offline), build manifests, or store credentials.
#![forbid(unsafe_code)]

mod blob_stream;
mod challenge;
mod client;
pub mod credentials;
mod elsewhere;
mod error;
mod manifests;
mod options;
mod part;
mod pull;
mod push;
mod redirects;
mod reference;
mod referrers;
mod repository;
mod resume;
mod session;
mod stage;
mod tags;
mod transfer;
mod tree;
mod upload;

pub use blob_stream::BlobStream;
pub use elsewhere::Elsewhere;
pub use error::RegistryError;
pub use oci_client::secrets::RegistryAuth;
pub use options::{Options, OtherNames, Progress, PushPlan, PushReport, Tls};
pub use pull::{PullReport, pull};
pub use push::{plan, push, push_with};
pub use redirects::{Redirections, redirects};
pub use reference::{ParseReferenceError, Reference, Target};
pub use repository::{BundleIndexes, FoundSeals, Repository};
pub use stage::{Staged, stage};

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
