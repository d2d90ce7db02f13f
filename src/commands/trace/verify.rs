//! `trace-verify`: does a bundle hold what its seal says?

use anyhow::Result;
use clap::Args as ClapArgs;
use symseal_seal::Parts;

use crate::commands::bundle::verify::{self, Question};
use crate::exit::Answer;

/// Verify the bundle behind a trace offline.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  trace-verify --bundle ./bundle --dsse --rekor --trust ./trust
  trace-verify --bundle ./pulled --signature ./symbol_index.sigstore.json --trust ./trust     what `oras pull` left

`oras pull` leaves the seal out: pull it by the digest that `oras discover` shows. Without a part flag every check is run, and both flags are the same as none. With one of them the verdict is PARTIAL, and
the report says what was not checked. Exit status 1: at least one check failed.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    #[arg(long)]
    bundle: String,
    /// Verify the DSSE envelope and its statement.
    #[arg(long)]
    dsse: bool,
    /// Verify the transparency-log entry.
    #[arg(long)]
    rekor: bool,
    #[command(flatten)]
    question: Question,
}

pub fn run(args: &Args) -> Result<Answer> {
    let everything = args.dsse == args.rekor;
    let parts = Parts { dsse: args.dsse || everything, rekor: args.rekor || everything };
    verify::run(&args.bundle, &args.question, parts)
}
