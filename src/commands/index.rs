//! `symseal index`: look into a bundle's symbol tables.

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use symseal_bundle::sources::Sources;
use symseal_bundle::{Bundle, FileRole};
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::{Hit, Table};

use crate::bundle_ref;
use crate::exit::{Answer, NotFound};
use crate::output::visible;

#[derive(Subcommand)]
pub enum Command {
    Dump(DumpArgs),
    Sources(SourcesArgs),
}

/// Print the complete stream: address → function, file, line, inlined callers.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal index dump ./bundle --debug-id 93ac61ec5a8eb1396f9fbd350e3169a558528a40 | head
  symseal index dump sha256:… --json > all.ndjson")]
pub struct DumpArgs {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// Only this module.
    #[arg(long, value_parser = super::debug_id)]
    debug_id: Option<DebugId>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

/// List the source files of a bundle, where they lie beside it.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal index sources ./bundle
  symseal index sources ./bundle --json | jq -r .path

Sources are an artifact of their own: a bundle that was pulled has them only if they were pulled into the same layout. The exit
status is 1 where there are none.")]
pub struct SourcesArgs {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Dump(args) => dump(args),
        Command::Sources(args) => sources(args),
    }
}

fn sources(args: &SourcesArgs) -> Result<Answer> {
    let bundle = bundle_ref::open(&args.bundle, args.store.as_ref())?.bundle;
    let Some(digest) = bundle.index().sources else {
        return Err(NotFound(format!("bundle {} names no sources", args.bundle)).into());
    };
    if !bundle.layout().is_some_and(|layout| layout.has(&digest)) {
        let told = format!(
            "bundle {}: its sources do not lie beside it: pull them into the same layout too (symseal bundle pull HOST/REPOSITORY@{digest})",
            args.bundle
        );
        return Err(NotFound(told).into());
    }
    let all = Sources::of(&bundle).with_context(|| format!("bundle {}", args.bundle))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for file in all.iter().flat_map(|sources| &sources.table().files) {
        if args.json {
            serde_json::to_writer(&mut out, file)?;
            writeln!(out)?;
        } else {
            let checked = file.checked_by.map_or("-", |checked| checked.code());
            writeln!(out, "{}  {:>9}  {checked:<6}  {}", file.sha256.hex(), file.size, visible(&file.path))?;
        }
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn dump(args: &DumpArgs) -> Result<Answer> {
    let bundle = bundle_ref::open(&args.bundle, args.store.as_ref())?.bundle;
    let mut ids: Vec<DebugId> = bundle
        .index()
        .modules()
        .map(|(_, id, _)| id.parse().context("a debug id of the index"))
        .collect::<Result<_>>()?;
    if let Some(wanted) = &args.debug_id {
        ids.retain(|id| id == wanted);
        if ids.is_empty() {
            return Err(NotFound(format!("bundle {} has no module {wanted}", args.bundle)).into());
        }
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    for id in ids {
        dump_module(&mut out, &bundle, &id, args.json)?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn dump_module(out: &mut impl Write, bundle: &Bundle, id: &DebugId, json: bool) -> Result<()> {
    let Some(module) = bundle.module(id) else { return Ok(()) };
    let Some(file) = module.files.iter().find(|file| file.role == FileRole::SymbolTable) else {
        if !json {
            writeln!(out, "# {} {id}: no symbol table", module.name)?;
        }
        return Ok(());
    };
    let bytes = bundle.read(file)?;
    let table = Table::open(&bytes).with_context(|| format!("symbol table of {id}"))?;
    table.verify().with_context(|| format!("symbol table of {id}"))?;
    if !json {
        // What follows: the table's own count has rows that end others besides.
        let (functions, rows) = (table.counts().functions, table.rows().count());
        writeln!(out, "# {} {id}: {functions} functions, {rows} rows", module.name)?;
    }
    let base = table.image_base();
    for hit in table.rows() {
        if json {
            serde_json::to_writer(&mut *out, &row(id, base, &hit))?;
            writeln!(out)?;
        } else {
            print_row(out, base, &hit)?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Row<'a> {
    debug_id: &'a DebugId,
    /// First svma of the row.
    start: Svma,
    /// First svma after it.
    end: Svma,
    source: &'static str,
    frames: Vec<RowFrame<'a>>,
}

#[derive(Serialize)]
struct RowFrame<'a> {
    function: Cow<'a, str>,
    symbol: Cow<'a, str>,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    inlined: bool,
}

fn svma(base: Svma, rva: Rva) -> Svma {
    rva.to_svma(base).unwrap_or(Svma(rva.0))
}

fn row<'a>(debug_id: &'a DebugId, base: Svma, hit: &Hit<'a>) -> Row<'a> {
    let range = hit.range();
    let frames = hit.frames().map(|frame| RowFrame {
        function: frame.function.text(),
        symbol: frame.symbol.text(),
        file: (!frame.file.is_empty()).then_some(frame.file),
        line: frame.line,
        column: frame.column(),
        inlined: frame.inlined,
    });
    Row {
        debug_id,
        start: svma(base, range.start),
        end: svma(base, range.end),
        source: hit.function().source.code(),
        frames: frames.collect(),
    }
}

fn print_row(out: &mut impl Write, base: Svma, hit: &Hit<'_>) -> std::io::Result<()> {
    let range = hit.range();
    write!(out, "{}..{}", svma(base, range.start), svma(base, range.end))?;
    for (depth, frame) in hit.frames().enumerate() {
        // Of some functions the start alone is known.
        let text = frame.function.text();
        let name = if text.is_empty() { "(no name)" } else { &text };
        write!(out, "{}{name}", if depth == 0 { "  " } else { " < " })?;
        if !frame.file.is_empty() {
            write!(out, " {}:{}", frame.file, frame.line.unwrap_or(0))?;
        } else if let Some(line) = frame.line {
            // Of damaged debug information the names of files may be lost alone.
            write!(out, " (no file):{line}")?;
        }
    }
    writeln!(out)
}
