//! The symbol tables of bundles: which one names the addresses of a module, where several bundles have one.

use std::sync::Arc;

use symseal_module::DebugId;
use symseal_symx::SparseTable;

use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::pool::JobLost;

/// Tables with different bytes that are looked at for one module.
const LOOKED_AT: usize = 64;

/// The table for GUID and age: of several that of the bundle whose file answers for the debug id, so that names are of the same build as what debuggers get.
/// Blocks where there are several.
pub(crate) fn bundled_table(app: &App, scope: &Scope, (guid, age): ([u8; 16], u32)) -> Option<Candidate> {
    let tables = tables(app, scope, (guid, age));
    best(app, scope, tables)
}

/// The same for those who must not block.
pub(crate) async fn bundled_table_soon(
    app: &Arc<App>,
    scope: &Scope,
    id: ([u8; 16], u32),
) -> Result<Option<Candidate>, JobLost> {
    let tables = tables(app, scope, id);
    if tables.len() < 2 {
        return Ok(tables.into_iter().next());
    }
    let (shared, scope) = (Arc::clone(app), scope.clone());
    app.naming.run(move || best(&shared, &scope, tables)).await
}

fn tables(app: &App, scope: &Scope, (guid, age): ([u8; 16], u32)) -> Vec<Candidate> {
    app.debug_files.find_several(scope, &Key::Breakpad { guid, age }, FileKind::SymbolTable, LOOKED_AT)
}

fn best(app: &App, scope: &Scope, tables: Vec<Candidate>) -> Option<Candidate> {
    let [first, _, ..] = tables.as_slice() else { return tables.into_iter().next() };
    // A table is found by Breakpad's form of its id, which is shorter than a build-id.
    let Some(id) = id_of(app, first) else { return tables.into_iter().next() };
    let bundles: Vec<BlobDigest> = app.debug_files.bundles_of(scope, &Key::Id(id));
    let place = |table: &Candidate| bundles.iter().position(|bundle| *bundle == table.bundle).unwrap_or(usize::MAX);
    tables.into_iter().min_by_key(place)
}

/// The debug id that a table says; `None` where it cannot be read now.
fn id_of(app: &App, table: &Candidate) -> Option<DebugId> {
    let bytes = app.blobs.map(&table.digest).ok()?;
    let mut source: &[u8] = &bytes;
    Some(SparseTable::open(bytes.len() as u64, &mut source).ok()?.debug_id())
}
