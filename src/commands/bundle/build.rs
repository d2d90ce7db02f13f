//! `symseal bundle build`: release files → a bundle.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use indicatif::ProgressBar;
use symseal_builder::{BuildError, BuildReport, Options, Progress, ProgressFn, SymbolBundleBuilder};

use super::build_report;
use super::excluding::ExcludeArgs;
use super::limits::LimitArgs;
use super::sourcing::SourcingArgs;
use crate::exit::Answer;
use crate::output::{outln, visible, visible_lines};

/// Build a bundle from release files: executables, libraries, debug files; directories, archives and packages of them.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle build ./target/release/app --name app --version 1.0 --output ./bundle
  symseal bundle build ./usr/bin ./usr/lib/debug --name app --version 1.0 --output ./bundle --json
  symseal bundle build ./dist --name app --version 1.0 --dry-run --strict
  symseal bundle build ./dist --name app --version 1.0 --output ./bundle --sources . --source-map /build/app=.

Linux (ELF, .debug, .dwp, dwz), Windows (PE, PDB) and macOS (Mach-O, dSYM) files, loose or in tar, zip, wheel, nupkg, deb and
the like, also in a zip behind a program. Binaries and their debug files find each other by build-id, GUID and age, or UUID. The same inputs give the same
digest, wherever they lie and whatever they are packed in, as long as that is looked into (one archive within another, no deeper).

With --strict the exit status is 1 where a module is not paired, a debug file is of another build, or a source file has another
checksum than the debug information says; the report says which.")]
pub struct Args {
    /// Files, archives, and directories that are walked (links out of them are not followed).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The release's name.
    #[arg(long)]
    name: String,
    /// The release's version.
    #[arg(long)]
    version: String,
    /// The OCI layout to write; the bundle appears in it when it is complete.
    #[arg(long, value_name = "LAYOUT", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// Fail where a binary or a debug file lacks its counterpart, or does not match; where a source file does not match.
    #[arg(long)]
    strict: bool,
    /// Print the report; write no bundle. With --sources, say what of them would be packed.
    #[arg(long)]
    dry_run: bool,
    /// Files and modules to work on at once; as many as there are processors by default.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    sourcing: SourcingArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    excluding: ExcludeArgs,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    crate::heap::give_back_large_buffers();
    let bar = crate::progress::bytes_bar("reading");
    let options =
        Options { name: args.name.clone(), version: args.version.clone(), progress: Some(progress(bar.clone())) };
    let mut builder = args.paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path));
    builder = builder.strict(args.strict);
    if let Some(jobs) = args.jobs {
        builder = builder.jobs(jobs.get());
    }
    builder = args.excluding.on(args.limits.on(args.sourcing.on(builder)))?;
    let made = if args.dry_run {
        builder.report()
    } else {
        let output = args.output.as_ref().context("expected --output LAYOUT")?;
        builder.build_into(output).map(|built| built.report)
    };
    bar.finish_and_clear();
    match made {
        Ok(report) => {
            print(&report, args.json)?;
            Ok(Answer::Yes)
        }
        Err(error) => {
            print_found(&error, args.json)?;
            let BuildError::Strict { .. } = &error else { return Err(error.into()) };
            eprintln!("error: {}", visible_lines(&error.to_string()));
            Ok(Answer::No)
        }
    }
}

/// Prints the report, for people or as JSON.
pub(crate) fn print(report: &BuildReport, json: bool) -> Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(report)?);
    } else {
        build_report::print(report);
    }
    Ok(())
}

/// Prints what was found by a build that was given up. Of inputs without a module the error says it all to people.
pub(crate) fn print_found(error: &BuildError, json: bool) -> Result<()> {
    match error.report() {
        Some(report) if json || !matches!(error, BuildError::NoModules { .. }) => print(report, json),
        _ => Ok(()),
    }
}

/// Shows what a build is doing: first bytes that are read, then bytes of the modules that are finished; and gives their memory back.
pub(crate) fn progress(bar: ProgressBar) -> ProgressFn {
    let (read, built) = (AtomicU64::new(0), AtomicU64::new(0));
    Arc::new(move |progress: &Progress<'_>| match progress {
        Progress::Looked { path, bytes, total_bytes, .. } => {
            bar.set_length(*total_bytes);
            bar.set_position(read.fetch_add(*bytes, Ordering::Relaxed) + bytes);
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            bar.set_message(visible(&symseal_artifact::escaped(name)));
        }
        Progress::Begun { begun, total, name, total_bytes } => {
            if *begun == 1 {
                // Another kind of work has another rate.
                bar.reset();
                bar.set_length(*total_bytes);
            }
            bar.set_message(format!("module {begun} of {total}: {}", visible(name)));
        }
        Progress::Module { bytes, .. } => {
            // What the module took is free, and the next one waits for it.
            crate::heap::give_back_after(*bytes);
            bar.set_position(built.fetch_add(*bytes, Ordering::Relaxed) + bytes);
        }
    })
}
