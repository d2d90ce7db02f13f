//! The statement of a kit: what is read is written alike, and its paths can be laid down below one folder.

use symseal_seal::KitStatement;
use symseal_seal::kit::is_kit_path;

pub(super) fn run(data: &[u8]) {
    let Ok(statement) = KitStatement::parse(data) else { return };
    assert_eq!(KitStatement::parse(&statement.to_json()).as_ref(), Ok(&statement));
    let paths: Vec<&str> = statement.files().map(|(path, _)| path).collect();
    assert!(paths.is_sorted_by(|a, b| a < b));
    assert!(paths.iter().all(|path| is_kit_path(path) && !path.split('/').any(|part| part == "..")));
}
