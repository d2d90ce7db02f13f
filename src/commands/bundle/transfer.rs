//! `symseal bundle push` and `pull`: to and from an OCI registry.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_registry::{PushReport, Reference};

use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::outln;
use crate::places::store_dir;
use crate::registry_client;

/// Push a bundle and its seals to an OCI registry.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal bundle push ./bundle 127.0.0.1:8790/demo/app:1.0
  symseal bundle push ./bundle registry.example/demo/app:1.0 --with-sources=registry.example/demo/app-sources:1.0

Sources are an artifact of their own and are sent only when asked for. Registries give permissions by repository: one of their
own keeps the sources from those who may read the bundle.

What the registry has is not sent again. Loopback registries are spoken to by HTTP, others by HTTPS. Credentials are those of\ndocker login, podman login or oras login, or of SYMSEAL_REGISTRY, SYMSEAL_REGISTRY_USER and SYMSEAL_REGISTRY_PASSWORD.")]
pub struct PushArgs {
    /// A directory with an OCI layout, or sha256:… in the local store.
    bundle: String,
    /// host[:port]/repository[:tag|@digest]
    reference: String,
    /// Push the sources too: to this reference, or to the bundle's repository under the bundle's tag and `.sources`.
    #[arg(long, value_name = "REFERENCE", num_args = 0..=1, require_equals = true)]
    with_sources: Option<Option<String>>,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Print what was sent as JSON.
    #[arg(long)]
    json: bool,
}

/// Pull a bundle and its seals from an OCI registry.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal bundle pull 127.0.0.1:8790/demo/app:1.0                    into the local store
  symseal bundle pull 127.0.0.1:8790/demo/app:1.0 --output ./bundle

Prints the bundle's digest. A pull that broke off goes on where it stopped. What is no bundle (nor the sources of one), and a bundle with a
symbol index or titles that no command takes, is refused before anything is written.")]
pub struct PullArgs {
    /// host[:port]/repository[:tag|@digest]
    reference: String,
    /// An OCI layout of its own, instead of the local store.
    #[arg(long)]
    output: Option<PathBuf>,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn push(args: &PushArgs) -> Result<Answer> {
    let reference = Reference::parse(&args.reference)?;
    let (dir, wanted) = if args.bundle.starts_with("sha256:") {
        let digest: Digest = args.bundle.parse().with_context(|| format!("bundle {}", args.bundle))?;
        (store_dir(args.store.as_ref())?, Some(digest))
    } else {
        (PathBuf::from(&args.bundle), None)
    };
    let layout = LayoutDir::open(&dir).with_context(|| format!("bundle {}", args.bundle))?;
    let bundle = Bundle::open(layout.clone(), wanted.as_ref()).with_context(|| format!("bundle {}", args.bundle))?;
    let digest = bundle.digest().with_context(|| format!("bundle {}: it has no image index", args.bundle))?;
    let sources = match &args.with_sources {
        None => None,
        Some(to) => {
            let sources = bundle.index().sources.with_context(|| format!("bundle {digest}: it names no sources"))?;
            let to = match to {
                Some(to) => Reference::parse(to)?,
                None => sources_reference(&reference, &sources),
            };
            // First, so that the registry never has a bundle whose sources are still to come.
            let message = format!("pushing sources to {to}");
            let (options, bar) = registry_client::shown(&registry_client::options(&to)?, message);
            let pushed = bundle_ref::block_on(symseal_registry::push(&layout, &sources, &to, &options))?;
            bar.finish_and_clear();
            pushed.map_err(registry_client::told).with_context(|| format!("sources of bundle {digest}"))?;
            Some(json!({ "digest": sources, "reference": to.to_string() }))
        }
    };
    let message = format!("pushing to {}", args.reference);
    let (options, bar) = registry_client::shown(&registry_client::options(&reference)?, message);
    let report = bundle_ref::block_on(symseal_registry::push(&layout, &digest, &reference, &options))?;
    bar.finish_and_clear();
    let report = report.map_err(registry_client::told)?;
    if args.json {
        let mut told = pushed(&report);
        if let Some(told) = told.as_object_mut() {
            told.insert("digest".to_owned(), json!(digest));
            told.insert("reference".to_owned(), json!(args.reference));
            told.insert("sources".to_owned(), json!(sources));
        }
        outln!("{told}");
    } else {
        outln!("{digest}");
    }
    Ok(Answer::Yes)
}

/// What a push did, for `--json`.
pub fn pushed(report: &PushReport) -> Value {
    json!({
        "blobs_sent": report.blobs_sent, "blobs_existing": report.blobs_existing, "blobs_mounted": report.blobs_mounted,
        "blobs_copied": report.blobs_copied, "bytes_sent": report.bytes_sent, "bytes_fetched": report.bytes_fetched,
        "manifests": report.manifests, "referrers": report.referrers, "referrers_api": report.referrers_api,
    })
}

/// Beside the bundle: its tag with a suffix, or the sources' own digest.
pub fn sources_reference(bundle: &Reference, sources: &Digest) -> Reference {
    let tag = bundle.tag().map(|tag| format!("{tag}{}", symseal_bundle::sources::TAG_SUFFIX));
    let tagged =
        tag.and_then(|tag| Reference::parse(&format!("{}/{}:{tag}", bundle.registry(), bundle.repository())).ok());
    tagged.unwrap_or_else(|| bundle.with_digest(*sources))
}

pub fn pull(args: &PullArgs) -> Result<Answer> {
    let into = match &args.output {
        Some(output) => output.clone(),
        None => store_dir(args.store.as_ref())?,
    };
    let digest = bundle_ref::pull(&args.reference, &into)?;
    outln!("{digest}");
    Ok(Answer::Yes)
}
