//! Of one id: the programs, their debug files, and which of several is taken.

use std::path::PathBuf;

use super::{module, paired, text};
use crate::inputs::{Release, SOURCE, builder, compile, report, run, tool};
use symseal_builder::{BuildError, NamedBy, PairedBy, PairedRole};
use symseal_bundle::DebugInfo;

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
