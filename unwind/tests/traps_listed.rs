//! The list of traps in docs/unwinding.md against the tests that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of all tests in the sources below `directory`.
fn tests_below(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory of tests").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let mut lines = text.lines();
            while lines.any(|line| line.trim() == "#[test]") {
                let name = lines.find_map(|line| line.trim().strip_prefix("fn ")?.split('(').next());
                names.extend(name.map(str::to_owned));
            }
        }
    }
}

/// The number in the name of the test of a trap.
fn trap_of(name: &str) -> Option<u32> {
    name.strip_prefix('t')?.split_once('_')?.0.parse().ok()
}

/// Names in the text that look like those of tests.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2);
    words.filter(|word| word.matches('_').count() > 2 && word.chars().all(|it| it.is_ascii_alphanumeric() || it == '_'))
}

#[test]
fn every_trap_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut tests = BTreeSet::new();
    tests_below(&root.join("unwind/tests"), &mut tests);
    tests_below(&root.join("replay/tests"), &mut tests);
    tests_below(&root.join("builder/tests"), &mut tests);
    let text = std::fs::read_to_string(root.join("docs/unwinding.md")).expect("the page");
    let rows: BTreeMap<u32, &str> = text
        .lines()
        .filter_map(|line| {
            let (trap, rest) = line.strip_prefix("| T")?.split_once(" |")?;
            let (_, shown_by) = rest.trim_end_matches(" |").rsplit_once(" | ")?;
            Some((trap.parse().ok()?, shown_by))
        })
        .collect();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (1..=17).collect::<Vec<_>>());
    let of_trap = |number: u32| tests.iter().filter(|name| trap_of(name) == Some(number)).count();
    for (number, row) in &rows {
        assert!(of_trap(*number) > 0, "no test of T{number}");
        let missing: Vec<_> = names_in(row).filter(|name| !tests.contains(*name)).collect();
        assert!(missing.is_empty(), "T{number}: {missing:?}");
    }
    assert!(rows.values().flat_map(|row| names_in(row)).count() > 20, "the list names tests");
    let unlisted: Vec<_> =
        tests.iter().filter(|name| trap_of(name).is_some_and(|it| !rows.contains_key(&it))).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
}
