//! `symseal bundle inspect --disclosure`: what a reader of a bundle learns.

use anyhow::Result;
use symseal_artifact::{BuildRecords, BuildTexts, ReleaseFile};
use symseal_bundle::Bundle;
use symseal_bundle::disclosure::{BuildTraces, DirectoryCount, Disclosure, NamedPaths, disclosure};

use crate::exit::Answer;
use crate::output::{out, outln, visible};
use crate::table::Table;

/// More lines of one kind would hide the others; `--json` has them all.
const MOST_LINES: usize = 20;

pub(super) fn run(bundle: &Bundle, json: bool) -> Result<Answer> {
    let told = disclosure(bundle, &named_paths)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        print(&told);
    }
    Ok(Answer::Yes)
}

/// Of every slice of a file.
fn named_paths(bytes: &[u8]) -> NamedPaths {
    let slices = match ReleaseFile::parse(bytes) {
        Ok(ReleaseFile::Object(object)) => vec![object],
        Ok(ReleaseFile::Fat(slices)) => slices,
        Ok(ReleaseFile::Pdb(pdb)) => {
            let BuildRecords { directories, paths, command_lines } = pdb.build_records();
            let (_, traces) = traces(pdb.build_texts());
            return NamedPaths { compile_directories: directories, build_paths: paths, command_lines, traces };
        }
        Ok(ReleaseFile::PortablePdb(_)) => {
            let mut named = NamedPaths::default();
            named.traces.not_read.insert(PORTABLE.to_owned());
            return named;
        }
        Err(_) => Vec::new(),
    };
    let mut named = NamedPaths::default();
    for slice in slices {
        named.compile_directories.extend(slice.compile_directories());
        named.build_paths.extend(slice.build_paths());
        let (command_lines, traces) = traces(slice.build_texts());
        named.command_lines.extend(command_lines);
        // Slices of one file are for different processors; what they tell is nearly the same.
        named.traces.absorb(traces);
    }
    named
}

/// Beside the paths of sources, which stand in its symbol table.
const PORTABLE: &str = "sources and Source Link in portable program databases, where they have some";

/// Command lines, and what else a file tells of its build.
fn traces(texts: BuildTexts) -> (std::collections::BTreeSet<String>, BuildTraces) {
    let BuildTexts {
        producers,
        command_lines,
        debug_paths,
        run_paths,
        macros,
        embedded_sources,
        build_settings,
        streams,
        source_links,
        not_read,
    } = texts;
    let traces = BuildTraces {
        producers,
        debug_paths,
        run_paths,
        macros,
        embedded_sources,
        build_settings,
        streams,
        source_links,
        not_read,
    };
    (command_lines, traces)
}

fn print(told: &Disclosure) {
    let (name, version) = &told.release;
    outln!("release            {} {}", visible(name), visible(version));
    let files = &told.files;
    outln!("modules            {}", files.modules);
    outln!("executables        {} modules, {} bytes", files.executables, files.executable_bytes);
    outln!(
        "debug files        {} modules with types, variables and their names; {} with lines alone; {} bytes",
        files.full_debug_info,
        files.line_tables,
        files.debug_bytes
    );
    outln!("functions          {} ranges, {} distinct names", told.functions, told.function_names);
    outln!("source paths       {}", told.source_paths);
    match &told.sources {
        None => outln!("sources            none"),
        Some(sources) => match &sources.statistics {
            Some(statistics) => {
                outln!("sources            {} files, {} bytes, {}", statistics.files, statistics.bytes, sources.digest);
            }
            None => outln!("sources            {}, which do not lie beside the bundle", sources.digest),
        },
    }
    let traces = &told.traces;
    if !traces.embedded_sources.is_empty() {
        let bytes = traces.embedded_sources.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        outln!("EMBEDDED SOURCES   {} whole files in stored files, {bytes} bytes", traces.embedded_sources.len());
    }
    outln!(
        "build              {} producers, {} command lines, {} macros, {} build settings, {} named streams",
        traces.producers.len(),
        told.command_lines.len(),
        traces.macros.len(),
        traces.build_settings.len(),
        traces.streams.len()
    );
    counts("directories of source paths", "directory", &told.source_directories);
    list("compile directories", told.compile_directories.iter());
    list("paths of program databases, object files, libraries and sources in stored files", told.build_paths.iter());
    list("files and directories in line tables and units of stored files", traces.debug_paths.iter());
    list("run paths", traces.run_paths.iter());
    list("command lines in program databases and debug information", told.command_lines.iter());
    list("sources whose whole text is in stored files", traces.embedded_sources.keys());
    list("macros", traces.macros.iter());
    list("build settings of Go programs", traces.build_settings.iter());
    list("producers", traces.producers.iter());
    list("named streams of program databases", traces.streams.keys());
    list("Source Link", traces.source_links.iter());
    list("there, and not read", traces.not_read.iter());
    list("input files", told.inputs.iter());
    list("paths of source files", told.paths.iter());
    list("names of functions", told.names.iter());
    if let Some(paths) = told.sources.as_ref().and_then(|sources| sources.paths.as_ref()) {
        list("files of the sources", paths.iter());
    }
    if told.homes.is_empty() {
        outln!(
            "\nno home directories in source paths, compile directories, build paths, paths of line tables and run paths (what else the stored files hold was not searched)"
        );
    } else {
        counts(
            "HOME DIRECTORIES in paths of sources, compilers, builds, line tables and libraries",
            "home",
            &told.homes,
        );
    }
}

fn counts(what: &str, heading: &str, counts: &[DirectoryCount]) {
    if counts.is_empty() {
        return;
    }
    outln!("\n{what}");
    let mut table = Table::new(&[heading, "paths"]);
    for count in counts.iter().take(MOST_LINES) {
        table.row([visible(&count.directory), count.paths.to_string()]);
    }
    out!("{table}");
    more(counts.len());
}

fn list<'a>(what: &str, lines: impl ExactSizeIterator<Item = &'a String>) {
    let length = lines.len();
    if length == 0 {
        return;
    }
    outln!("\n{what}");
    for line in lines.take(MOST_LINES) {
        outln!("{}", visible(line));
    }
    more(length);
}

fn more(length: usize) {
    if length > MOST_LINES {
        outln!("… and {} more, which --json prints", length - MOST_LINES);
    }
}
