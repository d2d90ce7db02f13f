//! microMIPS and MIPS16: bit 0 of a function's symbol, and of the addresses in line tables, tells the instruction set.

use crate::support::{Expected, addresses_in, any_of, have, llvm_symbolizer_in, lookup, run};
use std::collections::BTreeSet;
use std::path::Path;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};

const SOURCE: &str = "
#ifdef MIXED
#define OURS __attribute__((mips16, noinline))
#define PLAIN __attribute__((nomips16, noinline))
#else
#define OURS __attribute__((noinline))
#define PLAIN OURS
#endif
struct node { int value; struct node *next; };
static volatile int sink;
static inline int twice(int x) { sink = x; return x + x; }
OURS int leaf(int x) { return x * 3 + 1; }
PLAIN int plain(int x) { sink = x; return x * 7; }
OURS int list(struct node *n) { int sum = 0; for (; n; n = n->next) sum += twice(n->value); return sum; }
__attribute__((cold)) OURS int rare(int x) { if (x > 5) sink++; return x - twice(x); }
OURS int choose(int x) {
    switch (x) {
    case 0: return x + 1;
    case 1: return x + twice(2);
    default: return x ? x * 5 : 9;
    }
}
";

fn stream_of(bytes: &[u8]) -> FunctionStream {
    let object = ObjectFile::parse(bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    stream
}

/// Function, file, line and column of each frame.
type Frames = Vec<(String, String, u64, u64)>;

fn is_label(name: &str) -> bool {
    name.is_empty() || name.starts_with("$L")
}

/// llvm-symbolizer takes the compiler's labels within a function (GCC's `$L10`, clang's without a name) for functions: there the name of
/// ours stands.
fn expected_frames(frames: &[Expected], found: &Frames) -> Frames {
    let ours = |at: usize| found.get(at).map(|frame| frame.0.clone()).unwrap_or_default();
    let name = |at: usize, name: &str| if is_label(name) { ours(at) } else { name.to_owned() };
    let frames = frames.iter().enumerate();
    frames.map(|(at, frame)| (name(at, &frame.function), frame.file.clone(), frame.line, frame.column)).collect()
}

/// Compares all of a library's code with what llvm-symbolizer says. It takes the bit off symbols and leaves it in debug information, so that
/// lines and inlined calls are those that it has one byte further on, within the same instruction.
fn compare(folder: &Path, name: &str, starts: &[&str], with_lines: bool) {
    let path = folder.join(name);
    let bytes = std::fs::read(&path).expect("a library");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let (stream, base) = (stream_of(&bytes), object.image_base().0);
    let named: BTreeSet<&str> = stream.functions.iter().map(|record| stream.strings.get(record.symbol)).collect();
    assert!(starts.iter().all(|name| named.contains(name)), "{name}: {named:?}");
    assert!(stream.functions.iter().all(|record| record.start.0 % 2 == 0), "{name}");
    assert!(stream.functions.iter().flat_map(|record| &record.rows).all(|row| row.start.0 % 2 == 0), "{name}");
    let addresses: Vec<u64> = addresses_in(&object.unwind_inputs().text, 100_000, 1);
    let at_address = llvm_symbolizer_in(folder, &path, &addresses);
    let odd: Vec<u64> = addresses.iter().map(|address| address | 1).collect();
    let at_odd = llvm_symbolizer_in(folder, &path, &odd);
    let mut compared = 0;
    for ((address, at_address), at_odd) in addresses.iter().zip(&at_address).zip(&at_odd) {
        let found = lookup::frames(&stream, address - base);
        let is_named = at_address.first().is_some_and(|frame| !frame.function.is_empty());
        // Padding behind the last function, over which llvm-symbolizer lets its lines reach.
        if found.is_empty() && !(is_named && at_address.iter().all(|frame| frame.line > 0)) {
            continue;
        }
        let found: Frames = found.into_iter().map(|frame| (frame.name, frame.file, frame.line, frame.column)).collect();
        let function = at_address.last().map(|frame| frame.function.as_str()).filter(|name| !is_label(name));
        assert!(function.is_none_or(|name| found.last().is_some_and(|frame| frame.0 == name)), "{name} {address:#x}");
        if with_lines {
            assert_eq!(found, expected_frames(at_odd, &found), "{name} {address:#x}");
        }
        compared += 1;
    }
    println!("{name}: {compared} of {} addresses", addresses.len());
    assert!(compared * 10 > addresses.len() * 8, "{name}: {compared} of {}", addresses.len());
}

#[test]
fn compressed_code_of_mips_starts_at_even_addresses_and_has_its_lines_there() {
    let compilers = ["mips-linux-gnu-gcc", "mipsel-linux-gnu-gcc"];
    if any_of(&["llvm-symbolizer-19", "llvm-symbolizer"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).expect("a source");
    let shared = ["-mips32r2", "-mabi=32", "-O2", "-g", "-shared", "-nostdlib", "-fPIC", "a.c", "-o"];
    for compiler in compilers.into_iter().filter(|compiler| have(compiler)) {
        for flag in ["-mmicromips", "-DMIXED", "-gdwarf-4 -mmicromips"] {
            let name = format!("{compiler}{flag}.so");
            let mut arguments: Vec<&str> = shared.to_vec();
            arguments.push(&name);
            arguments.extend(flag.split(' '));
            run(compiler, &arguments, folder).expect("a library");
            compare(folder, &name, &["leaf", "plain", "list", "rare", "choose"], true);
            // The same as an object, whose debug sections are relocated, with all code in one section: each starts at 0 for llvm-symbolizer.
            let object = format!("{compiler}{flag}.o");
            let mut arguments = vec!["-mips32r2", "-mabi=32", "-O2", "-g", "-fPIC", "-Dcold=noinline", "-c", "a.c"];
            arguments.extend(["-o", &object]);
            arguments.extend(flag.split(' '));
            run(compiler, &arguments, folder).expect("an object");
            compare(folder, &object, &["leaf", "plain", "list", "rare", "choose"], true);
        }
    }
    // Clang's, linked by GNU ld: lld does not know all relocations. Version 14 writes sequences of lines that reach over the next function.
    if have("clang") && have("mips-linux-gnu-gcc") {
        let compile = ["--target=mips-linux-gnu", "-mips32r2", "-mmicromips", "-O2", "-g", "-fPIC", "-c", "a.c"];
        run("clang", &compile, folder).expect("an object");
        run("mips-linux-gnu-gcc", &["-shared", "-nostdlib", "a.o", "-o", "clang.so"], folder).expect("a library");
        compare(folder, "clang.so", &["leaf", "plain", "list", "rare", "choose"], false);
    }
}

#[test]
fn odd_symbols_stay_odd_where_the_header_tells_of_no_compressed_code() {
    let compiler = "mips-linux-gnu-gcc";
    if !have(compiler) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).expect("a source");
    let flags = ["-mips32r2", "-mabi=32", "-mmicromips", "-O2", "-shared", "-nostdlib", "-fPIC", "a.c", "-o", "a.so"];
    run(compiler, &flags, folder).expect("a library");
    let mut bytes = std::fs::read(folder.join("a.so")).expect("a library");
    let starts = |bytes: &[u8]| -> Vec<(String, u64)> {
        let stream = stream_of(bytes);
        let named = stream.functions.iter();
        let mut named: Vec<(String, u64)> =
            named.map(|record| (stream.strings.get(record.symbol).to_owned(), record.start.0)).collect();
        named.sort();
        named
    };
    let with = starts(&bytes);
    assert_eq!(with.iter().filter(|(_, start)| start % 2 == 0).count(), with.len(), "{with:?}");
    // Labels within functions name nothing.
    assert!(with.iter().all(|(name, _)| !name.starts_with("$L")), "{with:?}");
    // `e_flags` of the 32-bit header, high byte first: EF_MIPS_MICROMIPS.
    assert_eq!(bytes[36] & 2, 2);
    bytes[36] &= !2;
    let without = starts(&bytes);
    let leaf = |starts: &[(String, u64)]| starts.iter().find(|(name, _)| name == "leaf").expect("leaf").1;
    assert_eq!(leaf(&without), leaf(&with) + 1);
}
