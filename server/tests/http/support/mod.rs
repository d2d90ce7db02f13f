//! A server in this process, layouts to push, and a network that breaks.
#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod debuginfod;
pub(crate) mod foreign;
pub(crate) mod nginx;
pub(crate) mod postgres;
pub(crate) mod programs;
pub(crate) mod sealing;
pub(crate) mod upstreams;

use std::net::SocketAddr;
use std::path::Path;

use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Options, Reference};
use symseal_server::{Config, Origins, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server. Dropping it leaves it running until the runtime ends; [`Running::stop`] ends it in order.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) collector: std::sync::Arc<symseal_server::Collector>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(data: &Path) -> Self {
        Self::start_with(data, &Origins::default()).await
    }

    /// One as it is configured.
    pub(crate) async fn start_as(config: Config) -> Self {
        Self::run(Server::bind(config).await.unwrap())
    }

    /// One that answers from other places too.
    pub(crate) async fn start_with(data: &Path, origins: &Origins) -> Self {
        Self::run(Server::bind(config(data)).await.unwrap().with_origins(origins).unwrap())
    }

    /// One that judges seals.
    pub(crate) async fn start_judging(data: &Path, rules: symseal_server::SealRules) -> Self {
        Self::run(Server::bind(config(data)).await.unwrap().judging(rules).await.unwrap())
    }

    /// One that listens at a known place.
    pub(crate) async fn start_at(data: &Path, address: SocketAddr, origins: &Origins) -> Self {
        let server = Server::bind(Config::new(data, address)).await.unwrap();
        Self::run(server.with_origins(origins).unwrap())
    }

    pub(crate) fn run(server: Server) -> Self {
        let (address, collector) = (server.local_addr(), server.collector());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            server.run(async { drop(stopped.await) }).await.unwrap();
        });
        Self { address, collector, stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn reference(&self, rest: &str) -> Reference {
        reference(self.address, rest)
    }
}

fn config(data: &Path) -> Config {
    Config::new(data, ([127, 0, 0, 1], 0).into())
}

pub(crate) fn reference(address: SocketAddr, rest: &str) -> Reference {
    Reference::parse(&format!("{address}/{rest}")).unwrap()
}

/// Options that do not make a test wait.
pub(crate) fn options() -> Options {
    Options { stall_timeout: std::time::Duration::from_secs(20), ..Options::default() }
}

pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Bytes that do not repeat, the same for the same seed.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// An image index over one manifest for each group of files, in a layout; its digest.
pub(crate) fn artifact(layout: &LayoutDir, groups: &[&[Vec<u8>]]) -> Digest {
    layout.write_blob(oci::EMPTY_JSON).unwrap();
    let children = groups.iter().map(|files| {
        let layers = files.iter().enumerate().map(|(at, bytes)| {
            layout.write_blob(bytes).unwrap();
            Descriptor::of("application/octet-stream", bytes).with(oci::TITLE, format!("file-{at}"))
        });
        let manifest = Manifest::artifact("application/vnd.example.v1", layers.collect()).to_bytes().unwrap();
        layout.write_blob(&manifest).unwrap();
        Descriptor::of(oci::MANIFEST, &manifest)
    });
    let index = ImageIndex::new(Some("application/vnd.example.v1"), children.collect()).to_bytes().unwrap();
    let digest = layout.write_blob(&index).unwrap();
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &index), Some("v1")).unwrap();
    digest
}

/// A manifest that refers to `subject`; its digest.
pub(crate) fn referrer(layout: &LayoutDir, subject: &Digest, text: &str) -> Digest {
    layout.write_blob(text.as_bytes()).unwrap();
    let subject_bytes = layout.read_blob(subject, oci::MAX_MANIFEST_BYTES).unwrap();
    let mut manifest =
        Manifest::artifact("application/vnd.example.note.v1", vec![Descriptor::of("text/plain", text.as_bytes())]);
    manifest.subject = Some(Descriptor::of(oci::IMAGE_INDEX, &subject_bytes));
    manifest.annotations.insert("note".into(), text.into());
    let bytes = manifest.to_bytes().unwrap();
    let digest = layout.write_blob(&bytes).unwrap();
    layout.add_to_index(Descriptor::of(oci::MANIFEST, &bytes), None).unwrap();
    digest
}

/// Puts a manifest without layers, with more in it, by its digest; its descriptor, or the status that refused it.
pub(crate) async fn put_manifest(
    http: &reqwest::Client,
    server: &Running,
    repository: &str,
    more: &serde_json::Value,
) -> Result<serde_json::Value, reqwest::StatusCode> {
    let empty = Digest::of(oci::EMPTY_JSON);
    let upload = server.url(&format!("/v2/{repository}/blobs/uploads/?digest={empty}"));
    http.post(upload).body(oci::EMPTY_JSON).send().await.unwrap();
    let mut manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": oci::MANIFEST,
        "artifactType": "application/vnd.example.v1",
        "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": empty.to_string(), "size": 2 },
        "layers": [],
    });
    manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let bytes = manifest.to_string();
    let digest = Digest::of(bytes.as_bytes()).to_string();
    let url = server.url(&format!("/v2/{repository}/manifests/{digest}"));
    let size = bytes.len();
    let answer = http.put(url).header("content-type", oci::MANIFEST).body(bytes).send().await.unwrap();
    let descriptor = serde_json::json!({ "mediaType": oci::MANIFEST, "digest": digest, "size": size });
    if answer.status().is_success() { Ok(descriptor) } else { Err(answer.status()) }
}

/// Stands between client and server, and cuts the n-th connection after so many bytes in one direction.
pub(crate) struct BreakingNetwork {
    pub(crate) address: SocketAddr,
}

/// The direction that is counted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

impl BreakingNetwork {
    /// Once a connection has carried `after` bytes in `direction` it is cut, `cuts` times in all.
    pub(crate) async fn start(server: SocketAddr, direction: Direction, after: usize, cuts: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(cuts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let left = left.clone();
                tokio::spawn(async move {
                    let (client_read, client_write) = client.into_split();
                    let (server_read, server_write) = server.into_split();
                    let cut = |this| if direction == this { after } else { usize::MAX };
                    tokio::select! {
                        () = carry(client_read, server_write, cut(Direction::ToServer), left.clone()) => {}
                        () = carry(server_read, client_write, cut(Direction::ToClient), left) => {}
                    }
                });
            }
        });
        Self { address }
    }
}

async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    after: usize,
    left: std::sync::Arc<std::sync::atomic::AtomicUsize>,
) {
    use std::sync::atomic::Ordering;
    let (mut carried, mut block) = (0_usize, vec![0; 64 << 10]);
    while let Ok(read @ 1..) = from.read(&mut block).await {
        if to.write_all(&block[..read]).await.is_err() {
            return;
        }
        carried = carried.saturating_add(read);
        let may_cut = |left: usize| left.checked_sub(1);
        if carried >= after && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, may_cut).is_ok() {
            return;
        }
    }
}
