//! `symseal store usage`: what repositories hold, and what they may.

use anyhow::Result;
use serde_json::json;
use symseal_server::{QuotaUse, StoreUse};

use super::{Place, runtime};
use crate::exit::Answer;
use crate::output::outln;

/// Print what repositories hold, and what the quotas of the configuration let them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  symseal store usage --config /etc/symseal/server.toml
  symseal store usage --data ./data --json

Beside running servers, too. Bytes are those of a repository's manifests and of the blobs that they name, each counted once in a repository and again in
another one; a disk, which has each blob once, may hold less. Unnamed are the bytes of blobs that no manifest names: a running server counts those that came
to it since its start until a manifest names them or they are collected, and says them within symseal_quota_bytes_held (/metrics); what a deletion left and what
came before the start are among them too, and do not count. Unfinished are the bytes of uploads that have not ended, which count too until they do, are
cancelled, or go (24 hours after their last byte). Quotas stand in the configuration ([[quotas]]). Exit status 1 when one is exceeded.")]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let config = args.place.config()?;
    let found = runtime()?
        .block_on(async move { tokio::task::spawn_blocking(move || symseal_server::usage(&config)).await })??;
    if args.json {
        outln!("{}", in_json(&found));
    } else {
        table(&found);
    }
    Ok(if found.quotas.iter().any(is_exceeded) { Answer::No } else { Answer::Yes })
}

fn is_exceeded(quota: &QuotaUse) -> bool {
    quota.bytes_limit.is_some_and(|limit| quota.bytes > limit)
        || quota.bundles_limit.is_some_and(|limit| quota.bundles > limit)
}

fn in_json(found: &StoreUse) -> serde_json::Value {
    let repositories: Vec<_> = found
        .repositories
        .iter()
        .map(|it| json!({ "name": it.name, "bytes": it.bytes, "unnamed": it.unnamed, "unfinished": it.unfinished, "bundles": it.bundles }))
        .collect();
    let quotas: Vec<_> = found
        .quotas
        .iter()
        .map(|it| {
            json!({
                "prefix": it.prefix,
                "bytes": it.bytes,
                "unnamed": it.unnamed,
                "unfinished": it.unfinished,
                "bytes_limit": it.bytes_limit,
                "bundles": it.bundles,
                "bundles_limit": it.bundles_limit,
                "exceeded": is_exceeded(it),
            })
        })
        .collect();
    json!({ "repositories": repositories, "quotas": quotas })
}

fn table(found: &StoreUse) {
    let names = found.repositories.iter().map(|it| it.name.len()).chain(found.quotas.iter().map(|it| it.prefix.len()));
    let width = names.chain([10]).max().unwrap_or(10);
    outln!("{:width$}  {:>20}  {:>20}  {:>20}  {:>8}", "repository", "bytes", "unnamed", "unfinished", "bundles");
    for it in &found.repositories {
        outln!("{:width$}  {:>20}  {:>20}  {:>20}  {:>8}", it.name, it.bytes, it.unnamed, it.unfinished, it.bundles);
    }
    if found.quotas.is_empty() {
        outln!("there are no quotas");
        return;
    }
    outln!(
        "\n{:width$}  {:>20}  {:>20}  {:>20}  {:>20}  {:>8}  {:>8}",
        "quota",
        "bytes",
        "unnamed",
        "unfinished",
        "of",
        "bundles",
        "of"
    );
    let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    for it in &found.quotas {
        let mark = if is_exceeded(it) { "  exceeded" } else { "" };
        let (bytes_limit, bundles_limit) = (limit(it.bytes_limit), limit(it.bundles_limit));
        outln!(
            "{:width$}  {:>20}  {:>20}  {:>20}  {bytes_limit:>20}  {:>8}  {bundles_limit:>8}{mark}",
            it.prefix,
            it.bytes,
            it.unnamed,
            it.unfinished,
            it.bundles
        );
    }
}
