//! Without an id that a linker wrote: by the name and checksum of a link, and by the same code.

use std::path::{Path, PathBuf};

use super::{module, paired, text};
use crate::inputs::{SOURCE, builder, compile, report, run, tool};
use symseal_builder::{NamedBy, PairedBy, PairedRole};
use symseal_bundle::{DebugInfo, LayoutDir};

/// A stripped library and its debug file, tied by `.gnu_debuglink`, without a build-id.
fn linked(dir: &Path, name: &str, source: &str) -> Option<(PathBuf, PathBuf)> {
    let (cc, objcopy) = (tool("cc")?, tool("objcopy")?);
    let binary = compile(&cc, dir, name, source, &["-g", "-Wl,--build-id=none"]);
    let debug = dir.join(format!("{name}.debug"));
    run(&objcopy, &["--only-keep-debug", text(&binary), text(&debug)]);
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    run(&objcopy, &["--strip-all", &link, text(&binary)]);
    Some((binary, debug))
}

#[test]
fn without_a_build_id_the_debuglink_and_its_crc_pair() {
    let dir = tempfile::tempdir().unwrap();
    let Some((binary, debug)) = linked(dir.path(), "linked.so", SOURCE) else { return };
    let found = report(&[binary, debug]);
    let module = module(&found, "linked.so");
    assert_eq!(module.id_kind, "text-hash");
    assert_eq!(paired(module), [("linked.so.debug", PairedRole::DebugFile, Some(PairedBy::DebuglinkCrc))]);
    assert_eq!(module.debug_info, DebugInfo::Full);
    assert!(module.functions["dwarf"] > 0, "{module:?}");
    assert!(found.is_complete(), "{found:?}");
    // It can be built and is what its digest says.
    let layout = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(layout.path()).unwrap();
    builder(&[dir.path().to_owned()]).strict(true).build(&layout).unwrap();
}

#[test]
fn a_binary_that_lost_its_build_id_goes_by_the_link_and_the_crc() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let binary = compile(&cc, dir.path(), "app.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let debug = dir.path().join("app.so.debug");
    run(&objcopy, &["--only-keep-debug", text(&binary), text(&debug)]);
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    run(&objcopy, &["--strip-all", "--remove-section=.note.gnu.build-id", &link, text(&binary)]);
    let found = report(&[binary.clone(), debug.clone()]);
    assert!(found.is_complete() && found.modules.len() == 1, "{found:#?}");
    let module = module(&found, "app.so");
    assert_eq!(module.id_kind, "text-hash");
    assert_eq!(paired(module), [("app.so.debug", PairedRole::DebugFile, Some(PairedBy::DebuglinkCrc))]);
    // Another byte, and it is another file.
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let found = report(&[binary, debug]);
    assert_eq!((found.modules.len(), found.mismatches.len()), (2, 1), "{found:#?}");
}

#[test]
fn a_debug_file_that_lost_its_build_id_goes_by_the_link_and_the_crc() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let binary = compile(&cc, dir.path(), "app.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let debug = dir.path().join("app.so.debug");
    run(&objcopy, &["--only-keep-debug", "--remove-section=.note.gnu.build-id", text(&binary), text(&debug)]);
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    run(&objcopy, &["--strip-all", &link, text(&binary)]);
    let found = report(&[binary.clone(), debug.clone()]);
    assert!(found.is_complete() && found.modules.len() == 1, "{found:#?}");
    let module = module(&found, "app.so");
    assert_eq!(module.id_kind, "gnu-build-id");
    assert_eq!(paired(module), [("app.so.debug", PairedRole::DebugFile, Some(PairedBy::DebuglinkCrc))]);
    assert!(module.functions["dwarf"] > 0, "{module:?}");
    // Another byte, and nothing says that it is this binary's, which asks for its id.
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let found = report(&[binary, debug]);
    assert!(!found.is_complete() && found.mismatches.is_empty(), "{found:#?}");
}

#[test]
fn a_debug_file_of_another_build_in_the_place_of_a_build_id_is_a_mismatch_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let binary = compile(&cc, dir.path(), "app.so", SOURCE, &["-Wl,--build-id"]);
    let other = compile(&cc, dir.path(), "other.so", "int other(void) { return 1; }", &["-g", "-Wl,--build-id"]);
    let id = module(&report(std::slice::from_ref(&binary)), "app.so").debug_id.to_string();
    let place = dir.path().join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    let debug = place.join(format!("{}.debug", &id[2..]));
    run(&objcopy, &["--only-keep-debug", text(&other), text(&debug)]);
    let found = report(&[binary, debug]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.named_by, &mismatch.expected), (NamedBy::FileName, &id));
    assert_ne!(mismatch.found, id);
}

#[test]
fn a_debuglink_with_another_crc_is_a_mismatch_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let Some((binary, debug)) = linked(dir.path(), "linked.so", SOURCE) else { return };
    let other = tempfile::tempdir().unwrap();
    let Some((_, stale)) = linked(other.path(), "linked.so", "int other(void) { return 1; }") else { return };
    std::fs::copy(stale, &debug).unwrap();
    let found = report(&[binary, debug]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::Debuglink);
    assert!(mismatch.expected.starts_with("CRC-32 0x") && mismatch.found.starts_with("CRC-32 0x"), "{mismatch:?}");
    assert_ne!(mismatch.expected, mismatch.found);
    assert_eq!((found.binaries_without_debug_files.len(), found.debug_files_without_binaries.len()), (1, 1));
}

/// A stripped program of MinGW, which has no build-id, and its debug file, tied as gdb's manual says.
fn linked_program(dir: &Path, source: &str, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let tools = ["gcc", "objcopy", "strip"].map(|name| tool(&format!("x86_64-w64-mingw32-{name}")));
    let [Some(cc), Some(objcopy), Some(strip)] = tools else { return None };
    let (file, binary, debug) = (dir.join("app.c"), dir.join("app.exe"), dir.join("app.debug"));
    std::fs::write(&file, source).unwrap();
    run(&cc, &[&["-g", "-O1", "-o", text(&binary), text(&file)], flags].concat());
    run(&objcopy, &["--only-keep-debug", text(&binary), text(&debug)]);
    run(&strip, &[text(&binary)]);
    run(&objcopy, &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&binary)]);
    Some((binary, debug))
}

const PROGRAM: &str = "#include <stdio.h>
__attribute__((noinline)) int twice(int x) { return x * 2 + puts(\"twice\"); }
int main(int count, char **words) { (void)words; return twice(count); }
";

#[test]
fn a_windows_program_without_a_build_id_is_paired_by_its_debuglink_and_crc() {
    let dir = tempfile::tempdir().unwrap();
    let Some((binary, debug)) = linked_program(dir.path(), PROGRAM, &["-Wl,--build-id=none"]) else { return };
    let found = report(&[binary.clone(), debug.clone()]);
    let one = module(&found, "app.exe");
    assert_eq!(one.id_kind, "text-hash");
    assert_eq!(paired(one), [("app.debug", PairedRole::DebugFile, Some(PairedBy::DebuglinkCrc))]);
    assert_eq!((one.debug_info, one.stripped), (DebugInfo::Full, true));
    assert!(one.functions["dwarf"] > 0 && one.unwind.rows > 0, "{one:#?}");
    assert!(found.is_complete(), "{found:#?}");
    // Each half alone is told what it lacks.
    let found = report(std::slice::from_ref(&binary));
    let [lacking] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    let crc32 = crc32fast::hash(&std::fs::read(&debug).unwrap());
    assert_eq!(lacking.advice, format!("add its debug file app.debug of CRC-32 {crc32:#010x}"));
    // One byte is another file.
    let mut other = std::fs::read(&debug).unwrap();
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(&debug, &other).unwrap();
    let found = report(&[binary, debug]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::Debuglink);
    assert_eq!(mismatch.expected, format!("CRC-32 {crc32:#010x}"));
    assert_eq!(mismatch.found, format!("CRC-32 {:#010x}", crc32fast::hash(&other)));
    assert!(paired(module(&found, "app.exe")).is_empty(), "{found:#?}");
}

#[test]
fn what_a_windows_program_without_its_debug_file_is_told_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (none, id) = (&["-Wl,--build-id=none"], &["-Wl,--build-id"]);
    let Some((binary, debug)) = linked_program(dir.path(), PROGRAM, id) else { return };
    // GNU ld names no program database beside its build-id.
    let found = report(std::slice::from_ref(&binary));
    let [lacking] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    let id = &module(&found, "app.exe").debug_id;
    assert_eq!(lacking.advice, format!("add its debug file app.debug of id {id}"));
    let found = report(std::slice::from_ref(&debug));
    let [orphan] = found.debug_files_without_binaries.as_slice() else { panic!("{found:#?}") };
    assert!(orphan.advice.contains(&id.to_string()) && !orphan.advice.contains("program database"), "{orphan:?}");
    assert_eq!(paired(module(&report(&[binary.clone(), debug]), "app.exe"))[0].2, Some(PairedBy::GuidAge));
    // Without an id and without a link, the link is what ties a debug file to it afterwards.
    let Some((binary, debug)) = linked_program(dir.path(), PROGRAM, none) else { return };
    let objcopy = tool("x86_64-w64-mingw32-objcopy").unwrap();
    run(&objcopy, &["--remove-section=.gnu_debuglink", text(&binary)]);
    let found = report(&[binary.clone(), debug.clone()]);
    let [lacking] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    assert!(lacking.advice.contains("objcopy --add-gnu-debuglink"), "{lacking:?}");
    run(&objcopy, &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&binary)]);
    assert!(report(&[binary, debug]).is_complete());
}

/// The same code on another day: what it prints and what it is called differ.
const TWINS: [&str; 2] = ["alpha", "omega"];

fn twin(cc: &Path, dir: &Path, name: &str) -> PathBuf {
    let source = format!("static const char said[] = \"{name}\";\nconst char *{name}(void) {{ return said; }}\n");
    compile(cc, dir, &format!("{name}.so"), &source, &["-g", "-fvisibility=hidden", "-Wl,--build-id=none"])
}

#[test]
fn a_program_of_the_same_code_and_other_data_names_nothing_of_one_without_an_id() {
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [alpha, omega] = TWINS.map(|name| twin(&cc, dir.path(), name));
    let (shipped, debug) = (dir.path().join("shipped.so"), dir.path().join("alpha.debug"));
    run(&objcopy, &["--only-keep-debug", text(&alpha), text(&debug)]);
    run(&objcopy, &["--strip-all", &format!("--add-gnu-debuglink={}", text(&debug)), text(&alpha), text(&shipped)]);
    // Beside the other program it is the debuglink that pairs, and a strict build says that one of the two is missing.
    let found = report(&[shipped.clone(), debug, omega.clone()]);
    let one = module(&found, "shipped.so");
    assert_eq!(paired(one), [("alpha.debug", PairedRole::DebugFile, Some(PairedBy::DebuglinkCrc))]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.binary.place.as_str(), mismatch.debug_file.place.as_str()), (text(&shipped), text(&omega)));
    assert!(found.superseded.is_empty() && !found.is_complete(), "{found:#?}");
    // Two of them without more: one is taken, and nobody says that it is the other.
    let found = report(&[alpha.clone(), omega]);
    assert_eq!((found.modules.len(), found.mismatches.len(), found.superseded.len()), (1, 1, 0), "{found:#?}");
    // The unstripped program itself is what was shipped.
    let found = report(&[shipped, alpha]);
    let one = module(&found, "shipped.so");
    assert_eq!(paired(one), [("alpha.so", PairedRole::DebugFile, Some(PairedBy::TextHash))]);
    assert!(found.is_complete(), "{found:#?}");
}

#[test]
fn windows_programs_of_the_same_code_and_other_data_are_not_one() {
    let (Some(cc), Some(strip)) = (tool("x86_64-w64-mingw32-gcc"), tool("x86_64-w64-mingw32-strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str| {
        let source = dir.path().join(format!("{name}.c"));
        std::fs::write(&source, format!("#include <stdio.h>\nint main(void) {{ return puts(\"{name}\"); }}\n"))
            .unwrap();
        let (full, shipped) = (dir.path().join(format!("{name}.exe")), dir.path().join(format!("{name}-shipped.exe")));
        run(&cc, &["-g", "-o", text(&full), text(&source)]);
        run(&strip, &["-o", text(&shipped), text(&full)]);
        (full, shipped)
    };
    let [alpha, omega] = TWINS.map(program);
    let found = report(&[alpha.0.clone(), alpha.1.clone()]);
    assert_eq!(
        paired(module(&found, "alpha-shipped.exe")),
        [("alpha.exe", PairedRole::DebugFile, Some(PairedBy::TextHash))]
    );
    assert!(found.mismatches.is_empty(), "{found:#?}");
    let found = report(&[alpha.1, omega.0]);
    assert_eq!((found.modules.len(), found.mismatches.len()), (1, 1), "{found:#?}");
    assert!(found.modules[0].paired.is_empty(), "{found:#?}");
}
