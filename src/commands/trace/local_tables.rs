//! Unwind tables of modules that no bundle has, made of the files that lie where the process had them.

use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::ObjectFile;
use symseal_builder::loose_unwind_table;
use symseal_module::{DebugId, MappedModule, StopReason, UnwindMethod};
use symseal_replay::{BundleTables, ResolvedThread};
use symseal_resolver::Resolver;
use symseal_trace::Trace;

use crate::output::visible;

use super::resolve::file_name;

/// The modules whose rules are those of a file on this machine.
#[derive(Default)]
pub(super) struct LocalRules(BTreeSet<DebugId>);

impl LocalRules {
    /// Whether a frame was found by such rules: those of the code that the frame before it lies in.
    pub(super) fn found(&self, thread: &ResolvedThread, depth: usize) -> bool {
        let is_of_table = thread.frames.get(depth).is_some_and(|frame| is_of_table(frame.unwind));
        let callee = depth.checked_sub(1).and_then(|callee| thread.frames.get(callee)?.module.as_ref());
        is_of_table && callee.and_then(|module| module.debug_id.as_ref()).is_some_and(|id| self.0.contains(id))
    }
}

/// Whether a frame that was found so was found by the rules of a table.
fn is_of_table(unwind: UnwindMethod) -> bool {
    !matches!(
        unwind,
        UnwindMethod::Context
            | UnwindMethod::FramePointer
            | UnwindMethod::Leaf
            | UnwindMethod::Scan
            | UnwindMethod::NullCall
            | UnwindMethod::AsyncParent
    )
}

/// Says once which modules stacks end in for want of a table, and how to get on.
pub(super) fn advise(threads: &[ResolvedThread]) {
    let ended = threads.iter().filter(|thread| thread.stop == StopReason::NoTable);
    let mut modules: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in ended {
        let last = thread.physical().checked_sub(1).and_then(|last| thread.frames.get(last)?.module.as_ref());
        *modules.entry(last.map_or("?", |module| file_name(&module.path))).or_default() += 1;
    }
    if modules.is_empty() {
        return;
    }
    let counted: Vec<String> =
        modules.into_iter().map(|(name, count)| format!("{} ({count})", visible(name))).collect();
    eprintln!(
        "stacks end in modules of which the bundle has no unwind table: {}; bundle these files too, or let --local-files take their rules from this machine",
        counted.join(", ")
    );
}

/// Adds tables for the modules that stacks of `trace` may lead into and that have none, and says on standard error whose they are: that a
/// frame is there which is found by them rests on nothing that anybody signed. `explain` tells why a module has none either.
pub(super) fn add(
    tables: BundleTables,
    trace: &Trace,
    resolver: &Resolver,
    explain: bool,
) -> (BundleTables, LocalRules) {
    let (mut made, mut local) = (Vec::new(), LocalRules::default());
    let mut with = tables.clone();
    for module in tables.wanted(trace) {
        let Some(id) = module.debug_id.clone() else { continue };
        let name = file_name(&module.path);
        match table_of(&id, &module, resolver) {
            Ok(table) => {
                made.push(visible(name));
                local.0.insert(id.clone());
                with = with.with_table(id, table);
            }
            Err(why) if explain => eprintln!("no unwind table of {}: {}", visible(&module.path), visible(&why)),
            Err(_) => {}
        }
    }
    if !made.is_empty() {
        eprintln!("unwind tables that the bundle lacks, made of the files on this machine: {}", made.join(", "));
    }
    (with, local)
}

fn table_of(id: &DebugId, module: &MappedModule, resolver: &Resolver) -> Result<Vec<u8>, String> {
    let read = resolver.local_binary(module).ok_or("files of this machine are not read")?;
    let bytes = read.map_err(|(reason, detail)| format!("{} {detail}", reason.meaning()))?;
    let object = ObjectFile::parse(&bytes).map_err(|error| error.to_string())?;
    match object.debug_id() {
        Some(found) if found == id => {}
        found => {
            let found = found.map_or_else(|| "none".to_owned(), ToString::to_string);
            return Err(format!("expected the file of {id}, found {found}"));
        }
    }
    loose_unwind_table(id, (&object, bytes.digest()), None).ok_or_else(|| "its rules cannot be compiled".to_owned())
}
