//! `symseal store`: the data directory of a server that is stopped.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_server::{ServerError, parse_duration};

use crate::exit::Answer;
use crate::output::outln;
use crate::places;

#[derive(Subcommand)]
pub enum Command {
    Gc(GcArgs),
}

/// Remove blobs that nothing names.
#[derive(Args)]
#[command(after_help = "Example:
  symseal store gc --data ./data --grace 24h

For a server that is stopped; one that runs collects by itself (symseal serve --gc-interval). What goes: blobs that no manifest of their repository
names and no client was told of for the grace period, the manifests of deleted image indexes and referrers of deleted
subjects that nothing else names, and bytes that no repository
and no trace names. Whatever has a name stays: delete tags and manifests first (oras manifest delete).")]
pub struct GcArgs {
    /// The server's data directory.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How long a blob stays that nothing names: s, m, h or d.
    #[arg(long, default_value = "24h", value_parser = parse_duration)]
    grace: Duration,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Gc(args) => collect(args),
    }
}

fn collect(args: &GcArgs) -> Result<Answer> {
    let data = places::server_data(args.data.as_ref())?;
    // A mistyped name must not make one.
    if !data.is_dir() {
        bail!("--data {}: expected a server's data directory, found none", data.display());
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime could be started")?;
    let collected = match runtime.block_on(symseal_server::collect_stopped(&data, args.grace)) {
        Err(ServerError::Locked { path }) => bail!(
            "{}: a server uses this data directory, and collects by itself (symseal serve --gc-interval): stop it first",
            path.display()
        ),
        collected => collected?,
    };
    if args.json {
        let value = json!({
            "manifests": collected.manifests,
            "unlinked": collected.unlinked,
            "blobs": collected.blobs,
            "bytes": collected.bytes,
            "sessions": collected.sessions,
        });
        outln!("{value}");
    } else {
        outln!(
            "{} blobs with {} bytes are gone ({} links in repositories, {} manifests of deleted ones, {} abandoned uploads)",
            collected.blobs,
            collected.bytes,
            collected.unlinked,
            collected.manifests,
            collected.sessions
        );
    }
    Ok(Answer::Yes)
}
