//! PE files with PDBs, with DWARF and with neither, beside what llvm-symbolizer says of them.

use crate::support::expected::{case_of, without_parentheses};
use crate::support::{fixtures, have};
use crate::windows::Module;
use std::path::PathBuf;

#[test]
fn pe_fixtures_give_the_expected_frames() {
    let Some(folder) = fixtures() else { return };
    if !have("llvm-cxxfilt") || !have("llvm-undname") {
        return;
    }
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder.join("expected"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.display().to_string();
            name.contains(".dll.symbolizer.json") || name.contains(".exe.symbolizer.json")
        })
        .collect();
    paths.sort();
    let (mut files, mut entries, mut worse) = (0, 0, Vec::new());
    for path in paths {
        let case = case_of(&path, without_parentheses);
        let module = Module::read(&folder.join(&case.file));
        let comparison = module.compare(&case.entries, true);
        files += 1;
        entries += comparison.compared;
        println!("{}: {:?}\n{comparison}", case.file, module.stream.statistics);
        let equal = comparison.depth_equal.min(comparison.lines_equal).min(comparison.names_equal);
        if equal * 1000 < comparison.compared * 995 {
            worse.push(format!("{}: {comparison}", case.file));
        }
    }
    println!("{files} files and {entries} addresses agree");
    assert!(worse.is_empty(), "{}", worse.join("\n"));
    assert!(files > 0 && entries > 0);
}
