//! `symseal bundle kit export`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_builder::kit::{KitContent, KitLog, export};
use symseal_sealer::{KeySource, LogLocation};

use super::verifier;
use crate::bundle_ref;
use crate::commands::log;
use crate::exit::Answer;
use crate::output::outln;
use crate::passphrase::PassphraseArgs;
use crate::progress;

/// Pack a bundle, its seals, what its log says and a program that verifies, as one directory or tar file.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle kit export ./bundle --key ./keys/artifact.key.pem --output ./app-1.0.tar
  symseal bundle kit export sha256:… --key pkcs11:token=release --log ./log --since ./site.checkpoint --output /media/kit

The kit is an OCI layout, with a folder kit/ beside its blobs. Its seal lists every file, and is signed by a key that the
receiving site's policy lets sign kits (https://symseal.dev/kit/v1) or bundles of this name. The trust directory is not
in the kit: it travels another way. Prints the bundle's digest.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory with an OCI layout, or a registry reference.
    bundle: String,
    /// The key that signs the kit (ECDSA P-256): a PKCS#8 PEM file, pkcs11:URI, or exec:PROGRAM.
    #[arg(long)]
    key: KeySource,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// What to make: a tar file where the name ends in .tar, else a directory.
    #[arg(long, value_name = "DIR|FILE.tar")]
    output: PathBuf,
    /// A log in which the bundle is sealed, by its directory or the URL where it is read: its newest checkpoint and proofs go
    /// along. Repeat for more.
    #[arg(long, value_name = "DIR|URL")]
    log: Vec<LogLocation>,
    /// What the receiving site saw of the log last: a number of entries, or a file with a checkpoint. Repeat for more.
    #[arg(long, value_name = "SIZE|CHECKPOINT", requires = "log")]
    since: Vec<String>,
    /// Pack the bundle's sources too.
    #[arg(long)]
    with_sources: bool,
    /// The program that verifies at the other site; default: this one.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "no_verifier")]
    verifier: Option<PathBuf>,
    /// Pack no program.
    #[arg(long)]
    no_verifier: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Print what was packed as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    if args.output.symlink_metadata().is_ok() {
        bail!("--output {}: expected nothing of this name; a kit is never overwritten", args.output.display());
    }
    let opened = bundle_ref::open(&args.bundle, args.store.as_ref())?;
    let logs = logs(args)?;
    let verifier = match (&args.verifier, args.no_verifier) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, false) => Some(std::env::current_exe().context("this program does not know where it lies: --verifier")?),
    };
    let needs = verifier.as_deref().map(verifier::needs).transpose()?;
    let passphrases = args.passphrase.source();
    let signer = args.key.open(&|name| passphrases.ask(name))?;
    let content = KitContent {
        bundle: &opened.bundle,
        with_sources: args.with_sources,
        logs: &logs,
        verifier: verifier.as_deref(),
    };
    let bar = progress::bytes_bar(format!("packing {}", args.output.display()));
    let report = export(&content, &*signer, &args.output, &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    let left_out = opened.bundle.index().sources.filter(|_| !args.with_sources);
    if args.json {
        let checkpoints: Vec<_> =
            report.checkpoints.iter().map(|(origin, size)| json!({ "origin": origin, "size": size })).collect();
        let told = json!({
            "bundle": report.bundle, "files": report.files, "bytes": report.bytes, "referrers": report.referrers,
            "checkpoints": checkpoints, "consistency_proofs": report.proofs, "verifier": needs,
            "sources_left_out": left_out, "signer": signer.public().key_id().to_string(),
        });
        outln!("{told}");
        return Ok(Answer::Yes);
    }
    outln!("{}", report.bundle);
    eprintln!(
        "{}: {} files, {} bytes, {} referrers, {} checkpoints, {} consistency proofs; signed by {}",
        args.output.display(),
        report.files,
        report.bytes,
        report.referrers,
        report.checkpoints.len(),
        report.proofs,
        signer.public().key_id()
    );
    if let Some(needs) = needs {
        eprintln!("the program in it is {needs}");
    }
    if let Some(sources) = left_out {
        eprintln!("the sources {sources} were left out; --with-sources packs them too");
    }
    Ok(Answer::Yes)
}

fn logs(args: &Args) -> Result<Vec<KitLog>> {
    let mut logs: Vec<KitLog> = Vec::new();
    for location in &args.log {
        logs.push(KitLog { log: log::open(location)?, since: Vec::new() });
    }
    for since in &args.since {
        // A number says nothing of the log; a checkpoint names it.
        let of: Vec<(usize, Result<u64>)> =
            logs.iter().enumerate().map(|(at, log)| (at, log::size_of(&log.log, since))).collect();
        let is_number = since.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && logs.len() > 1 {
            bail!(
                "--since {since}: expected a file with a checkpoint, as there are {} logs, found a number",
                logs.len()
            );
        }
        let (mut found, mut refused) = (None, None);
        for (at, size) in of {
            match size {
                Ok(size) => found = Some((at, size)),
                Err(error) => refused = Some(error),
            }
        }
        match (found, refused) {
            (Some((at, size)), _) => logs.get_mut(at).into_iter().for_each(|log| log.since.push(size)),
            (None, Some(error)) => return Err(error.context(format!("--since {since}"))),
            (None, None) => {}
        }
    }
    Ok(logs)
}
