//! `symseal bundle seal`: sign a bundle and log the signature.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_sealer::ArtifactKey;

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
    /// The embedded log's directory, made where there is none; default: log in the user's data directory.
    #[arg(long)]
    log: Option<String>,
    /// The log's key; default: log.key.pem beside the artifact key.
    #[arg(long)]
    log_key: Option<PathBuf>,
    #[command(flatten)]
    release: ReleaseArgs,
}

/// What the seal says of the release beyond its name and version.
#[derive(ClapArgs)]
struct ReleaseArgs {
    /// The channel, such as stable or nightly.
    #[arg(long)]
    channel: Option<String>,
    /// A number that rises with each release of the channel.
    #[arg(long)]
    sequence: Option<u64>,
    /// Digest of a bundle that this one replaces. Repeat for more.
    #[arg(long, value_name = "DIGEST")]
    supersedes: Vec<Digest>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let log_key = args.log_key.clone().unwrap_or_else(|| beside(&args.key, LOG_KEY));
    let options = SealOptions {
        channel: args.release.channel.clone(),
        sequence: args.release.sequence,
        supersedes: args.release.supersedes.clone(),
    };
    let digest = seal(&args.layout, &args.key, &places::log_dir(args.log.as_deref())?, &log_key, &options)?;
    outln!("{digest}");
    Ok(Answer::Yes)
}

/// Seals the one bundle of `layout`; the digest of the seal's manifest.
pub fn seal(layout: &Path, key: &Path, log: &Path, log_key: &Path, options: &SealOptions) -> Result<Digest> {
    let named = || format!("bundle {}", layout.display());
    let dir = LayoutDir::open(layout).with_context(named)?;
    let bundle = Bundle::open(dir.clone(), None).with_context(named)?;
    let key_path = key;
    let key = ArtifactKey::load_pem(key_path)?;
    let root = beside(key_path, ROOT_KEY);
    if root.exists() && ArtifactKey::load_pem(&root)?.key_id() == key.key_id() {
        bail!(
            "key {}: this is the root key, which signs trust directories alone; seal with artifact.key.pem",
            key_path.display()
        );
    }
    let mut log = keyring::open_or_create_log(log, log_key)?;
    let digest = bundle.digest().with_context(named)?;
    seal_bundle(&dir, &digest, &key, &mut log, options).with_context(named)
}
