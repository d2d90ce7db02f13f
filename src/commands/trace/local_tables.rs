//! Unwind tables of modules that no bundle has, made of the files that lie where the process had them.

use std::path::Path;

use symseal_artifact::ObjectFile;
use symseal_builder::loose_unwind_table;
use symseal_module::{DebugId, MappedModule};
use symseal_replay::BundleTables;
use symseal_resolver::Resolver;
use symseal_trace::Trace;

use crate::output::visible;

/// Adds tables for the modules that stacks of `trace` may lead into and that have none, and says on standard error whose they are: what is
/// found by them rests on nothing that anybody signed. `explain` tells why a module has none either.
pub(super) fn add(tables: BundleTables, trace: &Trace, resolver: &Resolver, explain: bool) -> BundleTables {
    let mut made = Vec::new();
    let mut with = tables.clone();
    for module in tables.wanted(trace) {
        let Some(id) = module.debug_id.clone() else { continue };
        let name =
            Path::new(&module.path).file_name().map_or(module.path.as_str().into(), |name| name.to_string_lossy());
        match table_of(&id, &module, resolver) {
            Ok(table) => {
                made.push(visible(&name));
                with = with.with_table(id, table);
            }
            Err(why) if explain => eprintln!("no unwind table of {}: {}", visible(&module.path), visible(&why)),
            Err(_) => {}
        }
    }
    if !made.is_empty() {
        eprintln!("unwind tables that the bundle lacks, made of the files on this machine: {}", made.join(", "));
    }
    with
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
