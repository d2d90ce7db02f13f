//! Unwind tables of modules that no bundle has, made of the files that lie where the process had them.

use std::collections::BTreeSet;
use std::path::Path;

use symseal_artifact::ObjectFile;
use symseal_builder::loose_unwind_table;
use symseal_module::{DebugId, MappedModule, UnwindMethod};
use symseal_replay::{BundleTables, ResolvedThread};
use symseal_resolver::Resolver;
use symseal_trace::Trace;

use crate::output::visible;

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
        let name =
            Path::new(&module.path).file_name().map_or(module.path.as_str().into(), |name| name.to_string_lossy());
        match table_of(&id, &module, resolver) {
            Ok(table) => {
                made.push(visible(&name));
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
