//! `symseal trust export` and `import`: a trust directory in one file, to be carried to who verifies.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use symseal_seal::fingerprint;
use symseal_sealer::TrustFiles;

use crate::exit::Answer;
use crate::output::outln;
use crate::places;

/// Put a trust directory into one file, to be carried to whoever verifies.
#[derive(Args)]
#[command(after_help = "Example:
  symseal trust export --trust ./trust --output trust.json

It holds nothing secret. Carry it by another way than the bundles, and read the fingerprint out over a third.")]
pub struct ExportArgs {
    /// The trust directory.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// The file to write, which must not exist.
    #[arg(long)]
    output: PathBuf,
}

/// Take a trust directory over from one file, or bring the one that is there forward.
#[derive(Args)]
#[command(after_help = "Example:
  symseal trust import trust.json --trust ./trust --fingerprint '47736 05823 36609 53226 16705 16606 23982 08739 45059 24995'

A new directory needs the root's fingerprint, as its maker reads it out. One that is there is only brought forward: its
root must be in the file's chain, and the policy's version may not fall.")]
pub struct ImportArgs {
    /// The file that `symseal trust export` wrote.
    file: PathBuf,
    /// The trust directory to make or bring forward.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// The root's fingerprint: ten groups of five digits.
    #[arg(long)]
    fingerprint: Option<String>,
}

pub(super) fn export(args: &ExportArgs) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let files = TrustFiles::read(&dir)?;
    let trust = files.verify().with_context(|| format!("trust directory {}", dir.display()))?;
    if args.output.exists() {
        bail!("{}: expected no file of this name, found one; choose another name", args.output.display());
    }
    std::fs::write(&args.output, files.to_export()).with_context(|| format!("file {}", args.output.display()))?;
    outln!("{}: root version {}, policy version {}", args.output.display(), trust.root.version, trust.policy.version);
    outln!("root fingerprint {}", fingerprint(&trust.root.sha256()));
    Ok(Answer::Yes)
}

pub(super) fn import(args: &ImportArgs) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let trust = symseal_sealer::trust::import(&args.file, &dir, args.fingerprint.as_deref())?;
    super::tell(&dir, &trust);
    Ok(Answer::Yes)
}
