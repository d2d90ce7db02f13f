//! A server in this process and layouts to push.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::net::SocketAddr;
use std::path::Path;

use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Options, Reference, RegistryAuth};
use symseal_server::{Config, Server};

/// A server that lives as long as the test's runtime.
pub(crate) async fn serve(data: &Path) -> SocketAddr {
    let server = Server::bind(Config::new(data, ([127, 0, 0, 1], 0).into())).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(async move { server.run(std::future::pending::<()>()).await.unwrap() });
    address
}

pub(crate) fn reference(address: impl std::fmt::Display, rest: &str) -> Reference {
    Reference::parse(&format!("{address}/{rest}")).unwrap()
}

/// Options of a user, that do not make a test wait.
pub(crate) fn login(user: &str, password: &str) -> Options {
    Options { auth: RegistryAuth::Basic(user.into(), password.into()), tries: 2, ..Options::default() }
}

pub(crate) fn layout(root: &tempfile::TempDir, name: &str) -> LayoutDir {
    LayoutDir::create(root.path().join(name)).unwrap()
}

/// An image index over one manifest with these files, in a layout; its digest.
pub(crate) fn artifact(layout: &LayoutDir, files: &[Vec<u8>], subject: Option<&Descriptor>) -> Digest {
    for bytes in files {
        layout.write_blob(bytes).unwrap();
    }
    let layers = files
        .iter()
        .enumerate()
        .map(|(at, bytes)| Descriptor::of("application/octet-stream", bytes).with(oci::TITLE, format!("file-{at}")));
    layout.write_blob(oci::EMPTY_JSON).unwrap();
    let manifest = Manifest::artifact("application/vnd.example.v1", layers.collect()).to_bytes().unwrap();
    layout.write_blob(&manifest).unwrap();
    let mut index = ImageIndex::new(Some("application/vnd.example.v1"), vec![Descriptor::of(oci::MANIFEST, &manifest)]);
    index.subject = subject.cloned();
    index.annotations.insert("note".into(), "an artifact".into());
    let index = index.to_bytes().unwrap();
    let digest = layout.write_blob(&index).unwrap();
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &index), Some("v1")).unwrap();
    digest
}
