//! Names stay whole, however long they are and however much text all of them have.

use crate::model::Module;
use symseal_module::{Rva, Svma};
use symseal_symx::{Form, FunctionFlags, FunctionRecord, NameForm, StrId, Strings, SymbolSource, Table};

/// What readers of phrases take for a name at most.
const LONGEST_IN_PHRASES: usize = 1 << 24;

/// Functions of these names, each name and linkage name in turn.
fn module(names: &[String], form: NameForm) -> Module {
    let mut strings = Strings::new();
    let numbers: Vec<StrId> = names.iter().map(|name| strings.intern(name)).collect();
    let function = |(at, pair): (usize, &[StrId])| FunctionRecord {
        start: Rva(0x1000 + 16 * at as u64),
        size: 16,
        name: pair[0],
        symbol: pair[pair.len() - 1],
        aliases: Vec::new(),
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file: StrId::EMPTY,
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    Module {
        debug_id: "abcdef".parse().expect("an id"),
        image_base: Svma(0),
        producer: "test".into(),
        functions: numbers.chunks(2).enumerate().map(function).collect(),
        strings,
        form: Form { names: form, ..Form::default() },
    }
}

/// The names are read back as they were written; gives how many bytes they have in the table.
#[track_caller]
fn check(names: &[String], form: NameForm) -> usize {
    let bytes = module(names, form).write();
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    for (pair, function) in names.chunks(2).zip(table.functions()) {
        assert!(function.name.text() == pair[0] && function.symbol.text() == pair[pair.len() - 1], "{form:?}");
        let hit = table.lookup(function.start).expect("a hit");
        assert!(hit.function().name.text() == pair[0]);
    }
    bytes.len()
}

/// A text of so many bytes that repeats itself little; the same for the same seed.
fn text(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state >> 40) as u8 % 26)
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn names_of_more_than_16_mib_in_all_stay_whole() {
    // Most as short as most are, some of hundreds of kilobytes.
    let length = |at: u64| if at % 4_000 == 7 { 300_000 } else { 40 + (at % 90) as usize };
    let names: Vec<String> = (0..160_000).map(|at| format!("_ZN4name{at}E{}", text(at, length(at)))).collect();
    let all: usize = names.iter().map(String::len).sum();
    assert!(all > LONGEST_IN_PHRASES + (8 << 20), "{all}");
    for form in [NameForm::BySize, NameForm::Whole] {
        check(&names, form);
    }
}

#[test]
fn one_name_of_16_mib_is_in_phrases_and_with_a_longer_one_names_are_whole() {
    let repeated = |bytes: usize| "name::space::".chars().cycle().take(bytes).collect::<String>();
    let fits = check(&[repeated(LONGEST_IN_PHRASES), "other".to_owned()], NameForm::BySize);
    assert!(fits < LONGEST_IN_PHRASES / 4, "{fits} bytes: it is in phrases");
    let beyond = check(&[repeated(LONGEST_IN_PHRASES + 1), "other".to_owned()], NameForm::BySize);
    assert!(beyond > LONGEST_IN_PHRASES, "{beyond} bytes: it is whole");
}
