//! `symseal store takedown` and `tombstones`: what nobody is given any more.

use anyhow::{Result, bail};
use symseal_server::Tombstones;

use super::{Place, Reason, print_notes, runtime};
use crate::exit::Answer;
use crate::output::outln;

/// Take a bundle, or another manifest or blob, down: nobody is given it, and nobody may push it again.
#[derive(clap::Args)]
#[command(override_usage = "symseal store takedown [OPTIONS] <DIGEST> --reason <REASON> [--by <BY>]
       symseal store takedown [OPTIONS] <DIGEST> --lift")]
#[command(after_help = "Examples:
  symseal store takedown --data ./data sha256:9f2c… --reason 'holds a customer'\"'\"'s name, ticket 4711'
  symseal store takedown --data ./data sha256:9f2c… --lift

Beside running servers, which take it over within two seconds (with an object store and no PostgreSQL: within thirty). With a bundle go what it alone
names and its seals, but not its source files, which are an artifact of their own: the command names it; with a blob, that file of every bundle. A file that other bundles have too stays theirs: take down its digest. The bytes stay for the
collector's grace period (--gc-grace), in which --lift brings all of it back; after that it lifts the ban alone. The tombstone is a file tombstones/… of the
data directory, or an object of the bucket. The entry in the transparency log stays. Exit status 1 when the store has no such bytes (the tombstone is
set all the same), and with --lift when there was no tombstone.")]
pub struct TakedownArgs {
    #[command(flatten)]
    place: Place,
    /// The bundle, or another manifest or blob, sha256:….
    digest: String,
    #[command(flatten)]
    reason: Option<Reason>,
    /// Remove the tombstone.
    #[arg(long, conflicts_with_all = ["reason", "by"])]
    lift: bool,
}

/// List what was taken down.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  symseal store tombstones --data ./data --json")]
pub struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn takedown(args: &TakedownArgs) -> Result<Answer> {
    let note = args.reason.as_ref().map(Reason::note);
    let config = args.place.config_to_write()?;
    let digest = &args.digest;
    if args.lift {
        let lifted = runtime()?.block_on(async { Tombstones::open(&config).await?.lift(digest).await })?;
        match lifted {
            Some(true) => outln!("{digest} is no longer taken down"),
            Some(false) => outln!("{digest} is no longer taken down; its bytes are gone: push it again"),
            None => outln!("{digest} was not taken down"),
        }
        return Ok(if lifted.is_some() { Answer::Yes } else { Answer::No });
    }
    let Some(note) = note else { bail!("expected --reason TEXT: who asks for it is told why") };
    let done = runtime()?.block_on(async { Tombstones::open(&config).await?.take_down(digest, note).await })?;
    if let Some(sources) = &done.sources {
        outln!("its source files are an artifact of their own, which stays: take down {sources} too");
    }
    if done.is_here {
        outln!("{digest} is taken down");
        return Ok(Answer::Yes);
    }
    outln!(
        "{digest} is taken down: the store has no blob of it, so it can only come later, or is in a file outside, which is no longer given"
    );
    Ok(Answer::No)
}

pub(super) fn list(args: &ListArgs) -> Result<Answer> {
    let config = args.place.config()?;
    let tombstones = runtime()?.block_on(async { Tombstones::open(&config).await?.list().await })?;
    print_notes("tombstones", &tombstones, args.json, "nothing is taken down");
    Ok(Answer::Yes)
}
