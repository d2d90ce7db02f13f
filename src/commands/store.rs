//! `symseal store`: the data directory of a server that is stopped.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_server::ServerError;

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
    #[arg(long, default_value = "24h", value_parser = duration)]
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

/// A number with its unit: `500ms`, `90s`, `30m`, `24h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?}: expected a whole number with its unit, such as 90s, 30m, 24h or 7d");
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(refused)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    // Beyond a hundred years nothing is a period.
    let bounded = number.checked_mul(milliseconds).filter(|found| *found <= 100 * 366 * 24 * 60 * 60 * 1000);
    bounded.map(Duration::from_millis).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604_800)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "h", "-1h", "1.5h", "1h30m", "5 h", "99999999999d", "18446744073709551616s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
