//! 64-bit PowerPC before version 2 of its ABI: symbols of functions name descriptors in `.opd`, and these the code.

use crate::support::{addresses_in, have, is_there, llvm_symbolizer_in, lookup, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const SOURCE: &str = "
struct node { int value; struct node *next; };
static volatile int sink;
__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }
static inline int twice(int x) { sink = x; return x + x; }
int list(struct node *n) { int sum = 0; for (; n; n = n->next) sum += twice(n->value); return sum + leaf(sum); }
__attribute__((cold, noinline)) static int rare(int x) { if (x > 5) sink++; return leaf(x) - twice(x); }
int choose(int x) { return x == 0 ? leaf(1) : x == 1 ? rare(2) : x ? list(0) : 9; }
";
const NAMES: [&str; 4] = ["choose", "leaf", "list", "rare"];

/// Start and size of the named functions. Stubs of a linker have labels too.
fn starts(binary: &[u8], debug: Option<&[u8]>) -> BTreeMap<String, (u64, u64)> {
    let object = ObjectFile::parse(binary).expect("an object");
    let debug = debug.map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    let stream = functions(&object, &DebugFiles::debug(debug.as_ref())).expect("functions");
    lookup::check_shape(&stream);
    let named = stream.functions.iter().map(|record| {
        let svma = record.start.to_svma(object.image_base()).expect("an address");
        (stream.strings.get(record.symbol).to_owned(), (svma.0, record.size))
    });
    named.filter(|(name, _)| NAMES.contains(&name.as_str())).collect()
}

/// The same as the file's own symbols have them.
fn symbols(bytes: &[u8]) -> BTreeMap<String, (u64, u64)> {
    let object = ObjectFile::parse(bytes).expect("an object");
    let named = object.function_symbols().into_iter();
    let named = named.map(|symbol| (String::from_utf8_lossy(&symbol.name).into_owned(), (symbol.svma.0, symbol.size)));
    named.filter(|(name, _)| NAMES.contains(&name.as_str())).collect()
}

/// Compiles for it, and links with each linker that is there: with debug information and without.
fn linked(folder: &Path) -> Option<Vec<&'static str>> {
    if !have("clang") || !have("ld.lld") || !have("llvm-objcopy") {
        return None;
    }
    std::fs::write(folder.join("a.c"), SOURCE).expect("a source");
    let compile = ["--target=powerpc64-linux-gnu", "-O2", "-g", "-fPIC", "-c", "a.c", "-o", "a.o"];
    run("clang", &compile, folder).expect("an object");
    let mut made = Vec::new();
    let mut link = |linker: &str, name: &'static str, flags: &[&str]| {
        run(linker, &[&["a.o", "-o", name], flags].concat(), folder).expect("a program");
        made.push(name);
    };
    link("ld.lld", "lld", &["-e", "choose"]);
    // Its descriptors are in its relocations alone.
    link("ld.lld", "lld.so", &["-shared"]);
    if is_there("powerpc64-linux-gnu-ld") {
        link("powerpc64-linux-gnu-ld", "gnu", &["-e", "choose", "--build-id"]);
        link("powerpc64-linux-gnu-ld", "gnu.so", &["-shared", "--build-id"]);
    } else {
        println!("powerpc64-linux-gnu-ld is not there: lld's programs alone");
    }
    Some(made)
}

#[test]
fn symbols_that_name_descriptors_name_the_code_that_these_lead_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let Some(made) = linked(folder) else { return };
    for name in made {
        let read = |name: &str| std::fs::read(folder.join(name)).expect("a file");
        let whole = read(name);
        // As the entries of the debug information have them.
        let described = starts(&whole, None);
        assert!(described.keys().eq(NAMES), "{name}: {described:?}");
        let stripped = format!("{name}.stripped");
        run("llvm-objcopy", &["--strip-debug", name, &stripped], folder).expect("a file");
        assert_eq!(starts(&read(&stripped), None), described, "{name}");

        // A debug file has no bytes of the descriptors: they are the binary's.
        let (debug, bare) = (format!("{name}.debug"), format!("{name}.bare"));
        run("llvm-objcopy", &["--only-keep-debug", &stripped, &debug], folder).expect("a file");
        run("llvm-objcopy", &["--strip-all", name, &bare], folder).expect("a file");
        assert_eq!(starts(&read(&bare), Some(&read(&debug))), described, "{name}");
        assert_eq!(starts(&read(&debug), None), BTreeMap::new(), "{name}");
        assert_eq!(symbols(&read(&debug)), BTreeMap::new(), "{name}");
        assert_eq!(symbols(&read(&stripped)), described, "{name}");
    }
}

#[test]
fn code_behind_descriptors_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let Some(made) = linked(folder) else { return };
    // llvm-symbolizer reads descriptors as they stand in the file, without relocations.
    for name in made.into_iter().filter(|name| *name != "lld.so") {
        let stripped = format!("{name}.stripped");
        run("llvm-objcopy", &["--strip-debug", name, &stripped], folder).expect("a file");
        for name in [name, &stripped] {
            let path = folder.join(name);
            let bytes = std::fs::read(&path).expect("a file");
            let object = ObjectFile::parse(&bytes).expect("an object");
            let stream = functions(&object, &DebugFiles::default()).expect("functions");
            let addresses = addresses_in(&object.unwind_inputs().text, 100_000, 1);
            let mut seen = BTreeSet::new();
            for (address, expected) in addresses.iter().zip(llvm_symbolizer_in(folder, &path, &addresses)) {
                let found = lookup::frames(&stream, address - object.image_base().0);
                let found: Vec<_> =
                    found.iter().map(|frame| (frame.symbol.as_str(), frame.line, frame.column)).collect();
                let expected: Vec<_> =
                    expected.iter().map(|frame| (frame.function.as_str(), frame.line, frame.column)).collect();
                // Between the functions llvm-symbolizer takes the one before.
                if found.is_empty() {
                    continue;
                }
                assert_eq!(found, expected, "{name} {address:#x}");
                seen.extend(found.last().map(|frame| frame.0.to_owned()));
            }
            assert!(NAMES.iter().all(|name| seen.contains(*name)), "{name}: {seen:?}");
        }
    }
}

#[test]
fn descriptors_of_an_object_are_in_its_relocations() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    if linked(folder).is_none() {
        return;
    }
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a file");
    let described = starts(&read("a.o"), None);
    assert!(described.keys().eq(NAMES), "{described:?}");
    run("llvm-objcopy", &["--strip-debug", "a.o", "stripped.o"], folder).expect("a file");
    assert_eq!(starts(&read("stripped.o"), None), described);
}
