//! `symseal key`: signing keys.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Answer;
use crate::keyring;
use crate::output::outln;
use crate::passphrase::PassphraseArgs;

#[derive(Subcommand)]
pub enum Command {
    Generate(GenerateArgs),
}

/// Make the keys of the embedded default: an artifact key (ECDSA P-256), a root key and a log key (Ed25519).
#[derive(Args)]
#[command(after_help = "Example:
  symseal key generate --output ./keys
  symseal key generate --output ./keys --encrypt

Writes artifact.key.pem and artifact.pub.pem (signs bundles), root.key.pem (signs the trust directory; keep it offline) and
log.key.pem (signs the log's checkpoints). PKCS#8 PEM, readable by you alone, never overwritten. With a
passphrase the artifact and the root key are encrypted (PBES2: AES-256-CBC, PBKDF2-HMAC-SHA-256, 600 000 iterations).")]
pub struct GenerateArgs {
    /// The directory to write them to.
    #[arg(long)]
    output: PathBuf,
    /// Encrypt the artifact and the root key; the passphrase is asked for, unless one of the next options names it.
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Print the artifact key's id as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    let Command::Generate(args) = command;
    let encrypt = args.encrypt || args.passphrase.is_given();
    let passphrase = encrypt.then(|| args.passphrase.source().new_one("the artifact and the root key")).transpose()?;
    let key = keyring::generate(&args.output, passphrase.as_ref())?;
    if args.json {
        outln!(
            "{}",
            json!({
                "key_id": key.key_id().to_string(), "algorithm": "ecdsa-p256", "encrypted": encrypt, "directory": args.output,
            })
        );
    } else {
        outln!("artifact key {} in {}", key.key_id(), args.output.display());
    }
    Ok(Answer::Yes)
}
