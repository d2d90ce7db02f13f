//! `symseal key`: signing keys.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Answer;
use crate::keyring;
use crate::output::outln;

#[derive(Subcommand)]
pub enum Command {
    Generate(GenerateArgs),
}

/// Make the keys of the embedded default: an artifact key (ECDSA P-256), a root key and a log key (Ed25519).
#[derive(Args)]
#[command(after_help = "Example:
  symseal key generate --output ./keys

Writes artifact.key.pem and artifact.pub.pem (signs bundles), root.key.pem (signs the trust directory; keep it offline) and
log.key.pem (signs the log's checkpoints). PKCS#8 PEM, readable by you alone, never overwritten.")]
pub struct GenerateArgs {
    /// The directory to write them to.
    #[arg(long)]
    output: PathBuf,
    /// Print the artifact key's id as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    let Command::Generate(args) = command;
    let key = keyring::generate(&args.output)?;
    if args.json {
        outln!("{}", json!({"key_id": key.key_id().to_string(), "algorithm": "ecdsa-p256", "directory": args.output}));
    } else {
        outln!("artifact key {} in {}", key.key_id(), args.output.display());
    }
    Ok(Answer::Yes)
}
