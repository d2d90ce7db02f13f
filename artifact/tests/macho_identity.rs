//! What a Mach-O file is, beside what LLVM says of it.

use crate::support::slices::slices_of;
use crate::support::{any_of, fixtures, have, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use symseal_artifact::{Arch, DebugInfoKind, FileKind, Format, IdKind, ObjectKind, SNIFF_BYTES, sniff};

/// Mach-O files among the fixtures, with what the manifest says of them.
fn macho_fixtures() -> Vec<(PathBuf, Value)> {
    let Some(folder) = fixtures() else { return Vec::new() };
    let manifest = std::fs::read(folder.join("MANIFEST.json")).expect("the manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let all = manifest.as_array().expect("a list").iter().map(|entry| {
        let name = entry["file"].as_str().expect("a name");
        (folder.join(name), entry.clone())
    });
    all.filter(|(path, _)| {
        let bytes = std::fs::read(path).expect("an input");
        matches!(sniff(&bytes[..bytes.len().min(SNIFF_BYTES)]), FileKind::Macho | FileKind::MachoFat)
    })
    .collect()
}

/// `UUID: 4C4C… (arm64) path`, one line for each slice: UUID without dashes, and the slice's name.
fn dwarfdump_uuids(path: &Path) -> Vec<(String, String)> {
    let text = run("llvm-dwarfdump", &["--uuid", &path.display().to_string()], Path::new(".")).unwrap_or_default();
    let fields = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("UUID: ")?.split_whitespace();
        let uuid = words.next()?.replace('-', "");
        Some((uuid, words.next()?.trim_matches(['(', ')']).to_owned()))
    });
    fields.collect()
}

/// What Apple's tools call an architecture.
fn apple_name(arch: Arch) -> &'static str {
    match arch {
        Arch::Aarch64 => "arm64",
        Arch::X86 => "i386",
        other => other.code(),
    }
}

fn is_named(arch: Arch, theirs: &str) -> bool {
    // Versions of 32-bit ARM, and x86_64h, are no architectures of their own.
    theirs == apple_name(arch)
        || (arch == Arch::Arm && theirs.starts_with("armv"))
        || (arch == Arch::X86_64 && theirs == "x86_64h")
}

#[test]
fn every_slice_has_the_uuid_of_the_manifest_and_of_llvm_dwarfdump() {
    let has_dwarfdump = have("llvm-dwarfdump");
    let (mut files, mut ids) = (0, 0);
    for (path, entry) in macho_fixtures() {
        let bytes = std::fs::read(&path).expect("an input");
        let slices = slices_of(&bytes);
        let ours: Vec<(String, Arch)> = slices
            .iter()
            .filter(|slice| slice.id_kind() == IdKind::MachoUuid)
            .map(|slice| {
                let id = slice.debug_id().expect("an id").to_string();
                (id.strip_prefix("uuid:").expect("a UUID").to_owned(), slice.arch())
            })
            .collect();
        let of_manifest = entry["ids"]["uuids"].as_array().expect("a list").iter().map(|pair| {
            let text = |at: usize| pair[at].as_str().expect("a text").to_owned();
            (text(0).replace('-', ""), text(1))
        });
        let mut expected: Vec<Vec<(String, String)>> = vec![of_manifest.collect()];
        if has_dwarfdump {
            expected.push(dwarfdump_uuids(&path));
        }
        for expected in expected {
            assert_eq!(ours.len(), expected.len(), "{}: {ours:?} {expected:?}", path.display());
            for (ours, theirs) in ours.iter().zip(&expected) {
                assert_eq!(ours.0, theirs.0, "{}", path.display());
                assert!(is_named(ours.1, &theirs.1), "{}: {ours:?} {theirs:?}", path.display());
            }
        }
        files += 1;
        ids += ours.len();
    }
    println!("{files} Mach-O files, {ids} UUIDs");
    assert!(files == 0 || ids > 20, "{files} files, {ids} ids");
}

/// The value of a field in `llvm-readobj --file-headers`.
fn field<'t>(text: &'t str, name: &str) -> &'t str {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_default().split_whitespace().next().unwrap_or_default()
}

#[test]
fn word_size_byte_order_and_file_type_are_those_of_llvm_readobj() {
    if !have("llvm-readobj") {
        return;
    }
    for (path, _) in macho_fixtures() {
        let bytes = std::fs::read(&path).expect("an input");
        let slices = slices_of(&bytes);
        let text =
            run("llvm-readobj", &["--file-headers", &path.display().to_string()], Path::new(".")).expect("it reads");
        let parts: Vec<&str> = text.split("File: ").skip(1).collect();
        assert_eq!(parts.len(), slices.len(), "{}", path.display());
        for (slice, text) in slices.iter().zip(parts) {
            assert_eq!(field(text, "Magic").ends_with("64"), slice.is_64(), "{}", path.display());
            assert!(slice.is_little_endian());
            let kind = match field(text, "FileType") {
                "Relocatable" => ObjectKind::Relocatable,
                "Executable" => ObjectKind::Executable,
                "DynamicLibrary" | "Bundle" => ObjectKind::Shared,
                "DWARFSymbol" => ObjectKind::DebugCompanion,
                other => panic!("{other}"),
            };
            assert_eq!((slice.kind(), slice.format()), (kind, Format::Macho), "{}", path.display());
            let is_dsym = kind == ObjectKind::DebugCompanion;
            assert_eq!(slice.is_executable(), !is_dsym && kind != ObjectKind::Relocatable, "{}", path.display());
            assert!(!is_dsym || (slice.is_debuginfo() && slice.debug_info_kind() < DebugInfoKind::Symbols));
            println!(
                "{} {} {} base {} {} {}",
                path.display(),
                slice.arch(),
                slice.kind().code(),
                slice.image_base().0,
                slice.debug_info_kind().code(),
                slice.object_map_count()
            );
        }
    }
}

#[test]
fn the_image_base_and_the_code_are_those_of_llvm_readobj() {
    if !have("llvm-readobj") {
        return;
    }
    for (path, _) in macho_fixtures() {
        let bytes = std::fs::read(&path).expect("an input");
        let slices = slices_of(&bytes);
        let [slice] = slices.as_slice() else { continue };
        let text = run("llvm-readobj", &["--sections", "--macho-segment", &path.display().to_string()], Path::new("."));
        let text = text.expect("it reads");
        let mut code = Vec::new();
        for section in text.split("Section {").skip(1) {
            if section.contains("PureInstructions") || section.contains("SomeInstructions") {
                let number =
                    |name: &str| u64::from_str_radix(field(section, name).trim_start_matches("0x"), 16).expect("hex");
                code.push(number("Address")..number("Address") + number("Size"));
            }
        }
        code.retain(|range| !range.is_empty());
        let ours: u64 = slice.unwind_inputs().text.iter().map(|range| range.end - range.start).sum();
        assert_eq!(ours, code.iter().map(|range| range.end - range.start).sum::<u64>(), "{}", path.display());
        assert!(code.iter().all(|range| {
            slice.unwind_inputs().text.iter().any(|ours| ours.start <= range.start && range.end <= ours.end)
        }));
        let segments = text.split("Segment {").skip(1).find(|segment| field(segment, "Name") == "__TEXT");
        let base = segments.map_or(0, |segment| {
            u64::from_str_radix(field(segment, "vmaddr").trim_start_matches("0x"), 16).expect("hex")
        });
        assert_eq!(slice.image_base().0, base, "{}", path.display());
    }
}

/// The linker of LLVM makes no arm64e, so that a copy is made one by its header: the subtype, with the capability bits that Apple's linker sets, and
/// another UUID.
#[test]
fn a_slice_of_arm64e_is_told_from_that_of_arm64() {
    /// `CPU_SUBTYPE_ARM64E` with `CPU_SUBTYPE_PTRAUTH_ABI`; `LC_UUID` and its size. (XNU, mach/machine.h and mach-o/loader.h)
    const ARM64E: u32 = 0x8000_0002;
    const LC_UUID: [u8; 8] = [0x1b, 0, 0, 0, 24, 0, 0, 0];
    let (Some(linker), Some(lipo)) = (any_of(&["ld64.lld-19", "ld64.lld"]), any_of(&["llvm-lipo-19", "llvm-lipo"]))
    else {
        return;
    };
    if !have("clang") || !have("llvm-dwarfdump") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), "int twice(int x) { return 2 * x; }\n").expect("a source");
    run("clang", &["--target=arm64-apple-macos12", "-c", "a.c", "-o", "a.o"], folder).expect("clang compiles");
    let options = ["-dylib", "-arch", "arm64", "-platform_version", "macos", "12", "12", "a.o", "-o", "plain.dylib"];
    run(linker, &options, folder).expect("it links");
    let mut bytes = std::fs::read(folder.join("plain.dylib")).expect("a library");
    bytes[8..12].copy_from_slice(&ARM64E.to_le_bytes());
    let uuid = bytes.windows(LC_UUID.len()).position(|window| window == LC_UUID).expect("a UUID") + LC_UUID.len();
    bytes[uuid] ^= 0xff;
    std::fs::write(folder.join("signed.dylib"), bytes).expect("a library");
    run(lipo, &["-create", "plain.dylib", "signed.dylib", "-output", "both.dylib"], folder).expect("lipo");
    for (name, archs) in
        [("plain.dylib", &["arm64"][..]), ("signed.dylib", &["arm64e"]), ("both.dylib", &["arm64", "arm64e"])]
    {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).expect("a library");
        let ours: Vec<(String, String)> = slices_of(&bytes)
            .iter()
            .map(|slice| {
                let id = slice.debug_id().expect("an id").to_string();
                (id.strip_prefix("uuid:").expect("a UUID").to_owned(), apple_name(slice.arch()).to_owned())
            })
            .collect();
        assert_eq!(ours, dwarfdump_uuids(&path), "{name}");
        assert!(ours.iter().map(|(_, arch)| arch.as_str()).eq(archs.iter().copied()), "{ours:?}");
    }
}
