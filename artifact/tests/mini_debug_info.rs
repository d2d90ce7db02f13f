//! MiniDebugInfo beside nm, on files made as Fedora makes them.

use crate::support::{fixtures, have, lookup, run};
use std::collections::BTreeMap;
use std::path::Path;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_symx::SymbolSource;

const SOURCE: &str = r#"
#define HIDDEN static __attribute__((noinline, noclone))
HIDDEN int inner(int x) { return x * 3 + 1; }
HIDDEN int middle(int x) { return inner(x) - inner(x + 1); }
__attribute__((visibility("default"))) int exported(int x) { return middle(x) / 2; }
int main(int argc, char **argv) { (void)argv; return exported(argc); }
"#;

/// Function symbols that `nm -S` lists with a size: name → address.
fn nm(path: &Path) -> BTreeMap<String, u64> {
    let text = run("nm", &["-S", "--defined-only", &path.display().to_string()], Path::new(".")).expect("nm");
    let symbols = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [address, _, kind, name] = parts.as_slice() else { return None };
        let address = u64::from_str_radix(address, 16).ok()?;
        matches!(*kind, "t" | "T" | "W" | "w").then(|| ((*name).to_owned(), address))
    });
    symbols.collect()
}

fn stream_of(bytes: &[u8]) -> FunctionStream {
    let object = ObjectFile::parse(bytes).expect("an object");
    assert!(object.has_mini_debug_info());
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    stream
}

/// Every symbol of `nm` on the unpacked section names its address; how many there are.
#[track_caller]
fn check(path: &Path, folder: &Path) -> usize {
    let packed = folder.join("mini.xz");
    let section = format!(".gnu_debugdata={}", packed.display());
    run("objcopy", &["--dump-section", &section, &path.display().to_string(), "/dev/null"], folder).expect("objcopy");
    let _ = std::fs::remove_file(folder.join("mini"));
    run("xz", &["-d", "-k", "mini.xz"], folder).expect("xz");
    let symbols = nm(&folder.join("mini"));
    let bytes = std::fs::read(path).expect("a file");
    let stream = stream_of(&bytes);
    let base = ObjectFile::parse(&bytes).expect("an object").image_base().0;
    for (name, address) in &symbols {
        let frames = lookup::frames(&stream, address - base);
        let outer = frames.last().unwrap_or_else(|| panic!("{name} at {address:#x} is not known"));
        assert!(outer.symbol == *name || outer.aliases.contains(name), "{name} at {address:#x}: {outer:?}");
    }
    println!("{}: {} symbols as nm has them, {:?}", path.display(), symbols.len(), stream.statistics);
    symbols.len()
}

/// A stripped program with `.gnu_debugdata`, made as `find-debuginfo` of rpm does: functions of the symbol table that the
/// dynamic one has not. None without the tools.
fn made(folder: &Path) -> Option<std::path::PathBuf> {
    if !["gcc", "nm", "objcopy", "strip", "xz"].iter().all(|tool| have(tool)) {
        return None;
    }
    std::fs::write(folder.join("main.c"), SOURCE).expect("a source");
    run("gcc", &["-O1", "-g", "-rdynamic", "main.c", "-o", "full"], folder).expect("gcc");
    let dynamic = run("nm", &["-D", "--format=posix", "--defined-only", "full"], folder).expect("nm");
    let dynamic: Vec<&str> = dynamic.lines().filter_map(|line| line.split(' ').next()).collect();
    let keep: String = nm(&folder.join("full")).into_keys().filter(|name| !dynamic.contains(&name.as_str())).fold(
        String::new(),
        |mut keep, name| {
            keep += &name;
            keep.push('\n');
            keep
        },
    );
    std::fs::write(folder.join("keep"), keep).expect("a list");
    run("objcopy", &["--only-keep-debug", "full", "debug"], folder).expect("objcopy");
    let arguments = ["-S", "--remove-section", ".comment", "--keep-symbols=keep", "debug", "mini"];
    run("objcopy", &arguments, folder).expect("objcopy");
    run("xz", &["-k", "-f", "mini"], folder).expect("xz");
    run("strip", &["-o", "stripped", "full"], folder).expect("strip");
    run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "stripped", "product"], folder).expect("objcopy");
    Some(folder.join("product"))
}

#[test]
fn hidden_functions_are_named_beside_the_dynamic_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(product) = made(folder.path()) else { return };
    assert!(check(&product, folder.path()) >= 2);
    let stream = stream_of(&std::fs::read(&product).expect("a file"));
    let source_of = |name: &str| {
        let mut functions = stream.functions.iter().filter(|function| stream.strings.get(function.symbol) == name);
        functions.next().map(|function| function.source)
    };
    assert_eq!(source_of("inner"), Some(SymbolSource::MiniDebugInfo));
    assert_eq!(source_of("middle"), Some(SymbolSource::MiniDebugInfo));
    assert_eq!(source_of("exported"), Some(SymbolSource::Dynsym));
    if have("gdb") {
        let inner = stream.functions.iter().find(|function| stream.strings.get(function.symbol) == "inner");
        let command = format!("info symbol {:#x}", inner.expect("inner").start.0);
        let text = run("gdb", &["-q", "-batch", "-nx", "-ex", &command, "product"], folder.path()).expect("gdb");
        assert!(text.contains("inner in section .text"), "{text}");
    }
}

#[test]
fn a_damaged_section_is_left_out_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_) = made(folder.path()) else { return };
    let packed = std::fs::read(folder.path().join("mini.xz")).expect("a file");
    let check = |content: &[u8], reason: &str| {
        std::fs::write(folder.path().join("other.xz"), content).expect("a file");
        let arguments = ["--add-section", ".gnu_debugdata=other.xz", "stripped", "damaged"];
        run("objcopy", &arguments, folder.path()).expect("objcopy");
        let stream = stream_of(&std::fs::read(folder.path().join("damaged")).expect("a file"));
        assert_eq!(stream.statistics.skipped.get(reason), Some(&1), "{:?}", stream.statistics);
        assert!(!stream.statistics.functions.contains_key(&SymbolSource::MiniDebugInfo));
    };
    let mut damaged = packed.clone();
    damaged[packed.len() / 2] ^= 0x55;
    check(&damaged, "MiniDebugInfo that cannot be decompressed");
    check(&packed[..packed.len() - 20], "MiniDebugInfo that cannot be decompressed");
    check(b"no xz at all", "MiniDebugInfo that cannot be decompressed");
    let compressed = |bytes: &[u8], flags: &[&str]| {
        std::fs::write(folder.path().join("content"), bytes).expect("a file");
        let mut arguments = vec!["-k", "-f", "content"];
        arguments.extend(flags);
        run("xz", &arguments, folder.path()).expect("xz");
        std::fs::read(folder.path().join("content.xz")).expect("a file")
    };
    check(&compressed(b"text", &[]), "MiniDebugInfo that is no ELF file");
    // 64 MB of nothing in ten kilobytes, and a window that no symbol table needs.
    check(&compressed(&vec![0; 64 << 20], &[]), "MiniDebugInfo of a size that no symbol table has");
    check(&compressed(b"text", &["--lzma2=preset=6,dict=512MiB"]), "MiniDebugInfo that cannot be decompressed");
}

#[test]
fn fixtures_have_the_symbols_that_nm_lists() {
    let Some(fixtures) = fixtures() else { return };
    if !have("xz") || !have("nm") || !have("objcopy") {
        return;
    }
    for name in ["elf-var/minidebuginfo", "dump_syms/test_data/linux/basic.minidebuginfo"] {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(check(&fixtures.join(name), folder.path()) > 0, "{name}");
    }
}
