//! `symseal bundle seal`: sign a bundle and log the signature.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_sealer::{ArtifactKey, LogKey};

use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY, ROOT_KEY, beside};
use crate::output::outln;
use crate::places;

/// Sign a bundle and log the signature; the seal becomes a referrer in the same layout.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  symseal bundle seal ./bundle --key ./keys/artifact.key.pem --log ./log

Name and version come from the bundle's index. Prints the digest of the seal's manifest.")]
pub struct Args {
    /// The directory with the bundle's OCI layout.
    layout: PathBuf,
    /// The artifact key (ECDSA P-256, PKCS#8 PEM).
    #[arg(long)]
    key: PathBuf,
    #[command(flatten)]
    sealing: SealingArgs,
}

/// Where the signature is logged, and what the seal says of the release beyond its name and version.
#[derive(ClapArgs)]
pub struct SealingArgs {
    /// The embedded log's directory, made where there is none; default: log in the user's data directory.
    #[arg(long, requires = "key")]
    log: Option<String>,
    /// The log's key; default: log.key.pem beside the artifact key.
    #[arg(long, requires = "key")]
    log_key: Option<PathBuf>,
    /// The channel, such as stable or nightly.
    #[arg(long, requires = "key")]
    channel: Option<String>,
    /// A number that rises with each release of the channel.
    #[arg(long, requires = "key")]
    sequence: Option<u64>,
    /// Digest of a bundle that this one replaces. Repeat for more.
    #[arg(long, value_name = "DIGEST", requires = "key")]
    supersedes: Vec<Digest>,
}

/// Keys that were read and found to be of the right kind, so that a long build does not end at a key.
pub struct Sealer {
    key: ArtifactKey,
    log: PathBuf,
    log_key: PathBuf,
    options: SealOptions,
}

impl SealingArgs {
    /// Reads the keys. Nothing is written: the log is opened when something is sealed.
    pub fn sealer(&self, key: &Path) -> Result<Sealer> {
        let log_key = self.log_key.clone().unwrap_or_else(|| beside(key, LOG_KEY));
        let options =
            SealOptions { channel: self.channel.clone(), sequence: self.sequence, supersedes: self.supersedes.clone() };
        Sealer::new(key, &places::log_dir(self.log.as_deref())?, &log_key, options)
    }
}

impl Sealer {
    fn new(key: &Path, log: &Path, log_key: &Path, options: SealOptions) -> Result<Self> {
        let loaded = ArtifactKey::load_pem(key)?;
        let root = beside(key, ROOT_KEY);
        if root.exists() && ArtifactKey::load_pem(&root)?.key_id() == loaded.key_id() {
            bail!(
                "key {}: this is the root key, which signs trust directories alone; seal with artifact.key.pem",
                key.display()
            );
        }
        LogKey::load_pem(log_key)?;
        Ok(Self { key: loaded, log: log.to_owned(), log_key: log_key.to_owned(), options })
    }

    /// The artifact key's id.
    pub fn key_id(&self) -> String {
        self.key.key_id().to_string()
    }

    /// Seals the bundle `digest` of a layout; the digest of the seal's manifest.
    pub fn seal(&self, layout: &LayoutDir, digest: &Digest) -> Result<Digest> {
        let mut log = keyring::open_or_create_log(&self.log, &self.log_key)?;
        Ok(seal_bundle(layout, digest, &self.key, &mut log, &self.options)?)
    }
}

pub fn run(args: &Args) -> Result<Answer> {
    let sealer = args.sealing.sealer(&args.key)?;
    outln!("{}", seal_sole(&args.layout, &sealer)?);
    Ok(Answer::Yes)
}

/// Seals the one bundle of `layout`; the digest of the seal's manifest.
pub fn seal(layout: &Path, key: &Path, log: &Path, log_key: &Path, options: &SealOptions) -> Result<Digest> {
    seal_sole(layout, &Sealer::new(key, log, log_key, options.clone())?)
}

fn seal_sole(layout: &Path, sealer: &Sealer) -> Result<Digest> {
    let named = || format!("bundle {}", layout.display());
    let dir = LayoutDir::open(layout).with_context(named)?;
    let bundle = Bundle::open(dir.clone(), None).with_context(named)?;
    let digest = bundle.digest().with_context(named)?;
    sealer.seal(&dir, &digest).with_context(named)
}
