//! Symbol files of one id by the name of the module's debug file: build systems that make up ids give one to several modules.

use std::sync::Arc;

use symseal_artifact::BreakpadFile;

use super::file_name;
use crate::app::App;
use crate::debug_files::{Candidate, FileKind, Key, Scope};

/// The symbol files of one id that are looked into for a name.
const MOST_CANDIDATES: usize = 8;

/// The loose symbol files with Breakpad's id that the caller may read, the best first. Of several the one that is the module's by its own name, or by
/// its first line, is alone: the others are not this module's. Where none is, or no name is known, all are.
pub(crate) async fn symbol_files(
    app: &App,
    scope: &Scope,
    (guid, age): ([u8; 16], u32),
    debug_file: Option<&str>,
) -> Vec<Candidate> {
    let key = Key::Breakpad { guid, age };
    let Some(debug_file) = debug_file else {
        return app.debug_files.find_several(scope, &key, FileKind::SymbolFile, MOST_CANDIDATES);
    };
    let is_titled = |title: &str| is_title_of(title, debug_file);
    if let Some(best) = app.debug_files.find_named(scope, &key, FileKind::SymbolFile, is_titled) {
        return vec![best];
    }
    let mut files = app.debug_files.find_several(scope, &key, FileKind::SymbolFile, MOST_CANDIDATES);
    if files.len() > 1
        && let Some(at) = by_head(app, &files, debug_file).await
    {
        return vec![files.swap_remove(at)];
    }
    files
}

/// Whether a symbol file's name is that of the debug file's.
pub(crate) fn is_title_of(title: &str, debug_file: &str) -> bool {
    title.to_lowercase() == file_name(debug_file).to_lowercase()
}

/// Which of the files has the name in its first line.
async fn by_head(app: &App, files: &[Candidate], name: &str) -> Option<usize> {
    let digests: Vec<_> = files.iter().map(|file| file.digest.clone()).collect();
    let (blobs, name) = (Arc::clone(&app.blobs), name.to_lowercase());
    let find = move || {
        digests.iter().position(|digest| {
            // One whose blob is lost is none that is found.
            let bytes = blobs.map(digest).ok();
            bytes.is_some_and(|bytes| BreakpadFile::parse(&bytes).is_ok_and(|file| file.name().to_lowercase() == name))
        })
    };
    app.making.run(find).await.ok().flatten()
}
