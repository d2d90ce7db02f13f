//! `symseal trust`: whom to trust.

mod add;
mod exchange;
mod revoke;
mod rotate;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use symseal_seal::{ArtifactPublicKey, Trust, UtcSeconds, fingerprint};
use symseal_sealer::trust::{Difference, End};
use symseal_sealer::{ArtifactKey, TrustChange, TrustInit, load_trust, trust_init};

use crate::commands::bundle::verify::now;
use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY, ROOT_KEY, beside};
use crate::output::{out, outln, visible};
use crate::passphrase::PassphraseArgs;
use crate::places;
use crate::table::Table;

#[derive(Subcommand)]
pub enum Command {
    Init(InitArgs),
    Show(show::Args),
    AddKey(add::KeyArgs),
    AddLog(add::LogArgs),
    Revoke(revoke::Args),
    Rotate(rotate::Args),
    Export(exchange::ExportArgs),
    Import(exchange::ImportArgs),
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
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Who runs the log, for people to read.
    #[arg(long, default_value = "embedded log of this release pipeline")]
    operator: String,
    /// Last moment at which the policy counts (UTC, as 2027-11-20T12:00:00Z).
    #[arg(long)]
    expires: Option<UtcSeconds>,
}

/// The directory to change, and the root keys that sign the change.
#[derive(Args)]
pub struct Signing {
    /// The trust directory.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// A root key (PKCS#8 PEM). Repeat until there are as many as the root asks for.
    #[arg(long = "root-key", required = true, value_name = "FILE")]
    root_keys: Vec<PathBuf>,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Last moment at which the new policy counts (UTC, as 2027-11-20T12:00:00Z), or never for no end; default: as before.
    #[arg(long, value_name = "TIME|never")]
    expires: Option<End>,
    /// Let no larger checkpoint count without a consistency proof, wherever one was seen before; =false: let it; default: as
    /// before.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    require_consistency: Option<bool>,
}

impl Signing {
    /// Opens the directory, lets `change` alter it, signs and writes it, and says what came of it: each value before and after.
    fn apply(&self, change: impl FnOnce(&mut TrustChange) -> Result<()>) -> Result<Trust> {
        let dir = places::trust_dir(self.trust.as_ref())?;
        let passphrases = self.passphrase.source();
        let load = |path: &PathBuf| Ok(ArtifactKey::load(path, &|name| passphrases.ask(name))?);
        let keys = self.root_keys.iter().map(load).collect::<Result<Vec<_>>>()?;
        let mut opened = TrustChange::open(&dir)?;
        if let Some(expires) = self.expires {
            opened.policy().expires = expires.into();
        }
        if let Some(require) = self.require_consistency {
            opened.policy().require_consistency = require;
        }
        change(&mut opened)?;
        let differences = opened.differences();
        let trust = opened.sign(&keys)?;
        if !differences.is_empty() {
            out!("{}", difference_table(&differences));
        }
        tell(&dir, &trust);
        Ok(trust)
    }
}

/// What a change does to a policy.
fn difference_table(differences: &[Difference]) -> Table {
    let mut table = Table::new(&["policy", "before", "after"]);
    let or_none = |value: &Option<String>| value.as_deref().map_or_else(|| "(none)".to_owned(), visible);
    for Difference { what, before, after } in differences {
        table.row([visible(what), or_none(before), or_none(after)]);
    }
    table
}

/// What a directory is now, and what will bite soon.
fn tell(dir: &Path, trust: &Trust) {
    let Trust { root, policy, .. } = trust;
    outln!("trust directory {}: root version {}, policy version {}", dir.display(), root.version, policy.version);
    for warning in trust.warnings(now()) {
        outln!("warning: {warning}");
    }
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Init(args) => init(args),
        Command::Show(args) => show::run(args),
        Command::AddKey(args) => add::key(args),
        Command::AddLog(args) => add::log(args),
        Command::Revoke(args) => revoke::run(args),
        Command::Rotate(args) => rotate::run(args),
        Command::Export(args) => exchange::export(args),
        Command::Import(args) => exchange::import(args),
    }
}

/// Reads a public key (PEM).
fn public_key(path: &Path) -> Result<ArtifactPublicKey> {
    let pem = std::fs::read_to_string(path).with_context(|| format!("key {}", path.display()))?;
    ArtifactPublicKey::from_pem(&pem)
        .with_context(|| format!("key {}: expected the public half of an ECDSA P-256 key in PEM", path.display()))
}

fn init(args: &InitArgs) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let log_dir = places::log_dir(args.log.as_deref())?;
    let root_key = args.root_key.clone().unwrap_or_else(|| beside(&args.key, ROOT_KEY));
    let log_key = args.log_key.clone().unwrap_or_else(|| beside(&args.key, LOG_KEY));
    let artifact = public_key(&args.key)?;
    let passphrases = args.passphrase.source();
    let root = ArtifactKey::load(&root_key, &|name| passphrases.ask(name))?;
    make(&dir, &artifact, &args.names, &log_dir, &root, &log_key, &args.operator, args.expires)?;
    outln!("trust directory {}", dir.display());
    let trust = load_trust(&dir)?;
    outln!("root fingerprint, for whoever takes the directory over: {}", fingerprint(&trust.root.sha256()));
    Ok(Answer::Yes)
}

/// Makes the log where there is none, and a trust directory for it and one artifact key.
#[allow(clippy::too_many_arguments, reason = "each is one line of the policy; a struct of them is TrustInit")]
pub fn make(
    dir: &Path,
    artifact: &ArtifactPublicKey,
    names: &[String],
    log_dir: &Path,
    root: &ArtifactKey,
    log_key: &Path,
    operator: &str,
    expires: Option<UtcSeconds>,
) -> Result<Trust> {
    let log = keyring::open_or_create_log(log_dir, log_key)?;
    Ok(trust_init(dir, &TrustInit { root, artifact, names, log: log.identity(), operator, at: now(), expires })?)
}
