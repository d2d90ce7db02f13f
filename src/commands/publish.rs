//! `symseal publish`: build, seal and push in one step, or join what several platform jobs published.

mod destination;
mod join;
mod part;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use symseal_builder::{BuildError, Built, Options, SymbolBundleBuilder};
use symseal_bundle::subject::attach_subject;
use symseal_bundle::{Digest, LayoutDir, Scratch};
use symseal_registry::Elsewhere;
use symseal_sealer::KeySource;

use self::destination::{Destination, Published};
use super::bundle;
use super::bundle::excluding::ExcludeArgs;
use super::bundle::limits::LimitArgs;
use super::bundle::seal::{Sealer, SealingArgs};
use super::bundle::sourcing::SourcingArgs;
use crate::exit::Answer;
use crate::output::{outln, visible_lines};

/// Build, seal and push a bundle in one step; or join what several platform jobs published.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal publish ./dist --name app --version 1.0 --to registry.example/team/app:1.0-symbols --key ./keys/artifact.key.pem
  symseal publish ./dist --name app --version 1.0 --to registry.example/team/app:1.0-linux            a part, unsealed
  symseal publish ./dist --name app --version 1.0 --to registry.example/team/app:1.0 --sources . --source-map /build/app=. \\
      --sources-to registry.example/team/app-sources:1.0
  symseal publish --join registry.example/team/app:1.0-linux registry.example/team/app:1.0-windows \\
      --name app --version 1.0 --to registry.example/team/app:1.0-symbols --key ./keys/artifact.key.pem \\
      --subject registry.example/team/app:1.0

The files that the registry has are not sent again. A join reads the parts' indexes and moves no files: what another
repository of the same registry has is mounted. Name parts by digest (as publish prints it) where others may push to the
repository; seals of parts are looked at with --trust alone, and the joined bundle has its own.

Sources are an artifact of their own, pushed first. Registries give permissions by repository: --sources-to keeps them from those
who may read the bundle. A join takes the parts' sources along. Credentials are those of docker login, podman login or oras login, or of SYMSEAL_REGISTRY,
SYMSEAL_REGISTRY_USER and SYMSEAL_REGISTRY_PASSWORD.")]
pub struct Args {
    /// Files, archives, and directories that are walked (links out of them are not followed).
    #[arg(required_unless_present = "join", conflicts_with = "join")]
    paths: Vec<PathBuf>,
    /// Bundles that platform jobs published, sealed or not: host[:port]/repository[:tag|@digest].
    #[arg(long, value_name = "REF", num_args = 1.., conflicts_with_all = ["SourcingArgs", "LimitArgs", "ExcludeArgs"])]
    join: Vec<String>,
    /// With --join: refuse a part that has seals of which none holds by this trust directory. Parts without seals are joined as
    /// they are. Without this option nobody looks at the parts' seals. With a Rekor as --log: the trust directory that pins its
    /// key, with --witness the one that names the witnesses; default: trust in the user's configuration directory.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
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
    /// The artifact key (ECDSA P-256): a file, pkcs11:URI, or exec:PROGRAM. Without one the bundle stays unsealed.
    #[arg(long, group = "signer")]
    key: Option<KeySource>,
    #[command(flatten)]
    sealing: SealingArgs,
    #[command(flatten)]
    sourcing: SourcingArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    excluding: ExcludeArgs,
    /// Where the sources go: host[:port]/repository[:tag]; default: beside the bundle, under its tag and `.sources`. With --join
    /// the parts' sources may lie there, too.
    #[arg(long, value_name = "REF")]
    sources_to: Option<String>,
    /// Fail, and push nothing, where a binary or a debug file lacks its counterpart, or does not match; where a source file does
    /// not match.
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
    let sealer = args.sealing.sealer(args.key.as_ref(), args.trust.as_ref())?;
    if args.trust.is_some() && args.join.is_empty() && args.key.is_none() {
        bail!(
            "--trust: expected --join, or --key and a Rekor as --log, beside it, found neither; there is nothing to check by it"
        );
    }
    if args.sources_to.is_some() && args.join.is_empty() && !args.sourcing.is_wanted() {
        bail!("--sources-to: expected --sources DIR or --join beside it, found neither; there are no sources to push");
    }
    let find = || Destination::find(&args.to, args.subject.as_deref(), args.sources_to.as_deref(), args.jobs);
    if args.join.is_empty() {
        return build(args, &find()?, sealer.as_ref());
    }
    let parts = join::parse(&args.join)?;
    let destination = find()?;
    join::run(args, parts, &destination, sealer.as_ref())
}

fn build(args: &Args, destination: &Destination, sealer: Option<&Sealer>) -> Result<Answer> {
    let folder = Scratch::temporary().context("no temporary directory for the bundle")?;
    let root = folder.path().join("bundle");
    let mut built = match build_into(args, &root) {
        Ok(built) => built,
        Err(error) => {
            bundle::build::print_found(&error, args.json)?;
            let BuildError::Strict { .. } = &error else { return Err(error.into()) };
            eprintln!("error: {}; nothing was pushed", visible_lines(&error.to_string()));
            return Ok(Answer::No);
        }
    };
    let layout = LayoutDir::open(&root)?;
    if let Some(subject) = &destination.subject {
        built.digest = attach_subject(&layout, &built.digest, subject)?;
        built.report.bundle = Some(built.digest);
    }
    let published =
        finish(args, &layout, (&built.digest, built.index.sources), destination, sealer, &Elsewheres::default())?;
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
    crate::heap::give_back_large_buffers();
    let bar = crate::progress::bytes_bar("reading");
    let options = Options {
        name: args.name.clone().unwrap_or_default(),
        version: args.version.clone().unwrap_or_default(),
        progress: Some(bundle::build::progress(bar.clone())),
    };
    let mut builder = args.paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path));
    builder = args.excluding.on(args.limits.on(args.sourcing.on(builder.strict(args.strict))))?;
    if let Some(jobs) = args.jobs {
        builder = builder.jobs(jobs.get());
    }
    let built = builder.build_into(root);
    bar.finish_and_clear();
    built
}

/// Where blobs are that the layout lacks.
#[derive(Default)]
struct Elsewheres {
    files: Elsewhere,
    sources: Elsewhere,
}

/// Seals and pushes a bundle of a layout with its sources, or says what that would do.
fn finish(
    args: &Args,
    layout: &LayoutDir,
    (digest, sources): (&Digest, Option<Digest>),
    destination: &Destination,
    sealer: Option<&Sealer>,
    elsewhere: &Elsewheres,
) -> Result<Published> {
    if args.dry_run {
        return destination.plan(layout, digest, sources, sealer);
    }
    let seal = sealer.map(|sealer| sealer.seal(layout, digest)).transpose()?;
    destination.push(layout, digest, sources, seal, elsewhere)
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
