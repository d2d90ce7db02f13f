//! `symseal store`: what a server keeps, looked after.

mod pins;
mod retention;
mod takedown;
mod usage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_seal::UtcSeconds;
use symseal_server::{Config, ConfigFile, Note, ServerError, parse_duration};

use crate::commands::serve::{GC_GRACE, load_config};
use crate::data_owner::act_for_owner;
use crate::exit::Answer;
use crate::output::outln;
use crate::own_user::own_user;
use crate::places;

#[derive(Subcommand)]
pub enum Command {
    Rebuild(RebuildArgs),
    Scrub(ScrubArgs),
    Gc(GcArgs),
    Usage(usage::Args),
    Pin(pins::PinArgs),
    Unpin(pins::UnpinArgs),
    Pins(pins::ListArgs),
    Retention(retention::Args),
    Takedown(takedown::TakedownArgs),
    Tombstones(takedown::ListArgs),
}

/// Make the database's record and the index of ids again from the blobs.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal store rebuild --data ./data
  symseal store rebuild --config /etc/symseal/server.toml

For a server that is stopped; the others of a shared store may run. What the database records of bundles and traces is forgotten and made again; tokens and
the audit log, which no blob holds, stay. A server that starts makes what is missing by itself: this is for a record that is wrong.")]
pub struct RebuildArgs {
    #[command(flatten)]
    place: Place,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Hash every blob again, and move aside what is not what its name says.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal store scrub --data ./data
  symseal store scrub --config /etc/symseal/server.toml --json

Beside running servers, too. Damaged bytes go to damaged/ in the data directory or the bucket, and the blob is gone until somebody pushes it again; a bucket
gets back what the data directory has cached whole. What repositories offer and nobody has is named. Exit status 1 when something was found.")]
pub struct ScrubArgs {
    #[command(flatten)]
    place: Place,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Where a server keeps what it has.
#[derive(Args)]
struct Place {
    /// The server's data directory.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The server's configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The servers' PostgreSQL, where they have one; also from SYMSEAL_SERVER_DATABASE.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The object store, where there is one (s3://BUCKET/PREFIX); also from SYMSEAL_SERVER_BLOBS.
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
}

/// Why something is noted of a digest, and by whom.
#[derive(Args)]
struct Reason {
    /// Why, in your words.
    #[arg(long)]
    reason: String,
    /// Whose decision it is; default: the user of this machine.
    #[arg(long)]
    by: Option<String>,
}

impl Reason {
    /// Before this process becomes another user, see [`Place::config_to_write`].
    fn note(&self) -> Note {
        let said = |name: &&str| std::env::var(name).ok().filter(|user| !user.trim().is_empty());
        let user = || ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(said);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let at = UtcSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        let by = self.by.clone().or_else(user).unwrap_or_else(own_user);
        Note { at: at.to_string(), reason: self.reason.clone(), by }
    }
}

/// Digests and what is noted of them: a table, or under `name` in JSON.
fn print_notes(name: &str, notes: &BTreeMap<String, Note>, as_json: bool, nothing: &str) {
    if as_json {
        let in_json = |(digest, note): (&String, &Note)| json!({ "digest": digest, "at": note.at, "reason": note.reason, "by": note.by });
        outln!("{}", json!({ (name): notes.iter().map(in_json).collect::<Vec<_>>() }));
        return;
    }
    for (digest, note) in notes {
        outln!("{digest}  {}  {}: {}", note.at, note.by, note.reason);
    }
    if notes.is_empty() {
        outln!("{nothing}");
    }
}

impl Place {
    /// To look.
    fn config(&self) -> Result<Config> {
        let (config, _) = self.found()?;
        act_for_owner(&config.data, false)?;
        Ok(config)
    }

    /// To change something. What is kept in a bucket and a database alone is nobody's directory.
    fn config_to_write(&self) -> Result<Config> {
        Ok(self.opened_to_write()?.0)
    }

    /// The same, and what else the file and the environment say.
    fn opened_to_write(&self) -> Result<(Config, ConfigFile)> {
        let (config, file) = self.found()?;
        act_for_owner(&config.data, config.blobs.is_none() || config.database.is_none())?;
        Ok((config, file))
    }

    fn found(&self) -> Result<(Config, ConfigFile)> {
        let mut file = load_config(self.config.as_deref())?;
        if let Some(database) = &self.database {
            file.set_database(database.clone());
        }
        if let Some(blobs) = &self.blobs {
            file.set_blobs(blobs.clone());
        }
        let data = places::server_data(self.data.as_ref().or(file.data.as_ref()))?;
        let mut config = Config::new(data, ([127, 0, 0, 1], 0).into());
        (config.database, config.blobs) = (file.database()?, file.blobs()?);
        (config.quotas, config.retention) = (file.quotas()?, file.retention()?);
        // A mistyped name must not make one; behind an object store an empty one is as good as any.
        if config.blobs.is_none() && !config.data.is_dir() {
            bail!("--data {}: expected a server's data directory, found none", config.data.display());
        }
        Ok((config, file))
    }
}

/// Remove blobs that nothing names.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal store gc --data ./data --grace 24h
  symseal store gc --config /etc/symseal/server.toml --data /tmp/gc

For a directory whose server is stopped; one that runs collects by itself (symseal serve --gc-interval). In a bucket, beside the servers that share it and a
PostgreSQL: what nothing names is condemned, and goes in a later run, or by a server, once it was so for the grace period. --data is then a
cache of this program's own. What goes: blobs that no manifest of their repository
names and no client was told of for the grace period, the manifests of deleted image indexes and referrers of deleted
subjects that nothing else names, and bytes that no repository
and no trace names. Whatever has a name stays: delete tags and manifests first (oras manifest delete).")]
pub struct GcArgs {
    #[command(flatten)]
    place: Place,
    /// How long a blob stays that nothing names: s, m, h or d; default: the configuration's gc.grace, else 24h.
    #[arg(long, value_parser = parse_duration)]
    grace: Option<Duration>,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Rebuild(args) => rebuild(args),
        Command::Scrub(args) => scrub(args),
        Command::Gc(args) => collect(args),
        Command::Usage(args) => usage::run(args),
        Command::Pin(args) => pins::pin(args),
        Command::Unpin(args) => pins::unpin(args),
        Command::Pins(args) => pins::list(args),
        Command::Retention(args) => retention::run(args),
        Command::Takedown(args) => takedown::takedown(args),
        Command::Tombstones(args) => takedown::list(args),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")
}

fn rebuild(args: &RebuildArgs) -> Result<Answer> {
    let config = args.place.config_to_write()?;
    let rebuilt = runtime()?.block_on(symseal_server::rebuild(&config))?;
    if args.json {
        let (bundles, ids, traces, stale) = (rebuilt.bundles, rebuilt.ids, rebuilt.traces, rebuilt.stale);
        let (linked, lost) = (rebuilt.linked, rebuilt.lost);
        outln!(
            "{}",
            json!({ "bundles": bundles, "ids": ids, "traces": traces, "stale": stale, "linked": linked, "lost": lost })
        );
    } else {
        outln!(
            "{} bundles and loose files with {} ids, and {} traces, are recorded again; {} rows had no blobs any more",
            rebuilt.bundles,
            rebuilt.ids,
            rebuilt.traces,
            rebuilt.stale
        );
        if rebuilt.linked > 0 {
            outln!("{} blobs and manifests that manifests name are offered again", rebuilt.linked);
        }
        if rebuilt.lost > 0 {
            outln!("{} that manifests name are not here: symseal store scrub lists them", rebuilt.lost);
        }
    }
    Ok(Answer::Yes)
}

fn scrub(args: &ScrubArgs) -> Result<Answer> {
    let config = args.place.config_to_write()?;
    let scrubbed = runtime()?.block_on(async move {
        tokio::task::spawn_blocking(move || symseal_server::scrub(&config.data, config.blobs.as_ref())).await
    })??;
    if args.json {
        let damaged: Vec<_> = scrubbed
            .damaged
            .iter()
            .map(|it| json!({ "digest": it.digest, "found": it.found, "size": it.size, "moved_to": it.moved_to }))
            .collect();
        let named = |it: &symseal_server::Missing| json!({ "repository": it.repository, "digest": it.digest });
        let missing: Vec<_> = scrubbed.missing.iter().map(named).collect();
        let unlinked: Vec<_> = scrubbed.unlinked.iter().map(named).collect();
        let (blobs, bytes) = (scrubbed.blobs, scrubbed.bytes);
        let restored = &scrubbed.restored;
        outln!(
            "{}",
            json!({ "blobs": blobs, "bytes": bytes, "damaged": damaged, "restored": restored, "missing": missing, "unlinked": unlinked })
        );
    } else {
        for it in &scrubbed.damaged {
            outln!("damaged {}: {} bytes with the digest {}, moved to {}", it.digest, it.size, it.found, it.moved_to);
        }
        for digest in &scrubbed.restored {
            outln!("restored {digest}: the object store has it again, out of the cache in the data directory");
        }
        for it in &scrubbed.missing {
            outln!("missing {}: {} offers or names it: push it again", it.digest, it.repository);
        }
        for it in &scrubbed.unlinked {
            outln!(
                "unlinked {}: a manifest of {} names it and nobody is given it there: start the server again, or symseal store rebuild",
                it.digest,
                it.repository
            );
        }
        let (damaged, missing, unlinked) = (scrubbed.damaged.len(), scrubbed.missing.len(), scrubbed.unlinked.len());
        outln!(
            "{} blobs with {} bytes; {damaged} damaged, {missing} missing, {unlinked} unlinked",
            scrubbed.blobs,
            scrubbed.bytes
        );
    }
    Ok(if scrubbed.is_sound() { Answer::Yes } else { Answer::No })
}

fn collect(args: &GcArgs) -> Result<Answer> {
    let (config, file) = args.place.opened_to_write()?;
    let grace = args.grace.or(file.gc_grace()).unwrap_or(GC_GRACE);
    let runtime = runtime()?;
    let collected = match config.blobs {
        Some(_) => runtime.block_on(symseal_server::collect_beside(&config, grace)),
        None => runtime.block_on(symseal_server::collect_stopped(&config.data, grace)),
    };
    let collected = match collected {
        Err(ServerError::Locked { path }) if config.blobs.is_some() => bail!(
            "{}: a server uses this data directory: to collect from the bucket beside the servers give this command a directory of its own (--data ANOTHER_DIR)",
            path.display()
        ),
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
