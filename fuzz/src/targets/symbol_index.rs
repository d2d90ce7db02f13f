//! Any bytes as `symbol_index.json` or the index of a module: what is read can be written again and composed.

use symseal_bundle::{SymbolIndex, canonical, compose, module_index, title};

pub(super) fn run(bytes: &[u8]) {
    let _ = module_index::parse(bytes);
    let Ok(index) = SymbolIndex::parse(bytes) else { return };
    assert!(canonical::is_canonical(bytes));
    let again = index.to_canonical_json().unwrap();
    assert_eq!(SymbolIndex::parse(&again).unwrap(), index);
    for file in index.files() {
        assert_eq!(title::check_title(&file.path), Ok(()));
        assert!(std::path::Path::new(&file.path).is_relative() && !file.path.split('/').any(|part| part == ".."));
    }
    let _ = compose::shards(&index);
    let _ = compose::compose(&index);
}
