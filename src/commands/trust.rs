//! `symseal trust`: whom to trust.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_seal::{ArtifactPublicKey, Trust, UtcSeconds};
use symseal_sealer::{ArtifactKey, TrustInit, load_trust, trust_init};

use crate::commands::bundle::verify::now;
use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY, ROOT_KEY, beside};
use crate::output::{out, outln};
use crate::places;
use crate::table::Table;

#[derive(Subcommand)]
pub enum Command {
    Init(InitArgs),
    Show(ShowArgs),
}

/// Make a trust directory for one artifact key and one log.
#[derive(Args)]
#[command(after_help = "Example:
  symseal trust init --trust ./trust --key ./keys/artifact.pub.pem --name 'app' --log ./log

The log is made where there is none. Hand the trust directory to whoever verifies; keep root.key.pem offline.")]
pub struct InitArgs {
    /// The trust directory to make.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// The artifact key's public half (PEM).
    #[arg(long)]
    key: PathBuf,
    /// Release names that the key may sign: exact, or ending in * for a prefix. Repeat for more.
    #[arg(long = "name", required = true)]
    names: Vec<String>,
    /// The embedded log's directory, made where there is none; default: log in the user's data directory.
    #[arg(long)]
    log: Option<String>,
    /// The root key; default: root.key.pem beside the artifact key.
    #[arg(long)]
    root_key: Option<PathBuf>,
    /// The log's key; default: log.key.pem beside the artifact key.
    #[arg(long)]
    log_key: Option<PathBuf>,
    /// Who runs the log, for people to read.
    #[arg(long, default_value = "embedded log of this release pipeline")]
    operator: String,
    /// Last moment at which the policy counts (UTC, as 2027-11-20T12:00:00Z).
    #[arg(long)]
    expires: Option<UtcSeconds>,
}

/// Show whom a trust directory trusts, for what.
#[derive(Args)]
#[command(after_help = "Example:
  symseal trust show --trust ./trust --json")]
pub struct ShowArgs {
    /// The trust directory.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Init(args) => init(args),
        Command::Show(args) => show(args),
    }
}

fn init(args: &InitArgs) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let log_dir = places::log_dir(args.log.as_deref())?;
    let root_key = args.root_key.clone().unwrap_or_else(|| beside(&args.key, ROOT_KEY));
    let log_key = args.log_key.clone().unwrap_or_else(|| beside(&args.key, LOG_KEY));
    let pem = std::fs::read_to_string(&args.key).with_context(|| format!("key {}", args.key.display()))?;
    let artifact = ArtifactPublicKey::from_pem(&pem).with_context(|| {
        format!("key {}: expected the public half of an ECDSA P-256 key in PEM", args.key.display())
    })?;
    make(&dir, &artifact, &args.names, &log_dir, &root_key, &log_key, &args.operator, args.expires)?;
    outln!("trust directory {}", dir.display());
    Ok(Answer::Yes)
}

/// Makes the log where there is none, and a trust directory for it and one artifact key.
#[allow(clippy::too_many_arguments, reason = "each is one line of the policy; a struct of them is TrustInit")]
pub fn make(
    dir: &Path,
    artifact: &ArtifactPublicKey,
    names: &[String],
    log_dir: &Path,
    root_key: &Path,
    log_key: &Path,
    operator: &str,
    expires: Option<UtcSeconds>,
) -> Result<Trust> {
    let root = ArtifactKey::load_pem(root_key)?;
    let log = keyring::open_or_create_log(log_dir, log_key)?;
    Ok(trust_init(dir, &TrustInit { root: &root, artifact, names, log: log.identity(), operator, at: now(), expires })?)
}

fn show(args: &ShowArgs) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let trust = load_trust(&dir)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&as_json(&trust))?);
        return Ok(Answer::Yes);
    }
    outln!("trust directory {}, policy version {}", dir.display(), trust.policy.version);
    match trust.policy.expires {
        Some(expires) => outln!("expires {expires}"),
        None => outln!("never expires"),
    }
    let mut keys = Table::new(&["artifact key", "may sign", "predicate types"]);
    for key in &trust.policy.keys {
        keys.row([key.id.to_string(), key.names.join(", "), key.predicate_types.join(", ")]);
    }
    let mut logs = Table::new(&["log", "id", "operator", "witnesses asked for"]);
    for log in &trust.policy.logs {
        logs.row([
            log.identity.origin.to_string(),
            log.id.to_string(),
            log.operator.clone(),
            log.witness_quorum.to_string(),
        ]);
    }
    out!("\n{keys}\n{logs}");
    Ok(Answer::Yes)
}

fn as_json(trust: &Trust) -> serde_json::Value {
    json!({
        "policy_version": trust.policy.version,
        "expires": trust.policy.expires.map(|time| time.to_string()),
        "root_keys": trust.root.keys.iter().map(|key| key.key_id().to_string()).collect::<Vec<_>>(),
        "keys": trust.policy.keys.iter().map(|key| json!({
            "key_id": key.id.to_string(), "names": key.names, "predicate_types": key.predicate_types,
        })).collect::<Vec<_>>(),
        "logs": trust.policy.logs.iter().map(|log| json!({
            "origin": log.identity.origin.to_string(), "log_id": log.id.to_string(), "operator": log.operator,
            "witness_quorum": log.witness_quorum,
        })).collect::<Vec<_>>(),
    })
}
