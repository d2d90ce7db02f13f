//! `symseal bundle inspect`: what is in a bundle.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args as ClapArgs;

use super::build_report::{debug_info, made_of, shown_name};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::{out, outln, visible};
use crate::table::Table;

/// Show what is in a bundle: its modules, files and seals.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle inspect ./bundle
  symseal bundle inspect 127.0.0.1:8790/demo/app:1.0 --json | jq .linux

  symseal bundle inspect ./bundle --disclosure

--json prints symbol_index.json as it is; with --disclosure, what a reader of the bundle learns. Nothing is verified beyond the digests of what is shown; `symseal bundle verify` does that.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// Print symbol_index.json.
    #[arg(long)]
    json: bool,
    /// Say what a reader of the bundle learns: source paths, build paths, home directories, names, inputs, sources.
    #[arg(long)]
    disclosure: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    if args.disclosure {
        let bundle = bundle_ref::open_with_sources(&args.bundle, args.store.as_ref())?.bundle;
        return super::disclosure::run(&bundle, args.json);
    }
    let bundle = bundle_ref::open(&args.bundle, args.store.as_ref())?.bundle;
    let index = bundle.index();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(index)?);
        return Ok(Answer::Yes);
    }
    outln!("release   {} {}", visible(&index.name), visible(&index.version));
    match bundle.digest() {
        Some(digest) => outln!("digest    {digest}"),
        None => outln!("digest    not known: this directory holds files without the bundle's image index"),
    }
    outln!("producer  {} {}", index.producer.name, index.producer.version);
    outln!("seals     {}", bundle.seals().len());
    outln!();
    let mut table =
        Table::new(&["platform", "module", "debug id", "arch", "debug info", "functions", "rows", "files", "bytes"]);
    for (platform, id, module) in index.modules() {
        table.row([
            platform.to_owned(),
            id.parse().map_or_else(|_| module.name.clone(), |id| shown_name(&module.name, &id)),
            format!("{id}{}", made_of(&module.id_kind)),
            module.arch.clone(),
            debug_info(module.debug_info, module.lines_of, module.stripped),
            module.statistics.functions.to_string(),
            module.statistics.rows.to_string(),
            module.files.len().to_string(),
            module.files.iter().map(|file| file.size).sum::<u64>().to_string(),
        ]);
    }
    out!("{table}");
    Ok(Answer::Yes)
}
