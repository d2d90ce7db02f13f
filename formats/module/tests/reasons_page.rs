//! `docs/formats/reasons.md` and `codes.rs` say the same.

use symseal_module::{FrameEdge, MissReason, Proof, Quality, ResolverStep, StopReason, UnwindMethod};

/// The rows of the table that follows the marker of the set `name`: number, code, meaning.
fn rows_of<'p>(page: &'p str, name: &str) -> Vec<(&'p str, &'p str, &'p str)> {
    let marker = format!("<!-- codes: {name} -->");
    let (_, after) = page.split_once(&marker).unwrap_or_else(|| panic!("the page has no table of {name}"));
    after
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let mut cells = line.trim_matches('|').splitn(3, '|').map(str::trim);
            let mut next = || cells.next().unwrap_or_else(|| panic!("{line}: expected three cells"));
            (next(), next().trim_matches('`'), next())
        })
        .collect()
}

#[test]
fn the_page_lists_every_code_with_its_number_and_meaning() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/reasons.md");
    let page = std::fs::read_to_string(path).unwrap();
    macro_rules! check_set {
        ($name:ident) => {
            let numbers: Vec<String> = $name::ALL.iter().map(|code| code.number().to_string()).collect();
            let expected: Vec<_> = $name::ALL
                .iter()
                .zip(&numbers)
                .map(|(code, number)| (number.as_str(), code.code(), code.meaning()))
                .collect();
            assert_eq!(rows_of(&page, stringify!($name)), expected, "{}", stringify!($name));
        };
    }
    check_set!(UnwindMethod);
    check_set!(FrameEdge);
    check_set!(StopReason);
    check_set!(ResolverStep);
    check_set!(MissReason);
    check_set!(Quality);
    check_set!(Proof);
    assert_eq!(page.matches("<!-- codes: ").count(), 7, "a table of a set that the code does not have");
}
