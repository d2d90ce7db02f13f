//! `symseal key`: signing keys.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_sealer::{KeySource, LogKey};

use crate::exit::Answer;
use crate::keyring;
use crate::output::{out, outln};
use crate::passphrase::PassphraseArgs;

#[derive(Subcommand)]
pub enum Command {
    Generate(GenerateArgs),
    Show(ShowArgs),
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

/// Show the public half of an artifact key, wherever it is, or of a log key in a file.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal key show --key ./keys/artifact.key.pem
  symseal key show --key 'pkcs11:token=release;object=symseal?module-path=/usr/lib/softhsm/libsofthsm2.so' > artifact.pub.pem
  symseal trust init --trust ./trust --key artifact.pub.pem --name app --log ./log --root-key ./keys/root.key.pem --log-key ./keys/log.key.pem

  symseal key show --key ./keys/log.key.pem > log.pub.pem

Prints PEM, as `symseal trust init --key`, `symseal trust add-log --log-key`, openssl and cosign take it.")]
pub struct ShowArgs {
    /// A PKCS#8 PEM file (plain, encrypted, or cosign's), pkcs11:URI, or exec:PROGRAM.
    #[arg(long)]
    key: KeySource,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Print id, algorithm and PEM as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Generate(args) => generate(args),
        Command::Show(args) => show(args),
    }
}

fn show(args: &ShowArgs) -> Result<Answer> {
    let passphrases = args.passphrase.source();
    if let KeySource::File(path) = &args.key
        && let Ok(key) = LogKey::load_pem(path)
    {
        let pem = key.public_pem();
        if args.json {
            outln!("{}", json!({"algorithm": "ed25519", "pem": pem}));
        } else {
            out!("{pem}");
        }
        return Ok(Answer::Yes);
    }
    let signer = args.key.open(&|name| passphrases.ask(name))?;
    let public = signer.public();
    if args.json {
        outln!("{}", json!({"key_id": public.key_id().to_string(), "algorithm": "ecdsa-p256", "pem": public.to_pem()}));
    } else {
        out!("{}", public.to_pem());
    }
    Ok(Answer::Yes)
}

fn generate(args: &GenerateArgs) -> Result<Answer> {
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
