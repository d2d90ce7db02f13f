//! Code whose symbols are of data, and directories named like the one that the compiler ran in: as llvm-symbolizer reads them.

use crate::support::{have, llvm_symbolizer, llvm_symbolizer_in, lookup, run};
use std::path::Path;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};

fn stream_of(path: &Path) -> FunctionStream {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    stream
}

/// GHC puts a table before each function, and gives what begins there the type of data; Zig has given it to all its functions.
#[test]
fn symbols_of_data_with_a_size_name_code_in_sections_of_instructions_alone() {
    if !have("cc") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = "
    .text
    .globl entry, table, marker, both
    .type entry, @object
entry: nop; nop; nop; ret
    .size entry, .-entry
    .type both, @object
    .type function_of_both, @function
both:
function_of_both: nop; ret
    .size both, .-both
    .size function_of_both, .-function_of_both
    .type marker, @object
marker: nop; ret
    .data
    .type table, @object
table: .long 1, 2
    .size table, 8
";
    std::fs::write(folder.path().join("a.s"), source).expect("a source");
    run("cc", &["-shared", "-nostdlib", "a.s", "-o", "a.so"], folder.path()).expect("it assembles");
    let library = folder.path().join("a.so");
    let stream = stream_of(&library);
    let names: Vec<&str> = stream.functions.iter().map(|function| stream.strings.get(function.symbol)).collect();
    assert_eq!(names, ["entry", "function_of_both"]);
    let inside: Vec<u64> = stream.functions.iter().map(|function| function.start.0 + function.size - 1).collect();
    let expected = llvm_symbolizer(&library, &inside);
    assert!(expected.iter().all(|frames| frames.len() == 1), "{expected:?}");
    assert_eq!(expected[0][0].function, "entry");
}

/// Before DWARF 5 every directory but number 0 is one of the source's own; one that has the name of a relative compilation directory is within it.
#[test]
fn a_directory_with_the_name_of_the_compilation_directory_is_within_it() {
    if !have("cc") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("src")).expect("a folder");
    std::fs::write(folder.path().join("src/a.c"), "int f(int x)\n{\n    return x * 3;\n}\n").expect("a source");
    let map = format!("-fdebug-prefix-map={}=src", folder.path().display());
    for compiler in ["cc", "clang"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            if !have(compiler) {
                continue;
            }
            let arguments = [version, &map, "-shared", "-fPIC", "src/a.c", "-o", "a.so"];
            run(compiler, &arguments, folder.path()).expect("it compiles");
            let library = folder.path().join("a.so");
            let stream = stream_of(&library);
            let function = stream.functions.iter().find(|one| stream.strings.get(one.symbol) == "f").expect("f");
            let (at, elsewhere) = (function.start.0, Path::new("/"));
            let found = lookup::frames(&stream, at);
            let expected = llvm_symbolizer_in(elsewhere, &library, &[at]);
            assert_eq!(
                (&found[0].file, found[0].line),
                (&expected[0][0].file, expected[0][0].line),
                "{compiler} {version}"
            );
        }
    }
}
