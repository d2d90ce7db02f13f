//! `symseal bundle build`: release files → a bundle.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args as ClapArgs;
use symseal_builder::{BuildReport, Built, Options, Progress, SymbolBundleBuilder};

use crate::exit::Answer;
use crate::output::{out, outln};
use crate::table::Table;

/// Build a bundle from release files: executables, libraries, debug files, directories of them.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle build ./target/release/app --name app --version 1.0 --output ./bundle
  symseal bundle build ./usr/bin ./usr/lib/debug --name app --version 1.0 --output ./bundle --json

A binary and its separate debug file find each other by build-id. The same inputs give the same digest, wherever they lie.")]
pub struct Args {
    /// Files, and directories that are walked (links out of them are not followed).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The release's name.
    #[arg(long)]
    name: String,
    /// The release's version.
    #[arg(long)]
    version: String,
    /// The OCI layout to write; the bundle appears in it when it is complete.
    #[arg(long, value_name = "LAYOUT")]
    output: PathBuf,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let bar = crate::progress::bar(0, "building");
    let told = bar.clone();
    let progress = Arc::new(move |progress: &Progress<'_>| {
        if let Progress::Module { done, total, name } = progress {
            told.set_length(*total);
            told.set_position(*done);
            told.set_message((*name).to_owned());
        }
    });
    let options = Options { name: args.name.clone(), version: args.version.clone(), progress: Some(progress) };
    let built = args
        .paths
        .iter()
        .fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path))
        .build_into(&args.output)?;
    bar.finish_and_clear();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&built.report)?);
    } else {
        print(&built);
    }
    Ok(Answer::Yes)
}

fn print(built: &Built) {
    let mut table = Table::new(&["module", "debug id", "debug info", "functions", "rows", "unwind rows"]);
    for (_, id, module) in built.index.modules() {
        table.row([
            module.name.clone(),
            id.to_owned(),
            format!("{}{}", super::inspect::debug_info(module), if module.stripped { " (stripped)" } else { "" }),
            module.statistics.functions.to_string(),
            module.statistics.rows.to_string(),
            module.statistics.unwind_rows.to_string(),
        ]);
    }
    out!("{table}");
    warnings(&built.report);
    outln!("\nbundle {}", built.digest);
}

/// What the builder could not do, so that nobody takes it for done.
fn warnings(report: &BuildReport) {
    for module in &report.modules {
        if let Some(why) = &module.unwind.none_because {
            outln!("note: {}: no unwind table: {why}", module.name);
        }
        for range in &module.unwind.unsupported_ranges {
            outln!("note: {}: no unwind rule for {}..{}: {}", module.name, range.start, range.end, range.reason);
        }
        for (reason, count) in &module.skipped {
            outln!("note: {}: {count} left out of the symbol table: {reason}", module.name);
        }
    }
}
