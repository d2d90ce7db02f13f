//! `symseal store pin`, `unpin` and `pins`: what stays whatever the rules of retention say.

use anyhow::Result;
use symseal_server::Pins;

use super::{Place, Reason, print_notes, runtime};
use crate::exit::Answer;
use crate::output::outln;

/// Keep a bundle for ever: retention does not take it, and nobody deletes it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  symseal store pin --data ./data sha256:9f2c… --reason 'shipped to customers until 2031'

Beside running servers, too. The pin is a file pins/… of the data directory, or an object of the bucket, so that a backup and a rebuild have it; it holds at
once, in every repository that has the bundle. A takedown is stronger. Exit status 1 when the store has no such bundle.")]
pub struct PinArgs {
    #[command(flatten)]
    place: Place,
    /// The bundle, sha256:….
    digest: String,
    #[command(flatten)]
    reason: Reason,
}

/// Let a pinned bundle go.
#[derive(clap::Args)]
#[command(after_help = "Example:
  symseal store unpin --data ./data sha256:9f2c…

Exit status 1 when it was not pinned.")]
pub struct UnpinArgs {
    #[command(flatten)]
    place: Place,
    /// The bundle, sha256:….
    digest: String,
}

/// List what is pinned.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  symseal store pins --data ./data --json")]
pub struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn pin(args: &PinArgs) -> Result<Answer> {
    let note = args.reason.note();
    let config = args.place.config_to_write()?;
    let is_here = runtime()?.block_on(async { Pins::open(&config).await?.pin(&args.digest, note).await })?;
    if is_here {
        outln!("{} is pinned", args.digest);
        return Ok(Answer::Yes);
    }
    outln!("{}: expected a bundle of this store, found no such blob: nothing is pinned", args.digest);
    Ok(Answer::No)
}

pub(super) fn unpin(args: &UnpinArgs) -> Result<Answer> {
    let config = args.place.config_to_write()?;
    let was_pinned = runtime()?.block_on(async { Pins::open(&config).await?.unpin(&args.digest).await })?;
    outln!("{} {}", args.digest, if was_pinned { "is no longer pinned" } else { "was not pinned" });
    Ok(if was_pinned { Answer::Yes } else { Answer::No })
}

pub(super) fn list(args: &ListArgs) -> Result<Answer> {
    let config = args.place.config()?;
    let pins = runtime()?.block_on(async { Pins::open(&config).await?.list().await })?;
    print_notes("pins", &pins, args.json, "nothing is pinned");
    Ok(Answer::Yes)
}
