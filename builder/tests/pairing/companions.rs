//! What debug information refers to: split DWARF, and what dwz moved out.

use super::{module, paired, text};
use crate::inputs::{SOURCE, build, builder, fixtures, report, run, tool};
use symseal_builder::{NamedBy, PairedBy, PairedRole};
use symseal_bundle::verify::verify_contents;
use symseal_bundle::{Bundle, DebugInfo, LayoutDir};

/// `-gsplit-dwarf=single` leaves it in the object that the linker reads, which is no module for that.
#[test]
fn split_dwarf_in_objects_of_the_linker_is_paired_by_unit() {
    let Some(clang) = tool("clang-19").or_else(|| tool("clang")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    std::fs::write(at("other.c"), "int other(int x) { return x; }\n").unwrap();
    for name in ["a", "other"] {
        let (source, object) = (at(&format!("{name}.c")), at(&format!("{name}.o")));
        // The linker gives the program its id.
        run(&clang, &["-c", "-g", "-gsplit-dwarf=single", "-fPIC", "-O1", "-o", text(&object), text(&source)]);
    }
    run(&clang, &["-shared", "-Wl,--build-id", "-o", text(&at("a.so")), text(&at("a.o"))]);
    let found = report(&[at("a.so"), at("a.o"), at("other.o")]);
    let [one] = found.modules.as_slice() else { panic!("{:?}", found.modules) };
    assert_eq!(paired(one), [("a.o", PairedRole::SplitDwarf, Some(PairedBy::DwoId))]);
    assert!(one.missing.is_empty() && one.functions["dwarf"] > 0, "{one:?}");
    let [loose] = found.debug_files_without_binaries.as_slice() else { panic!("{found:?}") };
    assert!(loose.place.ends_with("other.o"));
    // It is told where it is counted as skipped, too.
    let places: Vec<&str> =
        found.inputs.skipped.keys().flat_map(|reason| found.inputs.skipped_places.of(reason)).collect();
    assert_eq!(places, [text(&at("other.o"))]);
    // What a linker made of several for another linker has their units, and nobody's strings.
    if let Some(ld) = tool("ld") {
        let folder = at("folder");
        std::fs::create_dir(&folder).unwrap();
        for name in ["a.so", "a.o"] {
            std::fs::copy(at(name), folder.join(name)).unwrap();
        }
        run(&ld, &["-r", "-o", text(&folder.join("joined.o")), text(&at("a.o")), text(&at("other.o"))]);
        let found = report(&[folder]);
        assert_eq!(paired(module(&found, "a.so")), [("a.o", PairedRole::SplitDwarf, Some(PairedBy::DwoId))]);
        assert!(found.debug_files_without_binaries.is_empty() && found.modules.len() == 1, "{found:?}");
    }

    // Built, checked whole, and made again from what lies in it.
    let layout = LayoutDir::create(at("bundle")).unwrap();
    let built = build(&[at("a.so"), at("a.o")], &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let identify =
        |bytes: &[u8]| symseal_artifact::ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default();
    let contents = verify_contents(&bundle, &identify);
    assert!(contents.holds(), "{:#?}", contents.checks);
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
