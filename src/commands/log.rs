//! `symseal log`: what others need of a log that they cannot reach.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;
use symseal_seal::{ConsistencyProof, SignedCheckpoint};
use symseal_sealer::{LogKey, LogLocation, PublishedLog, RekorVersion, TileLog};

use crate::commands::bundle::verify::read;
use crate::exit::Answer;
use crate::keyring;
use crate::output::{out, outln};
use crate::places;

#[derive(Subcommand)]
pub enum Command {
    Create(CreateArgs),
    Checkpoint(CheckpointArgs),
    Consistency(ConsistencyArgs),
    Fragment(FragmentArgs),
}

/// Make an empty log, and a key for it where there is none. Prints its origin, which it has for ever.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  symseal log create --log ./log2 --log-key ./keys/log2.key.pem
  symseal key show --key ./keys/log2.key.pem > log2.pub.pem
  symseal trust add-log --trust ./trust --root-key root.key.pem --log-key log2.pub.pem --origin log-954b….symseal.internal

The log's last checkpoint is kept beside its key: never put an older copy of the log in its place.")]
pub struct CreateArgs {
    /// The directory to make; default: log in the user's data directory.
    #[arg(long, value_name = "DIR")]
    log: Option<String>,
    /// The key that signs its checkpoints (Ed25519, PKCS#8 PEM), made where there is none.
    #[arg(long, value_name = "FILE")]
    log_key: PathBuf,
    /// Print origin, id and public key as JSON.
    #[arg(long)]
    json: bool,
}

/// Print the log's newest checkpoint.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  symseal log checkpoint --log ./log > checkpoint")]
pub struct CheckpointArgs {
    #[command(flatten)]
    log: Log,
}

/// Write proofs that the log's later trees begin with its earlier ones, for `bundle verify --consistency`.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal log consistency --log ./log --from 12 --output proofs.json         from 12 entries to the newest checkpoint
  symseal log consistency --log https://symbols.example --from seen.checkpoint --to 40

A checkpoint that is not of the log's history is refused.")]
pub struct ConsistencyArgs {
    #[command(flatten)]
    log: Log,
    /// What was seen before: a number of entries, or a file with a checkpoint. Repeat for more.
    #[arg(long, value_name = "SIZE|CHECKPOINT", required = true)]
    from: Vec<String>,
    /// What is to be verified: likewise; default: the newest checkpoint. Repeat for more.
    #[arg(long, value_name = "SIZE|CHECKPOINT")]
    to: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// Write the tiles that prove one entry under the newest checkpoint, for `bundle verify --fragment`.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  symseal log fragment --log ./log 12 --output fragment.json

`symseal bundle verify --json` says which entry a seal has (seal.log_index).")]
pub struct FragmentArgs {
    #[command(flatten)]
    log: Log,
    /// The entry, counted from 0.
    index: u64,
    #[command(flatten)]
    output: Output,
}

/// The log that is read: neither its key nor its lease is needed.
#[derive(ClapArgs)]
pub struct Log {
    /// The directory of an embedded log, or of a copy of what a log publishes; or the URL where one is read (its checkpoint and
    /// tiles), such as that of a Rekor v2 or of `symseal serve`; default: log in the user's data directory.
    #[arg(long, value_name = "DIR|URL")]
    log: Option<String>,
}

#[derive(ClapArgs)]
struct Output {
    /// The file to write, which must not be there; default: standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Log {
    fn open(&self) -> Result<PublishedLog> {
        open(&places::log(self.log.as_deref())?)
    }
}

/// Opens a log for reading.
pub fn open(log: &LogLocation) -> Result<PublishedLog> {
    match log {
        LogLocation::Directory(dir) => Ok(PublishedLog::open(dir)?),
        LogLocation::Rekor { version: Some(RekorVersion::V1), url } => {
            bail!("--log rekor-v1+{url}: expected a log that publishes its tiles, found a Rekor v1, which has none")
        }
        LogLocation::Rekor { url, .. } => Ok(PublishedLog::open_url(url)?),
    }
}

/// A number of entries, or the size of the checkpoint in a file, which must be one of the log's history.
pub fn size_of(log: &PublishedLog, text: &str) -> Result<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let size: u64 = text.parse().with_context(|| format!("{text}: expected a number of entries"))?;
        // A size beyond the log is refused with its name here, and not in a proof.
        log.root_at(size)?;
        return Ok(size);
    }
    let bytes = read("checkpoint", Path::new(text))?;
    let note = std::str::from_utf8(&bytes).with_context(|| format!("checkpoint {text}"))?;
    let seen = SignedCheckpoint::parse(note).with_context(|| format!("checkpoint {text}"))?.checkpoint;
    if seen.origin != log.checkpoint().origin {
        bail!("checkpoint {text}: expected one of {}, found one of {}", log.checkpoint().origin, seen.origin);
    }
    if log.root_at(seen.size)? != seen.root {
        bail!(
            "checkpoint {text}: its {} entries are not the first {} of this log: the log has a second history; keep both checkpoints and ask its operator",
            seen.size,
            seen.size
        );
    }
    Ok(seen.size)
}

fn create(args: &CreateArgs) -> Result<()> {
    let dir = places::log_dir(args.log.as_deref())?;
    if TileLog::exists(&dir) {
        bail!("--log {}: expected no log, found one; a log is never made anew", dir.display());
    }
    let key = if args.log_key.exists() {
        LogKey::load_pem(&args.log_key)?
    } else {
        if let Some(folder) = args.log_key.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("--log-key {}", args.log_key.display()))?;
        }
        LogKey::generate_file(&args.log_key)?
    };
    let pem = key.public_pem();
    let log = keyring::open_or_create_log_with(&dir, key, &args.log_key)?;
    let identity = log.identity();
    if args.json {
        let told = json!({ "origin": identity.origin.as_str(), "log_id": identity.id().to_string(), "pem": pem });
        outln!("{told}");
    } else {
        outln!("{}", identity.origin);
    }
    Ok(())
}

impl Output {
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let Some(path) = &self.output else {
            outln!("{}", String::from_utf8_lossy(bytes));
            return Ok(());
        };
        let name = || format!("--output {}", path.display());
        let mut file = std::fs::File::create_new(path).with_context(name)?;
        std::io::Write::write_all(&mut file, bytes).with_context(name)
    }
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Create(args) => create(args)?,
        Command::Checkpoint(args) => out!("{}", args.log.open()?.checkpoint_text()),
        Command::Consistency(args) => {
            let log = args.log.open()?;
            let sizes = |texts: &[String]| texts.iter().map(|text| size_of(&log, text)).collect::<Result<Vec<_>>>();
            let (from, mut to) = (sizes(&args.from)?, sizes(&args.to)?);
            if to.is_empty() {
                to.push(log.size());
            }
            let mut proofs: Vec<ConsistencyProof> = Vec::new();
            for from in &from {
                for to in &to {
                    proofs.push(log.consistency(*from, *to)?);
                }
            }
            args.output.write(&ConsistencyProof::to_file(&proofs))?;
        }
        Command::Fragment(args) => args.output.write(&args.log.open()?.fragment(args.index)?.to_json())?,
    }
    Ok(Answer::Yes)
}
