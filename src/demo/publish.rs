//! Step 3: serve, push, find again by debug id. The server stays up until the demo ends.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use symseal_bundle::{Digest, FileRole, LayoutDir};
use symseal_registry::Reference;
use symseal_replay::ReplayReport;
use symseal_server::{Config, Server};
use symseal_trace::{Event, Trace};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::build::BuiltBundle;
use super::narrator::Narrator;
use super::resolve::Resolved;
use super::scene::{self, Scene};
use crate::bundle_ref::block_on;
use crate::commands::trace::replay::results;

/// A server that runs in a thread of its own until this value goes away.
pub(super) struct Published {
    pub(super) reference: String,
    /// Whether every file was found under its debug id with the right bytes, and nothing else was.
    pub(super) found: bool,
    base: String,
    digest: Digest,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
    _data: TempDir,
}

pub(super) fn run(scene: &Scene, story: &mut Narrator, built: &BuiltBundle) -> Result<Published> {
    story.step("Serve and publish", "OCI registry and debuginfod on a free loopback port");
    let data = scene.scratch()?;
    let (address, shutdown, thread) = start(Config::new(data.path(), ([127, 0, 0, 1], 0).into()))?;
    story.say(format!("serving http://{address} with SQLite and a blob directory"));
    let reference = format!("{address}/demo/{}:{}", scene::NAME, scene::VERSION);
    let mut published = Published {
        base: format!("http://{address}"),
        digest: built.built.digest,
        reference,
        found: false,
        shutdown: Some(shutdown),
        thread: Some(thread),
        _data: data,
    };
    let parsed = Reference::parse(&published.reference)?;
    let report = block_on(symseal_registry::push(&built.layout, &built.built.digest, &parsed, &Default::default()))??;
    story.say(format!(
        "pushed {} blobs, {} bytes, and {} of its seals",
        report.blobs_sent, report.bytes_sent, report.referrers
    ));
    published.found = published.find_by_debug_id(story, &built.layout, built)?;
    Ok(published)
}

fn start(config: Config) -> Result<(std::net::SocketAddr, oneshot::Sender<()>, JoinHandle<Result<()>>)> {
    let (address_out, address_in) = mpsc::channel();
    let (shutdown, ended) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("demo server".into()).spawn(move || {
        block_on(async move {
            let server = Server::bind(config).await?;
            let _ = address_out.send(server.local_addr());
            server
                .run(async move {
                    let _ = ended.await;
                })
                .await?;
            Ok(())
        })?
    })?;
    match address_in.recv() {
        Ok(address) => Ok((address, shutdown, thread)),
        // The thread ended before it listened: its error says why.
        Err(_) => match thread.join() {
            Ok(result) => Err(result.err().unwrap_or_else(|| anyhow!("the server ended before it listened"))),
            Err(_) => Err(anyhow!("the server thread panicked")),
        },
    }
}

impl Published {
    /// An unstripped ELF answers both kinds of request, a stripped one 404 for its debug information.
    fn find_by_debug_id(&self, story: &Narrator, layout: &LayoutDir, built: &BuiltBundle) -> Result<bool> {
        let mut all_right = true;
        for (_, id, module) in built.built.index.modules() {
            for (kind, role) in [("debuginfo", FileRole::Debuginfo), ("executable", FileRole::Executable)] {
                let url = format!("{}/buildid/{id}/{kind}", self.base);
                let expected = module.file(role).map(|file| layout.read_blob(&file.sha256, file.size)).transpose()?;
                let (status, body) = get(&url)?;
                let (right, claim) = match expected {
                    Some(bytes) => (
                        status == 200 && body == bytes,
                        format!("{} {kind}: {} bytes, as built", module.name, bytes.len()),
                    ),
                    None => (status == 404, format!("{} {kind}: 404, because it is stripped", module.name)),
                };
                if right {
                    story.proved(claim)
                } else {
                    story.refuted(format!("{claim}; found status {status}, {} bytes", body.len()))
                }
                all_right &= right;
            }
        }
        Ok(all_right)
    }

    /// Hands trace, names and replays to the server, and asks it for what its database then holds of them and of
    /// the bundle. Whether that is all of it.
    pub(super) fn record(
        &self,
        story: &Narrator,
        trace: &Trace,
        resolved: &Resolved,
        report: &ReplayReport,
        verify_time: Duration,
    ) -> Result<bool> {
        let mut body = Vec::new();
        trace.write(&mut body)?;
        body.extend(Event::Resolved(resolved.event.clone()).to_line()?);
        let replays = results(trace, report, &resolved.coverage, Some(verify_time));
        for result in &replays {
            body.extend(Event::ReplayResult(result.clone()).to_line()?);
        }
        let answer = put(&format!("{}/api/v1/traces/{}", self.base, trace.begin.trace_id), body)?;
        let bundle = get(&format!("{}/api/v1/bundles/{}", self.base, self.digest))?;
        let bundle: Value = serde_json::from_slice(&bundle.1).unwrap_or_default();
        let all = answer["frames"] == resolved.event.frames.len()
            && answer["replays"] == replays.len()
            && bundle["sha256"] == self.digest.to_string()
            && bundle["seal"]["signer"].is_string();
        let claim = format!(
            "the server's database holds the sealed bundle, the trace, its {} named rows and {} replays",
            answer["frames"], answer["replays"]
        );
        if all {
            story.proved(claim)
        } else {
            story.refuted(format!("{claim}: not all of it; bundle {}", bundle["seal"]))
        }
        Ok(all)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn client() -> Result<reqwest::Client> {
    Ok(crate::http_client::client().no_proxy().build()?)
}

fn put(url: &str, body: Vec<u8>) -> Result<Value> {
    block_on(async {
        let response = client()?.put(url).body(body).send().await?;
        let status = response.status();
        let text = response.text().await?;
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        Ok(serde_json::from_str(&text)?)
    })?
    .with_context(|| format!("PUT {url}"))
}

fn get(url: &str) -> Result<(u16, Vec<u8>)> {
    block_on(async {
        let response = client()?.get(url).send().await?;
        let status = response.status().as_u16();
        anyhow::Ok((status, response.bytes().await?.to_vec()))
    })?
    .with_context(|| format!("GET {url}"))
}
