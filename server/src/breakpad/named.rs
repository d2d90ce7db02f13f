//! Symbol files of one id by the name of the module's debug file: build systems that make up ids give one to several modules.

use std::sync::Arc;

use symseal_artifact::BreakpadFile;

use super::file_name;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Candidate, FileKind, Key, Scope};

/// The symbol files of one id that are looked into for a name.
const MOST_CANDIDATES: usize = 8;

/// The loose symbol files of one id.
#[derive(Debug, Default)]
pub(crate) struct SymbolFiles {
    /// Those that are the module's by their own name, or by their first line; the best first.
    pub(crate) named: Vec<Candidate>,
    /// The others: of the module as far as nothing is known by which it is called.
    pub(crate) others: Vec<Candidate>,
}

/// The loose symbol files with Breakpad's id that the caller may read. Where no name is known, none is named.
pub(crate) async fn symbol_files(
    app: &App,
    scope: &Scope,
    (guid, age): ([u8; 16], u32),
    debug_file: Option<&str>,
) -> SymbolFiles {
    let key = Key::Breakpad { guid, age };
    let files = app.debug_files.find_several(scope, &key, FileKind::SymbolFile, MOST_CANDIDATES);
    let Some(debug_file) = debug_file.filter(|_| !files.is_empty()) else {
        return SymbolFiles { named: Vec::new(), others: files };
    };
    let is_titled = |title: &str| is_title_of(title, debug_file);
    // It may be behind many others.
    if let Some(best) = app.debug_files.find_named(scope, &key, FileKind::SymbolFile, is_titled) {
        let (titled, others): (Vec<_>, Vec<_>) =
            files.into_iter().filter(|file| file.digest != best.digest).partition(|file| is_titled(&file.name));
        return SymbolFiles { named: [vec![best], titled].concat(), others };
    }
    let has_name = by_head(app, &files, debug_file).await;
    let (named, others): (Vec<_>, Vec<_>) = files.into_iter().zip(has_name).partition(|(_, has_name)| *has_name);
    let files = |chosen: Vec<(Candidate, bool)>| chosen.into_iter().map(|(file, _)| file).collect();
    SymbolFiles { named: files(named), others: files(others) }
}

/// Whether a symbol file's name is that of the debug file's.
pub(crate) fn is_title_of(title: &str, debug_file: &str) -> bool {
    title.to_lowercase() == file_name(debug_file).to_lowercase()
}

/// Which of the files have the name in their first lines.
async fn by_head(app: &App, files: &[Candidate], name: &str) -> Vec<bool> {
    let digests: Vec<_> = files.iter().map(|file| file.digest.clone()).collect();
    let (blobs, name) = (Arc::clone(&app.blobs), name.to_lowercase());
    let has_name = move |digest: &BlobDigest| {
        // One whose blob is lost has none that is known.
        let bytes = blobs.map(digest).ok();
        bytes.is_some_and(|bytes| BreakpadFile::parse(&bytes).is_ok_and(|file| file.name().to_lowercase() == name))
    };
    let look = app.making.run(move || digests.iter().map(has_name).collect()).await;
    look.unwrap_or_else(|_| vec![false; files.len()])
}
