//! Source files that split DWARF names relative to where each compiler was run. What they are is on the disk.

use crate::support::{have, run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use symseal_artifact::{DebugFiles, ObjectFile, source_files};

/// Two parts with sources of the same names but for one, each compiled in a directory of its own.
const PARTS: [(&str, &str); 2] = [("one", "first.cpp"), ("two", "second.cpp")];

fn write_sources(folder: &Path) -> BTreeSet<PathBuf> {
    let mut written = BTreeSet::new();
    for (part, name) in PARTS {
        for directory in ["src", "out"] {
            std::fs::create_dir_all(folder.join(part).join(directory)).expect("a directory");
        }
        let is_main = part == "one";
        let code = format!(
            "#include \"type.h\"\nint {part}(int x) {{ return Type().of(x) + {}; }}\n{}",
            if is_main { "1" } else { "2" },
            if is_main {
                "int two(int);\nint main(int count, char **) { return one(count) + two(count); }\n"
            } else {
                ""
            }
        );
        let header = format!("struct Type {{ int {part}; int of(int x) {{ return x * x; }} }};\n");
        for (name, text) in [(name, code), ("type.h", header)] {
            let path = folder.join(part).join("src").join(name);
            std::fs::write(&path, text).expect("a source");
            written.insert(path.canonicalize().expect("its path"));
        }
    }
    written
}

/// Compiles each part where it is relative; the `.dwo` files.
fn compile(compiler: &str, flags: &[&str], folder: &Path) -> Option<Vec<PathBuf>> {
    let mut split = Vec::new();
    for (part, name) in PARTS {
        let source = format!("../src/{name}");
        let mut arguments = vec!["-O1", "-gsplit-dwarf", "-c", &source, "-o", "part.o"];
        arguments.extend(flags);
        run(compiler, &arguments, &folder.join(part).join("out"))?;
        split.push(folder.join(part).join("out/part.dwo"));
    }
    run(compiler, &["-o", "program", "one/out/part.o", "two/out/part.o"], folder)?;
    Some(split)
}

/// The files that the tables name; one that is not on the disk fails.
fn named(binary: &Path, split: &[PathBuf]) -> BTreeSet<PathBuf> {
    let read = |path: &PathBuf| std::fs::read(path).expect("a file");
    let bytes = read(&binary.to_owned());
    let object = ObjectFile::parse(&bytes).expect("an object");
    let split: Vec<Vec<u8>> = split.iter().map(read).collect();
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).expect("split")).collect();
    let mut found = BTreeSet::new();
    source_files(&object, &DebugFiles { split: &split, ..DebugFiles::default() }, &mut |path, _| {
        assert!(Path::new(path).is_absolute(), "{path}");
        found.insert(Path::new(path).canonicalize().unwrap_or_else(|error| panic!("{path}: {error}")));
    })
    .expect("its files");
    found
}

#[test]
fn names_of_split_tables_are_relative_to_where_their_own_unit_was_compiled() {
    for (compiler, flags) in [
        ("g++", &["-gdwarf-4"][..]),
        ("g++", &["-gdwarf-4", "-fdebug-types-section"]),
        ("g++", &["-gdwarf-5", "-fdebug-types-section"]),
        ("clang++", &["-gdwarf-4", "-fdebug-types-section"]),
        ("clang++", &["-gdwarf-5", "-fdebug-types-section"]),
    ] {
        if !have(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let expected = write_sources(folder);
        let Some(split) = compile(compiler, flags, folder) else { continue };
        let binary = folder.join("program");
        assert_eq!(named(&binary, &split), expected, "{compiler} {flags:?}");
        // binutils' dwp knows version 4 alone, llvm-dwp not the DWARF 5 of GCC 12.
        let is_four = flags.contains(&"-gdwarf-4");
        for tool in ["llvm-dwp", "dwp"] {
            if !have(tool) || !(is_four || (tool == "llvm-dwp" && compiler == "clang++")) {
                continue;
            }
            run(tool, &["one/out/part.dwo", "two/out/part.dwo", "-o", tool], folder).expect("a package");
            assert_eq!(named(&binary, &[folder.join(tool)]), expected, "{compiler} {flags:?} {tool}");
        }
    }
}
