//! `symseal publish`: build, seal and push in one step, or join what several platform jobs published.

mod destination;
mod join;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use symseal_builder::{BuildError, Built, Options, SymbolBundleBuilder};
use symseal_bundle::subject::attach_subject;
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::Elsewhere;

use self::destination::{Destination, Published};
use super::bundle;
use super::bundle::seal::{Sealer, SealingArgs};
use crate::exit::Answer;
use crate::output::outln;

/// Build, seal and push a bundle in one step; or join what several platform jobs published.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal publish ./dist --name app --version 1.0 --to registry.example/team/app:1.0-symbols --key ./keys/artifact.key.pem
  symseal publish ./dist --name app --version 1.0 --to registry.example/team/app:1.0-linux            a part, unsealed
  symseal publish --join registry.example/team/app:1.0-linux registry.example/team/app:1.0-windows \\
      --name app --version 1.0 --to registry.example/team/app:1.0-symbols --key ./keys/artifact.key.pem \\
      --subject registry.example/team/app:1.0

The files that the registry has are not sent again. A join reads the parts' indexes and moves no files: what another
repository of the same registry has is mounted. Name parts by digest (as publish prints it) where others may push to the
repository. Credentials are those of docker login, podman login or oras login, or of SYMSEAL_REGISTRY,
SYMSEAL_REGISTRY_USER and SYMSEAL_REGISTRY_PASSWORD.")]
pub struct Args {
    /// Files, archives, and directories that are walked (links out of them are not followed).
    #[arg(required_unless_present = "join", conflicts_with = "join")]
    paths: Vec<PathBuf>,
    /// Bundles that platform jobs published, sealed or not: host[:port]/repository[:tag|@digest].
    #[arg(long, value_name = "REF", num_args = 1..)]
    join: Vec<String>,
    /// The release's name. With --join it stands for names of the parts that differ; without it they must agree.
    #[arg(long, required_unless_present = "join")]
    name: Option<String>,
    /// The release's version; with --join as the name.
    #[arg(long, required_unless_present = "join")]
    version: Option<String>,
    /// Where to push: host[:port]/repository[:tag].
    #[arg(long, value_name = "REF")]
    to: String,
    /// The product's container image in the same repository: the bundle becomes a referrer of it.
    #[arg(long, value_name = "REF")]
    subject: Option<String>,
    /// The artifact key (ECDSA P-256, PKCS#8 PEM). Without one the bundle stays unsealed.
    #[arg(long)]
    key: Option<PathBuf>,
    #[command(flatten)]
    sealing: SealingArgs,
    /// Fail, and push nothing, where a binary or a debug file lacks its counterpart, or does not match.
    #[arg(long, conflicts_with = "join")]
    strict: bool,
    /// Files and modules to build, and blobs to push, at once; default: as many as there are processors, and 4.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Build, report and say what would be pushed; seal and push nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    // Everything that can be wrong with the call is found before the long work begins.
    let sealer = args.key.as_ref().map(|key| args.sealing.sealer(key)).transpose()?;
    if args.join.is_empty() {
        let destination = Destination::find(&args.to, args.subject.as_deref(), args.jobs)?;
        return build(args, &destination, sealer.as_ref());
    }
    let parts = join::parse(&args.join)?;
    let destination = Destination::find(&args.to, args.subject.as_deref(), args.jobs)?;
    join::run(args, parts, &destination, sealer.as_ref())
}

fn build(args: &Args, destination: &Destination, sealer: Option<&Sealer>) -> Result<Answer> {
    let folder = tempfile::tempdir().context("no temporary directory for the bundle")?;
    let root = folder.path().join("bundle");
    let mut built = match build_into(args, &root) {
        Err(BuildError::Strict { unpaired, mismatches, report }) => {
            bundle::build::print(&report, args.json)?;
            eprintln!("error: {}; nothing was pushed", BuildError::Strict { unpaired, mismatches, report });
            return Ok(Answer::No);
        }
        built => built?,
    };
    let layout = LayoutDir::open(&root)?;
    if let Some(subject) = &destination.subject {
        built.digest = attach_subject(&layout, &built.digest, subject)?;
        built.report.bundle = Some(built.digest);
    }
    let published = finish(args, &layout, &built.digest, destination, sealer, &Elsewhere::default())?;
    if args.json {
        let mut told = published.to_json();
        add(&mut told, "report", serde_json::to_value(&built.report)?);
        outln!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        bundle::build::print(&built.report, false)?;
        published.print();
    }
    Ok(Answer::Yes)
}

fn build_into(args: &Args, root: &Path) -> Result<Built, BuildError> {
    let bar = crate::progress::bytes_bar("reading");
    let options = Options {
        name: args.name.clone().unwrap_or_default(),
        version: args.version.clone().unwrap_or_default(),
        progress: Some(bundle::build::progress(bar.clone())),
    };
    let mut builder = args.paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path));
    builder = builder.strict(args.strict);
    if let Some(jobs) = args.jobs {
        builder = builder.jobs(jobs.get());
    }
    let built = builder.build_into(root);
    bar.finish_and_clear();
    built
}

/// Seals and pushes the bundle `digest` of a layout, or says what that would do.
fn finish(
    args: &Args,
    layout: &LayoutDir,
    digest: &Digest,
    destination: &Destination,
    sealer: Option<&Sealer>,
    elsewhere: &Elsewhere,
) -> Result<Published> {
    if args.dry_run {
        return destination.plan(layout, digest, sealer);
    }
    let seal = sealer.map(|sealer| sealer.seal(layout, digest)).transpose()?;
    destination.push(layout, digest, seal, elsewhere)
}

/// Adds a field to a JSON object.
fn add(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// An optional digest in JSON.
fn digest_or_null(digest: Option<&Digest>) -> Value {
    digest.map_or(Value::Null, |digest| json!(digest))
}
