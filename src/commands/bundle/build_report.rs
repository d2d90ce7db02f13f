//! The report of a build, for people.

use std::collections::BTreeMap;

use symseal_builder::{
    BuildReport, InputReport, ModuleReport, NamedBy, SkippedPlaces, SourcesReport, Unpaired, UnwindTotals,
};
use symseal_bundle::{DebugInfo, LinesOfOthers};
use symseal_module::DebugId;

use crate::output::{counted, out, outln, visible};
use crate::table::Table;

/// More lines of one kind would hide the others; `--json` has them all.
const MOST_LINES: usize = 20;

/// Prints modules, what lacks its counterpart, what contradicts, and what was left out.
pub(crate) fn print(report: &BuildReport) {
    let mut table =
        Table::new(&["module", "debug id", "arch", "debug info", "paired by", "functions", "rows", "unwind rows"]);
    for module in &report.modules {
        table.row([
            shown_name(&module.name, &module.debug_id),
            format!("{}{}", module.debug_id, made_of(module.id_kind)),
            module.arch.to_owned(),
            debug_info(module.debug_info, module.lines_of.others(), module.stripped),
            paired_by(module),
            functions(module),
            module.statistics.rows.to_string(),
            module.statistics.unwind_rows.to_string(),
        ]);
    }
    out!("{table}");
    outln!();
    // There may be hundreds of a debug package alone, none of which is cut off: what follows them is seen.
    unpaired(report);
    modules(report);
    pairs(report);
    inputs(report);
    unwind(&report.unwind);
    if let Some(gathered) = &report.sources {
        sources(gathered);
    }
    if let Some(bundle) = &report.bundle {
        outln!("\nbundle {bundle}");
    }
}

/// What the id is made of, where no linker wrote it.
pub(super) fn made_of(id_kind: &str) -> &'static str {
    match id_kind {
        "text-hash" => " (text hash)",
        "long-build-id" => " (hash of a build-id above 64 bytes)",
        _ => "",
    }
}

/// What the builder could not do, so that nobody takes it for done. What is so of several modules is told once.
fn modules(report: &BuildReport) {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    let mut note = |name: &str, text: String| match notes.iter_mut().find(|(known, _)| *known == text) {
        Some((_, names)) => names.push(name.to_owned()),
        None => notes.push((text, vec![name.to_owned()])),
    };
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    report.modules.iter().for_each(|module| *names.entry(&module.name).or_default() += 1);
    for module in &report.modules {
        let mut name = shown_name(&module.name, &module.debug_id);
        if names.get(module.name.as_str()).is_some_and(|times| *times > 1) {
            // Such as the slices of a universal file.
            name = format!("{name} ({})", module.debug_id);
        }
        if let Some(why) = &module.unwind.none_because {
            note(&name, format!("no unwind table: {why}"));
        }
        let ranges = &module.unwind.unsupported_ranges;
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for range in ranges {
            by_reason.entry(&range.reason).or_default().push(format!("{}..{}", range.start, range.end));
        }
        for (reason, ranges) in by_reason {
            // A function may have some of its rules.
            let what = if reason.starts_with("function: ") { "not every unwind rule of" } else { "no unwind rule for" };
            note(&name, format!("{what} {}: {reason}", first_of(&ranges)));
        }
        let more = module.unwind.unsupported.saturating_sub(ranges.len() as u64);
        if more > 0 {
            note(&name, format!("no unwind rules of {more} more ranges or entries; their reasons are counted below"));
        }
        module.notes.iter().for_each(|text| note(&name, text.clone()));
        for (reason, count) in &module.skipped {
            note(&name, format!("{count} left out of the symbol table: {reason}"));
        }
    }
    lines("note", notes.into_iter().map(|(text, names)| format!("{}: {text}", first_of(&names))).collect());
}

/// The first of what is alike, and how many more there are.
fn first_of(texts: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = texts.get(..SHOWN).unwrap_or(texts).join(", ");
    match texts.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What lacks its counterpart, all of it.
fn unpaired(report: &BuildReport) {
    let told = |what: &str, one: &Unpaired| format!("{what} {}{}: {}", one.place, of(&one.debug_id), one.advice);
    let binaries = report.binaries_without_debug_files.iter().map(|one| told("binary", one));
    let debug_files = report.debug_files_without_binaries.iter().map(|one| told("debug file", one));
    for line in binaries.chain(debug_files) {
        outln!("unpaired: {}", visible(&line));
    }
}

/// An id behind a file's name: it tells the slices of a fat file apart.
fn of(id: &Option<DebugId>) -> String {
    id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default()
}

fn pairs(report: &BuildReport) {
    let superseded = report.superseded.iter();
    let superseded = superseded.map(|one| format!("{}{}, for {}: {}", one.place, of(&one.debug_id), one.by, one.rule));
    lines("left out", superseded.collect());
    // Each error is told whole: nothing is cut off.
    for one in &report.conflicts {
        outln!("error: {}", visible(&one.to_string()));
    }
    for one in &report.mismatches {
        let (debug_file, binary) = (visible(&one.debug_file.place), visible(&one.binary.place));
        let (expected, found) = (visible(&one.expected), visible(&one.found));
        let named_by = one.named_by.code();
        let what = match one.named_by {
            NamedBy::TextHash => "has the id, and is not the program",
            _ => "is not the debug file of",
        };
        outln!("error: {debug_file} ({named_by}) {what} {binary}: expected {expected}, found {found}");
    }
}

fn inputs(report: &BuildReport) {
    let inputs = &report.inputs;
    lines("refused", inputs.refused.iter().map(|one| format!("{}: {}", one.place, one.problem)).collect());
    for archive in &inputs.archives {
        let passed = archive.passed_over.iter().map(|one| format!("{}: {}", one.place, one.reason));
        lines("not looked into", passed.collect());
        if archive.passed_over_more > 0 {
            let place = visible(&archive.place);
            outln!("not looked into: {} more in {place}, which are counted alone", archive.passed_over_more);
        }
    }
    outln!(
        "{} looked at, {} in the bundle ({}), {}",
        counted(inputs.files, "file", "files"),
        inputs.taken,
        counted(inputs.bytes, "byte", "bytes"),
        counted(inputs.doubles, "double", "doubles")
    );
    for (reason, count) in &inputs.skipped {
        outln!("  {count} skipped: {reason}");
        skipped_places(inputs, reason, *count);
    }
    for (glob, count) in &inputs.excluded {
        outln!("  {count} left out: --exclude {}", visible(glob));
        if *count == 0 {
            outln!(
                "warning: --exclude {} matched nothing{}; patterns are compared with places as this report names them",
                visible(glob),
                if inputs.excluded.values().any(|count| *count > 0) { " that is not left out anyhow" } else { "" }
            );
        }
    }
    match report.damaged_modules() {
        0 => {}
        some => outln!(
            "error: {} with damaged units of debug information, whose functions and lines are missing",
            counted(some, "module", "modules")
        ),
    }
    out!(
        "{}, {} unpaired, {}",
        counted(report.modules.len() as u64, "module", "modules"),
        report.unpaired(),
        counted(report.mismatches.len() as u64, "mismatch", "mismatches")
    );
    let more = [
        (report.conflicts.len() as u64, "conflict", "conflicts"),
        (report.mismatched_sources(), "source mismatch", "source mismatches"),
    ];
    for (count, one, several) in more.into_iter().filter(|(count, ..)| *count > 0) {
        out!(", {}", counted(count, one, several));
    }
    outln!();
}

/// Where those lie that begin like release files, so that a module that is missing is found here.
fn skipped_places(inputs: &InputReport, reason: &str, count: u64) {
    let mut shown = 0;
    for place in inputs.skipped_places.of(reason).take(MOST_LINES) {
        outln!("    {}", visible(place));
        shown += 1;
    }
    if shown > 0 && shown < count {
        outln!("    … and {} more, of which --json prints the first {}", count - shown, SkippedPlaces::MOST);
    }
}

/// What became of the call frame information of all modules: what could not be compiled is counted, never left out in silence.
fn unwind(totals: &UnwindTotals) {
    let without: u64 = totals.none_because.values().sum();
    outln!(
        "unwind tables: {} with {} ({} bytes), {} without{}; {} of {} bytes of code without a rule, {} that could not be compiled",
        counted(totals.modules, "module", "modules"),
        counted(totals.rows, "row", "rows"),
        totals.table_bytes,
        counted(without, "module", "modules"),
        if totals.without_code > 0 {
            format!(", {} of dwz's, which has no code", counted(totals.without_code, "file", "files"))
        } else {
            String::new()
        },
        totals.text_bytes.saturating_sub(totals.covered_bytes),
        totals.text_bytes,
        counted(totals.unsupported, "row", "rows")
    );
    for (reason, count) in &totals.none_because {
        outln!("  {count} without a table: {reason}");
    }
    for (reason, count) in &totals.unsupported_reasons {
        outln!("  {count} not compiled: {reason}");
    }
}

/// A module's name. What is known by a debug file alone, in a directory of build-ids, is named as tools look for it: its file's own
/// name is the rest of the id.
pub(super) fn shown_name(name: &str, id: &DebugId) -> String {
    match symseal_bundle::title::build_id_debug_file(id) {
        Some(path) if path.rsplit('/').next() == Some(name) => path,
        _ => name.to_owned(),
    }
}

fn sources(report: &SourcesReport) {
    let refused = report.refused.iter().map(|one| format!("source {}: {}", one.path, one.reason));
    lines("refused", refused.collect());
    let large = report.too_large.iter().map(|one| format!("source {}: {} bytes", one.path, one.bytes));
    lines("too large", large.collect());
    let missing = report.not_found.iter().map(|path| format!("source {path}"));
    lines("not found", missing.collect());
    // Each of these is an error: nothing is cut off.
    for one in &report.mismatched {
        let (path, file) = (visible(&one.path), visible(&one.file));
        outln!("error: {file} is not the source {path}: expected {}, found {}; it is missing", one.expected, one.found);
    }
    let left_out = [(report.refused.len(), "refused"), (report.too_large.len(), "too large")];
    let left_out: String =
        left_out.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!(", {count} {why}")).collect();
    outln!(
        "{} source files of {} ({} bytes, {} checked by a checksum), {} not found, {} mismatched{left_out}",
        report.statistics.files,
        report.wanted,
        report.statistics.bytes,
        report.statistics.checked,
        report.not_found.len(),
        report.mismatched.len()
    );
    if let Some(digest) = &report.digest {
        outln!("sources {digest}");
    }
}

fn lines(kind: &str, lines: Vec<String>) {
    let more = lines.len().saturating_sub(MOST_LINES);
    for line in lines.into_iter().take(MOST_LINES) {
        outln!("{kind}: {}", visible(&line));
    }
    if more > 0 {
        outln!("{kind}: … and {more} more, which --json prints");
    }
}

fn paired_by(module: &ModuleReport) -> String {
    let mut ways: Vec<&str> = module.paired.iter().filter_map(|file| Some(file.paired_by?.code())).collect();
    ways.dedup();
    if ways.is_empty() { "-".to_owned() } else { ways.join(", ") }
}

/// The count, and what named them where that is not debug information.
fn functions(module: &ModuleReport) -> String {
    let total = module.statistics.functions;
    let mut sources: Vec<(&str, u64)> = module.functions.iter().map(|(source, count)| (*source, *count)).collect();
    sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let sources: Vec<String> = sources.into_iter().map(|(source, count)| format!("{source} {count}")).collect();
    if sources.is_empty() { total.to_string() } else { format!("{total} ({})", sources.join(", ")) }
}

/// How much debug information there is, in words, and what is to be known of it.
pub(crate) fn debug_info(kind: DebugInfo, others: Option<LinesOfOthers>, stripped: bool) -> String {
    let kind = match kind {
        DebugInfo::Full => "full",
        DebugInfo::LineTables => "line tables",
        DebugInfo::Symbols => "symbols",
        DebugInfo::None => "none",
    };
    let others = others.map_or_else(String::new, |others| format!(", {}", others.words()));
    format!("{kind}{others}{}", if stripped { " (stripped)" } else { "" })
}
