//! Program databases of Windows, dSYM bundles of macOS.

use std::path::{Path, PathBuf};

use super::{module, paired, text};
use crate::inputs::{builder, fixtures, report, run, tool};
use symseal_builder::{NamedBy, PairedBy, PairedRole};
use symseal_bundle::LayoutDir;

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

/// A universal file of thin ones: a table of 20 bytes a slice, most significant byte first, and each slice on a page of its own.
/// (mach-o/fat.h)
fn universal(thin: &[&Path], to: &Path) {
    const PAGE: usize = 1 << 14;
    let mut bytes = [0xcafe_babe_u32, thin.len() as u32].map(u32::to_be_bytes).concat();
    let slices: Vec<Vec<u8>> = thin.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut at = PAGE;
    for slice in &slices {
        let field = |at: usize| u32::from_le_bytes(slice[at..at + 4].try_into().unwrap());
        let entry = [field(4), field(8), at as u32, slice.len() as u32, 14];
        bytes.extend(entry.map(u32::to_be_bytes).concat());
        at += slice.len().next_multiple_of(PAGE);
    }
    for slice in &slices {
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        bytes.extend(slice);
    }
    std::fs::write(to, bytes).unwrap();
}

#[test]
fn reports_tell_the_slices_of_a_universal_file_apart_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let Some((intel, intel_dsym)) = made_for(dir.path(), "x86_64") else { return };
    let Some((arm, arm_dsym)) = made_for(dir.path(), "arm64") else { return };
    let fat = dir.path().join("app.dylib");
    universal(&[&intel, &arm], &fat);
    let id_of = |path: &Path| report(&[path.to_owned()]).modules[0].debug_id.clone();
    let (intel_id, arm_id) = (id_of(&intel), id_of(&arm));

    let found = report(&[fat.clone(), intel_dsym.clone()]);
    assert_eq!(found.modules.len(), 2, "{found:#?}");
    let [unpaired] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    assert_eq!((unpaired.place.as_str(), unpaired.debug_id.as_ref()), (text(&fat), Some(&arm_id)));
    assert!(unpaired.advice.contains("dsymutil"), "{unpaired:?}");

    let found = report(&[fat.clone(), intel.clone(), intel_dsym, arm_dsym]);
    assert!(found.is_complete(), "{found:#?}");
    let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
    assert_eq!((superseded.place.as_str(), superseded.by.as_str()), (text(&fat), text(&intel)));
    assert_eq!(superseded.debug_id.as_ref(), Some(&intel_id), "{superseded:?}");
}

#[test]
fn a_dsym_that_was_made_without_the_object_files_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let Some((library, dsym)) = made_for(dir.path(), "arm64") else { return };
    assert!(report(&[library.clone(), dsym.clone()]).is_complete());
    std::fs::remove_dir_all(&dsym).unwrap();
    std::fs::remove_file(library.with_extension("o")).unwrap();
    let Some(dsymutil) = tool("dsymutil") else { return };
    run(&dsymutil, &[text(&library)]);
    let found = report(&[library, dsym]);
    let [unpaired] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    assert!(unpaired.advice.contains("its dSYM holds no debug information, which is in 1 object file"), "{unpaired:?}");
    assert!(unpaired.advice.contains("run dsymutil again while they are there"), "{unpaired:?}");
}

#[test]
fn a_static_library_for_several_processors_is_no_module() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Some((library, _)) = made_for(dir.path(), "arm64") else { return };
    // What stands in an archive's first twelve bytes is read as a processor, as its table has it.
    std::fs::write(at("one.a"), b"!<arch>\n0123456789abcdef").unwrap();
    std::fs::write(at("two.a"), b"!<arch>\nfedcba9876543210").unwrap();
    std::fs::write(at("bitcode"), b"\xde\xc0\x17\x0b0123456789abcdef").unwrap();
    let inputs = at("inputs");
    std::fs::create_dir(&inputs).unwrap();
    universal(&[&at("one.a"), &at("two.a")], &inputs.join("library"));
    universal(&[&at("bitcode"), &at("bitcode")], &inputs.join("object"));
    let found = report(&[library, inputs]).inputs;
    assert_eq!(found.skipped["static library of several processors, whose members are no modules"], 1);
    assert_eq!(found.skipped["no release file"], 1);
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

/// The linker of LLVM makes no arm64e: its header is made to say so, as `artifact`'s test of identities does.
#[test]
fn a_library_of_arm64e_has_the_unwind_rules_of_its_signed_frames() {
    const CPU_SUBTYPE: std::ops::Range<usize> = 8..12;
    const ARM64E: u32 = 0x8000_0002;
    let (Some(clang), Some(linker)) = (tool("clang"), tool("ld64.lld-19")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [source, object, library] = ["a.c", "a.o", "a.dylib"].map(|name| dir.path().join(name));
    std::fs::write(&source, "int g(int);\nint f(int n) { return g(n) * 2; }\nint h(int n) { return f(n) + g(n); }\n")
        .unwrap();
    let options = ["--target=arm64-apple-macos12", "-mbranch-protection=pac-ret", "-O1", "-c"];
    run(&clang, &[&options[..], &[text(&source), "-o", text(&object)]].concat());
    let options =
        ["-dylib", "-arch", "arm64", "-platform_version", "macos", "12", "12", "-undefined", "dynamic_lookup"];
    run(&linker, &[&options[..], &[text(&object), "-o", text(&library)]].concat());
    let rules = |arch: &str| {
        let found = report(std::slice::from_ref(&library));
        let [one] = found.modules.as_slice() else { panic!("{found:#?}") };
        assert_eq!((one.arch, &one.unwind.none_because), (arch, &None));
        (one.unwind.rows, one.unwind.covered_bytes, one.unwind.unsupported)
    };
    let plain = rules("aarch64");
    assert!(plain.0 > 4 && plain.1 > 0, "{plain:?}");
    let mut bytes = std::fs::read(&library).unwrap();
    bytes[CPU_SUBTYPE].copy_from_slice(&ARM64E.to_le_bytes());
    std::fs::write(&library, bytes).unwrap();
    assert_eq!(rules("arm64e"), plain);
}
