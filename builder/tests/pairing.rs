//! Which files belong together, and what is reported of those that do not.

use std::path::{Path, PathBuf};

use crate::inputs::{Release, SOURCE, builder, compile, fixtures, report, run, tool};
use symseal_builder::{BuildError, BuildReport, ModuleReport, NamedBy, PairedBy, PairedRole};
use symseal_bundle::{DebugInfo, LayoutDir};

#[track_caller]
fn module<'r>(report: &'r BuildReport, name: &str) -> &'r ModuleReport {
    let mut found = report.modules.iter().filter(|module| module.name == name);
    let module = found.next().unwrap_or_else(|| panic!("no module {name}: {report:#?}"));
    assert!(found.next().is_none(), "two modules {name}");
    module
}

#[track_caller]
fn paired(module: &ModuleReport) -> Vec<(&str, PairedRole, Option<PairedBy>)> {
    let name = |place: &str| place.rsplit('/').next().unwrap().len();
    module
        .paired
        .iter()
        .map(|file| (&file.place[file.place.len() - name(&file.place)..], file.role, file.paired_by))
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

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

#[test]
fn a_debug_file_of_another_build_is_a_mismatch_with_both_ids_and_fails_a_strict_build() {
    let (Some(cc), Some(objcopy), Some(release)) = (tool("cc"), tool("objcopy"), Release::make()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let other = compile(&cc, dir.path(), "split.so", SOURCE, &["-g", "-Wl,--build-id=0xbb99999999"]);
    let debug = dir.path().join("split.debug");
    run(&objcopy, &["--only-keep-debug", text(&other), text(&debug)]);
    let paths = [release.path("split.so"), debug];
    let found = report(&paths);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.expected.as_str(), mismatch.found.as_str()), ("bb01020304", "bb99999999"));
    assert_eq!(mismatch.named_by, NamedBy::FileName);

    let layout = dir.path().join("layout");
    match builder(&paths).strict(true).build_into(&layout) {
        Err(BuildError::Strict { unpaired: 2, mismatches: 1, damaged: 0, not_looked_into: 0, sources: 0, report }) => {
            assert_eq!(report.mismatches, found.mismatches)
        }
        other => panic!("{other:?}"),
    }
    assert!(!layout.exists(), "a strict build that fails leaves nothing");
    // Without --strict the bundle has both, as modules of their own.
    assert_eq!(builder(&paths).build_into(&layout).unwrap().index.linux.len(), 2);
    // The right debug file takes the suspicion away.
    let found = report(&[paths[0].clone(), paths[1].clone(), release.path("split.debug")]);
    assert!(found.mismatches.is_empty(), "{found:#?}");
}

#[test]
fn a_stripped_and_an_unstripped_binary_of_the_same_code_are_a_pair() {
    let (Some(cc), Some(strip)) = (tool("cc"), tool("strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let full = compile(&cc, dir.path(), "lib.so", SOURCE, &["-g", "-Wl,--build-id=0xaa77"]);
    let shipped = dir.path().join("shipped.so");
    run(&strip, &["-o", text(&shipped), text(&full)]);
    let found = report(&[full, shipped]);
    let module = module(&found, "shipped.so");
    assert!(module.stripped && module.debug_info == DebugInfo::Full, "{module:?}");
    assert_eq!(paired(module), [("lib.so", PairedRole::DebugFile, Some(PairedBy::BuildId))]);
    assert!(found.is_complete());
}

#[test]
fn a_library_and_a_kernel_module_without_code_are_binaries() {
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let source = "const int table[100] = { 1, 2, 3 };\n";
    let library = compile(&cc, dir.path(), "table.so", source, &["-g", "-Wl,--build-id=0xcc01"]);
    // As the kernel's build makes one: a relocatable file with an id, and an empty `.text`.
    std::fs::write(at("module.c"), source).unwrap();
    run(&cc, &["-g", "-c", "-o", text(&at("module.o")), text(&at("module.c"))]);
    run(&cc, &["-r", "-nostdlib", "-Wl,--build-id=0xcc02", "-o", text(&at("module.ko")), text(&at("module.o"))]);
    for (full, name) in [(library, "table.so"), (at("module.ko"), "module.ko")] {
        let (shipped, debug) = (at(&format!("shipped-{name}")), at(&format!("{name}.debug")));
        run(&objcopy, &["--only-keep-debug", text(&full), text(&debug)]);
        run(&objcopy, &["--strip-debug", text(&full), text(&shipped)]);
        for (files, debug_name) in [([&shipped, &debug], debug.as_path()), ([&shipped, &full], full.as_path())] {
            let found = report(&files.map(PathBuf::clone));
            let one = module(&found, &format!("shipped-{name}"));
            assert_eq!(
                paired(one),
                [(debug_name.file_name().unwrap().to_str().unwrap(), PairedRole::DebugFile, Some(PairedBy::BuildId))]
            );
            assert!(found.is_complete() && found.superseded.is_empty(), "{found:#?}");
        }
        let found = report(&[shipped]);
        assert_eq!((found.binaries_without_debug_files.len(), found.debug_files_without_binaries.len()), (1, 0));
        let found = report(&[debug]);
        assert_eq!((found.binaries_without_debug_files.len(), found.debug_files_without_binaries.len()), (0, 1));
        let layout = at(&format!("layout-{name}"));
        builder(&[full]).strict(true).build_into(&layout).unwrap();
    }
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

#[test]
fn a_debug_file_that_tells_more_is_taken_and_the_other_named() {
    let (Some(release), Some(objcopy)) = (Release::make(), tool("objcopy")) else { return };
    let lesser = release.path("lesser.debug");
    run(&objcopy, &["--strip-debug", text(&release.path("split.debug")), text(&lesser)]);
    let found = report(&[release.path("split.so"), release.path("split.debug"), lesser]);
    assert_eq!(paired(module(&found, "split.so"))[0].0, "split.debug");
    let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
    assert!(superseded.place.ends_with("lesser.debug") && superseded.by.ends_with("split.debug"));
}

#[test]
fn split_dwarf_is_paired_by_unit_and_a_stale_file_is_a_mismatch() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    let object = |source: &str| {
        std::fs::write(at("a.c"), source).unwrap();
        run(&cc, &["-c", "-g", "-gsplit-dwarf", "-fPIC", "-O1", "-o", text(&at("a.o")), text(&at("a.c"))]);
    };
    object(SOURCE);
    run(&cc, &["-shared", "-nostdlib", "-Wl,--build-id=0xdd02", "-o", text(&at("a.so")), text(&at("a.o"))]);
    let found = report(&[at("a.so"), at("a.dwo")]);
    let one = module(&found, "a.so");
    assert_eq!(paired(one), [("a.dwo", PairedRole::SplitDwarf, Some(PairedBy::DwoId))]);
    assert_eq!(one.debug_info, DebugInfo::Full);
    assert!(found.is_complete(), "{found:#?}");

    let found = report(&[at("a.so")]);
    assert_eq!(module(&found, "a.so").missing, ["split DWARF of 1 of 1 units"]);
    assert_eq!(found.binaries_without_debug_files.len(), 1);

    object(&format!("{SOURCE}\nint added(void) {{ return 3; }}"));
    let found = report(&[at("a.so"), at("a.dwo")]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::DwoName);
    assert!(mismatch.expected.starts_with("unit ") && mismatch.expected != mismatch.found, "{mismatch:?}");
}

#[test]
fn modules_share_a_supplementary_file_which_has_an_entry_of_its_own() {
    let Some(fixtures) = fixtures() else { return };
    let file = |name: &str| fixtures.join("elf-var").join(name);
    let paths = [file("a1.debug"), file("a2.debug"), file("alt.dwz")];
    let layout = tempfile::tempdir().unwrap();
    let built = builder(&paths).build(&LayoutDir::create(layout.path()).unwrap()).unwrap();
    let supplementary = "6a5db41648697bfc93b427b5072fcd3b03177949";
    assert!(built.index.linux.contains_key(supplementary));
    let naming = built.index.linux.values().filter(|module| module.supplementary.is_some());
    assert!(naming.clone().all(|module| module.supplementary.as_ref().unwrap().to_string() == supplementary));
    assert_eq!(naming.count(), 2);
    assert_eq!(built.report.debug_files_without_binaries.len(), 2, "the supplementary file is no orphan");
    let found = report(&paths[..1]);
    assert!(module(&found, "a1.debug").missing[0].contains(supplementary));
}

#[test]
fn a_supplementary_file_of_dwarf_5_is_found_by_its_checksum() {
    let (Some(cxx), Some(dwz)) = (tool("g++"), tool("dwz")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["one", "two"] {
        let source = format!(
            "#include <vector>\nint main(int n, char **) {{ std::vector<int> {name}(n); return {name}.size(); }}\n"
        );
        std::fs::write(at("a.cc"), source).unwrap();
        run(&cxx, &["-g", "-O1", "-gdwarf-5", "-Wl,--build-id", "-o", text(&at(name)), text(&at("a.cc"))]);
    }
    std::fs::remove_file(at("a.cc")).unwrap();
    let common = text(&at("common.debug")).to_owned();
    run(&dwz, &["--dwarf-5", "-m", &common, "-M", &common, text(&at("one")), text(&at("two"))]);
    let found = report(&[dir.path().to_owned()]);
    assert!(found.is_complete() && found.inputs.skipped.is_empty(), "{found:#?}");
    for name in ["one", "two"] {
        let paired = paired(module(&found, name));
        assert_eq!(paired, [("common.debug", PairedRole::Supplementary, Some(PairedBy::AltlinkBuildId))]);
    }
    let layout = tempfile::tempdir().unwrap();
    builder(&[dir.path().to_owned()]).strict(true).build(&LayoutDir::create(layout.path()).unwrap()).unwrap();
    let found = report(&[at("one")]);
    assert!(!found.is_complete() && module(&found, "one").missing[0].contains("common.debug"), "{found:#?}");
}

/// The section of a debug file that names the supplementary one.
fn link_to_supplementary(path: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let object = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
    object.section(".gnu_debugaltlink").map(|(_, bytes)| bytes.to_vec())
}

#[test]
fn what_dwz_moved_into_another_file_still_counts() {
    let (Some(cxx), Some(objcopy), Some(strip), Some(dwz)) = (tool("g++"), tool("objcopy"), tool("strip"), tool("dwz"))
    else {
        return;
    };
    // Types, and with -g1 lines alone: dwz has less to move, and nothing may become of nothing.
    for (flag, expected) in [("-g", DebugInfo::Full), ("-g1", DebugInfo::LineTables)] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for (name, text) in [("one", "x"), ("two", "other")] {
            let source = format!(
                "#include <vector>\n#include <string>\n\
                 int f(int n) {{ std::vector<int> v(n); std::string s(\"{text}\"); return v.size() + s.size(); }}\n\
                 int main(int n, char **) {{ return f(n); }}\n"
            );
            std::fs::write(at("a.cc"), source).unwrap();
            run(&cxx, &[flag, "-O1", "-Wl,--build-id", "-o", &at(name), &at("a.cc")]);
            run(&objcopy, &["--only-keep-debug", &at(name), &at(&format!("{name}.debug"))]);
            run(&strip, &[&at(name)]);
        }
        let debug = [at("one.debug"), at("two.debug")];
        let packed = std::process::Command::new(&dwz).args(["-m", &at("common.debug")]).args(&debug).status().unwrap();
        if !packed.success() || !dir.path().join("common.debug").exists() {
            assert_eq!(flag, "-g1", "dwz finds what to move");
            println!("{flag}: dwz has nothing to move");
            continue;
        }
        let found = report(&[dir.path().to_owned()]);
        for name in ["one", "two"] {
            let module = module(&found, name);
            assert_eq!(module.debug_info, expected, "{name} {flag}");
            assert_eq!(module.paired.len(), 2, "{name} {flag}");
        }
        // A stripped binary names the supplementary file if it was stripped after dwz: alone, it lacks both.
        let Some(altlink) = link_to_supplementary(&at("one.debug")) else { continue };
        std::fs::write(at("link"), altlink).unwrap();
        run(&objcopy, &["--add-section", &format!(".gnu_debugaltlink={}", at("link")), &at("one")]);
        let found = report(&[dir.path().join("one")]);
        let [lacking] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
        let id = lacking.debug_id.as_ref().unwrap().to_string();
        assert!(lacking.advice.contains(&format!("its debug file of id {id}")), "{}", lacking.advice);
        assert!(lacking.advice.contains("supplementary file"), "{}", lacking.advice);
    }
}

#[test]
fn a_universal_binary_and_its_dsym_are_a_module_a_slice() {
    let Some(fixtures) = fixtures() else { return };
    let layout = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(layout.path()).unwrap();
    let built = builder(&[fixtures.join("mac-fat")]).build(&layout).unwrap();
    assert_eq!(built.index.macos.len(), 2);
    let modules: Vec<_> = built.index.macos.values().collect();
    assert_eq!(modules[0].files[0].sha256, modules[1].files[0].sha256, "the whole file is stored once");
    assert_ne!(modules[0].files[0].path, modules[1].files[0].path, "under a title for each id");
    for module in &built.report.modules {
        assert_eq!(module.paired[0].paired_by, Some(PairedBy::Uuid));
        assert!(module.functions["dwarf"] > 0);
    }
}

#[test]
fn a_dsym_brings_its_other_files_and_a_foreign_one_is_a_mismatch() {
    let Some(fixtures) = fixtures() else { return };
    let example = fixtures.join("samply/fixtures/other/simple-example/out");
    let found = report(&[example.join("mac-dsym")]);
    let files: Vec<_> = paired(module(&found, "main")).into_iter().map(|(name, role, _)| (name, role)).collect();
    let member = PairedRole::DsymMember;
    assert_eq!(files, [("main", PairedRole::DebugFile), ("Info.plist", member), ("main.yml", member)]);
    assert!(found.is_complete());

    let found = report(&[example.join("mac-oso/main"), example.join("mac-dsym/main.dSYM")]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::DsymName);
    assert_eq!(mismatch.expected, "uuid:FF78692C66BD35DB9476D5060EA5BD83");
    assert_eq!(mismatch.found, "uuid:CF441AF5BB7E35678D44451D69214D92");
    let [binary] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    assert!(binary.advice.contains("dsymutil"), "{binary:?}");
}

/// A library for macOS and its dSYM, in a folder of the processor's name.
fn made_for(dir: &Path, arch: &str) -> Option<(PathBuf, PathBuf)> {
    let (clang, linker, dsymutil) = (tool("clang")?, tool("ld64.lld-19")?, tool("dsymutil")?);
    let folder = dir.join(arch);
    std::fs::create_dir(&folder).unwrap();
    let [source, object, library] = ["app.c", "app.o", "app.dylib"].map(|name| folder.join(name));
    std::fs::write(&source, "int square(int n) { return n * n; }\n").unwrap();
    let target = format!("--target={arch}-apple-macos11");
    run(&clang, &[&target, "-g", "-O1", "-c", text(&source), "-o", text(&object)]);
    let version = ["-platform_version", "macos", "11.0", "11.0"];
    let files = ["-dylib", text(&object), "-o", text(&library)];
    run(&linker, &[&["-arch", arch][..], &version, &files].concat());
    run(&dsymutil, &[text(&library)]);
    Some((library, folder.join("app.dylib.dSYM")))
}

#[test]
fn a_dsym_for_another_processor_is_a_mismatch_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let Some((intel, its_dsym)) = made_for(dir.path(), "x86_64") else { return };
    let Some((arm, other_dsym)) = made_for(dir.path(), "arm64") else { return };
    let found = report(&[intel.clone(), other_dsym.clone()]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::DsymName);
    let id = |side: &symseal_builder::Side| side.debug_id.as_ref().unwrap().to_string();
    assert_eq!(mismatch.expected, format!("{} for x86_64", id(&mismatch.binary)));
    assert_eq!(mismatch.found, format!("{} for aarch64", id(&mismatch.debug_file)));
    assert_ne!(id(&mismatch.binary), id(&mismatch.debug_file));
    assert_eq!((found.binaries_without_debug_files.len(), found.debug_files_without_binaries.len()), (1, 1));
    // Where the right one is there, or the other one's binary, nothing is wrong with it.
    assert!(report(&[intel.clone(), its_dsym, arm.clone(), other_dsym.clone()]).is_complete());
    assert!(report(&[intel, arm, other_dsym]).mismatches.is_empty());
}

#[test]
fn a_build_id_of_any_length_pairs_and_a_longer_one_than_an_id_is_marked() {
    let (Some(cc), Some(objcopy), Some(strip)) = (tool("cc"), tool("objcopy"), tool("strip")) else { return };
    let Some(unstrip) = tool("eu-unstrip") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (length, kind) in [(64, "gnu-build-id"), (65, "long-build-id"), (300, "long-build-id")] {
        let hex = |last: u8| format!("{}{last:02x}", "a7".repeat(length - 1));
        let make = |name: &str, last: u8| {
            let flag = format!("-Wl,--build-id=0x{}", hex(last));
            let binary = compile(&cc, dir.path(), name, SOURCE, &["-g", &flag]);
            let debug = dir.path().join(format!("{name}.debug"));
            run(&objcopy, &["--only-keep-debug", text(&binary), text(&debug)]);
            run(&strip, &["--strip-all", text(&binary)]);
            (binary, debug)
        };
        let (binary, debug) = make("long.so", 1);
        let found = report(&[binary.clone(), debug.clone()]);
        let one = module(&found, "long.so");
        assert_eq!(one.id_kind, kind);
        assert_eq!(paired(one), [("long.so.debug", PairedRole::DebugFile, Some(PairedBy::BuildId))]);
        assert!(found.is_complete(), "{found:#?}");
        if length % 4 == 0 {
            let told = crate::inputs::output(&unstrip, &["-n", "-e", text(&binary)]);
            assert!(told.contains(&hex(1)), "{told}");
            let id = one.debug_id.to_string();
            let is_id = if kind == "gnu-build-id" { id == hex(1) } else { id == hash_of(&hex(1)) };
            assert!(is_id, "{id}");
        }
        // Every byte counts.
        std::fs::remove_file(&debug).unwrap();
        let (_, debug) = make("other.so", 2);
        let found = report(&[binary, debug]);
        assert!(paired(module(&found, "long.so")).is_empty(), "{found:#?}");
    }
}

/// The first 20 bytes of the SHA-256 of these bytes.
fn hash_of(hex: &str) -> String {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    symseal_bundle::Digest::of(&bytes).hex()[..40].to_owned()
}

#[test]
fn a_pdb_of_another_build_is_a_mismatch_with_both_ids() {
    let Some(fixtures) = fixtures() else { return };
    let msvc = fixtures.join("npm-pypi-msvc");
    let dir = tempfile::tempdir().unwrap();
    let pdb = dir.path().join("attach_amd64.pdb");
    std::fs::copy(msvc.join("attach_x86.pdb"), &pdb).unwrap();
    let found = report(&[msvc.join("attach_amd64.dll"), pdb]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.named_by, NamedBy::CodeView);
    assert_eq!(mismatch.expected, "446150EEE021480999C4BCE7828E1528-1");
    assert_eq!(mismatch.found, "7C2DC359EBFE45DD858242E8FE7A4722-1");
}

#[test]
fn both_ages_of_a_pdb_are_kept_and_the_dbi_age_pairs() {
    let Some(fixtures) = fixtures() else { return };
    let found = report(&[fixtures.join("samply/fixtures/win64-ci")]);
    let module = found.modules.iter().find(|module| module.name == "softokn3.dll").unwrap();
    let pdb = module.pdb.as_ref().unwrap();
    assert_eq!((pdb.age, pdb.stream_age), (1, Some(2)));
    assert_eq!(module.paired[0].paired_by, Some(PairedBy::GuidAge));
}

#[test]
fn a_debug_file_of_another_build_with_the_same_id_is_a_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let id = "-Wl,--build-id=0xaa05060708";
    let split = |name: &str, source: &str| {
        let whole = compile(&cc, dir.path(), &format!("{name}-whole.so"), source, &["-g", id]);
        let (stripped, debug) = (dir.path().join(format!("{name}.so")), dir.path().join(format!("{name}.debug")));
        run(&objcopy, &["--strip-all", text(&whole), text(&stripped)]);
        run(&objcopy, &["--only-keep-debug", text(&whole), text(&debug)]);
        (stripped, debug)
    };
    let (ours, debug) = split("ours", SOURCE);
    let (_, stale) = split("stale", "int twice(int x) { return 2 * x; }\nint thrice(int x) { return twice(x) + x; }");
    let found = report(&[ours.clone(), stale.clone()]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.named_by.code(), mismatch.debug_file.place.as_str()), ("debug-id", text(&stale)));
    assert!(mismatch.expected.starts_with("section ") && mismatch.found != mismatch.expected, "{mismatch:?}");
    assert_eq!((module(&found, "ours.so").debug_file.as_deref(), found.is_complete()), (None, false));
    // Beside the right one it is one all the same, and the right one is taken.
    let found = report(&[ours, debug.clone(), stale]);
    assert_eq!((found.mismatches.len(), module(&found, "ours.so").debug_file.as_deref()), (1, Some(text(&debug))));
}

#[test]
fn what_something_was_added_to_is_taken_and_no_contradiction() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let at = |name: &str| dir.path().join(name);
    run(&objcopy, &["--strip-all", text(&whole), text(&at("plain.so"))]);
    run(&objcopy, &["--only-keep-debug", text(&whole), text(&at("one.debug"))]);
    let link = format!("--add-gnu-debuglink={}", text(&at("one.debug")));
    run(&objcopy, &[&link, text(&at("plain.so")), text(&at("linked.so"))]);
    std::fs::write(at("note"), "a note").unwrap();
    let note = format!("--add-section=.note.added={}", text(&at("note")));
    run(&objcopy, &[&note, text(&at("one.debug")), text(&at("noted.debug"))]);
    for paths in
        [["plain.so", "linked.so", "one.debug", "noted.debug"], ["noted.debug", "one.debug", "linked.so", "plain.so"]]
    {
        let found = report(&paths.map(at));
        let module = module(&found, "linked.so");
        assert_eq!(module.debug_file.as_deref(), Some(text(&at("noted.debug"))), "{found:#?}");
        assert_eq!((found.superseded.len(), found.is_complete()), (2, true), "{found:#?}");
    }
}

#[test]
fn damaged_debug_information_is_not_called_full_and_a_damaged_file_is_no_strict_build() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let at = |name: &str| dir.path().join(name);
    for name in ["info", "line"] {
        let section = format!("--dump-section=.debug_{name}={}", text(&at(name)));
        run(&objcopy, &[&section, text(&whole), "/dev/null"]);
        let bytes = std::fs::read(at(name)).unwrap();
        // The header of the first unit stays.
        let damaged: Vec<u8> = bytes.iter().enumerate().map(|(at, byte)| if at < 12 { *byte } else { 0xff }).collect();
        std::fs::write(at(name), damaged).unwrap();
    }
    let update = ["info", "line"].map(|name| format!("--update-section=.debug_{name}={}", text(&at(name))));
    run(&objcopy, &[&update[0], &update[1], text(&whole), text(&at("damaged.so"))]);
    let found = report(&[at("damaged.so")]);
    assert_eq!(module(&found, "damaged.so").debug_info, DebugInfo::Symbols, "{found:#?}");
    // A file that begins like a program and is none stands beside a good one.
    std::fs::create_dir(at("release")).unwrap();
    std::fs::copy(&whole, at("release/whole.so")).unwrap();
    assert!(report(&[at("release")]).is_complete());
    let mut cut = vec![0; 0x80];
    cut[..2].copy_from_slice(b"MZ");
    cut[0x3c] = 0x40;
    cut[0x40..0x44].copy_from_slice(b"PE\0\0");
    std::fs::write(at("release/cut.dll"), cut).unwrap();
    let found = report(&[at("release")]);
    assert_eq!((found.inputs.damaged(), found.is_complete()), (1, false), "{found:#?}");
}

#[test]
fn a_binary_without_section_headers_and_its_unstripped_twin_are_one_module() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("llvm-objcopy")) else { return };
    let id = "-Wl,--build-id=0xaa01020304";
    let full = compile(&cc, dir.path(), "full.so", SOURCE, &["-g", id]);
    let bare = dir.path().join("bare.so");
    run(&objcopy, &["--strip-sections", text(&full), text(&bare)]);
    let found = report(&[full.clone(), bare.clone()]);
    let module = module(&found, "bare.so");
    assert_eq!((module.binary.as_deref(), module.debug_file.as_deref()), (Some(text(&bare)), Some(text(&full))));
    assert_eq!((module.debug_info, found.is_complete()), (DebugInfo::Full, true), "{found:?}");

    // Two without headers: the same code under two names is one file, other code is a contradiction.
    let other = compile(&cc, dir.path(), "other.so", "int other(void) { return 1; }", &["-g", id]);
    let other_bare = dir.path().join("other-bare.so");
    run(&objcopy, &["--strip-sections", text(&other), text(&other_bare)]);
    for paths in [[&full, &other_bare], [&other, &bare], [&bare, &other_bare]] {
        let error = builder(&paths.map(|path| path.to_owned())).report().unwrap_err();
        assert!(matches!(error, BuildError::Conflict { .. }), "{error}");
    }
}

#[test]
fn what_is_missing_beside_a_debug_file_is_said_in_the_words_of_its_platform() {
    let Some(fixtures) = fixtures() else { return };
    let example = fixtures.join("samply/fixtures/other/simple-example/out");
    let found = report(&[example.join("mac-dsym/main.dSYM")]);
    let [orphan] = found.debug_files_without_binaries.as_slice() else { panic!("{found:#?}") };
    assert!(orphan.advice.contains("of UUID") && !orphan.advice.contains("unwind"), "{orphan:?}");
}
