//! PE, PDB and portable PDB files: what identifies them, beside what LLVM says of them.

use crate::support::{any_of, fixtures, have, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use symseal_artifact::{Arch, ArtifactError, DebugInfoKind, IdKind, ObjectFile, PdbFile, ReleaseFile};
use symseal_module::DebugId;

/// Every fixture that starts so, with its name.
fn inputs(magic: &[u8]) -> Vec<(String, PathBuf, Vec<u8>, Value)> {
    let Some(folder) = fixtures() else { return Vec::new() };
    let manifest = std::fs::read(folder.join("MANIFEST.json")).expect("the manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let mut inputs = Vec::new();
    for entry in manifest.as_array().expect("a list") {
        let name = entry["file"].as_str().expect("a name");
        let path = folder.join(name);
        let bytes = std::fs::read(&path).expect("the input");
        if bytes.starts_with(magic) {
            inputs.push((name.to_owned(), path, bytes, entry["ids"].clone()));
        }
    }
    assert!(!inputs.is_empty());
    inputs
}

fn tool(name: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let path = path.display().to_string();
    let mut all = arguments.to_vec();
    all.push(&path);
    run(name, &all, Path::new("."))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The value behind `key: ` in a tool's output.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "))
}

#[test]
fn pe_fixtures_have_the_ids_of_the_manifest_and_of_llvm_readobj() {
    for (name, path, bytes, ids) in inputs(b"MZ") {
        let object = ObjectFile::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(object.code_id().as_deref(), ids["code_id"].as_str(), "{name}");
        let arch = match ids["machine"].as_str() {
            Some("IMAGE_FILE_MACHINE_AMD64") => Arch::X86_64,
            Some("IMAGE_FILE_MACHINE_I386") => Arch::X86,
            Some("IMAGE_FILE_MACHINE_ARM64") => Arch::Aarch64,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(object.arch(), arch, "{name}");
        let reference = object.pdb_reference();
        assert_eq!(reference.map(|pdb| hex(&pdb.guid)).as_deref(), ids["guid"].as_str(), "{name}");
        assert_eq!(reference.map(|pdb| u64::from(pdb.age)), ids["age"].as_u64(), "{name}");
        let path_in_it = reference.map(|pdb| String::from_utf8_lossy(pdb.path).into_owned());
        assert_eq!(path_in_it.as_deref(), ids["pdb_name"].as_str(), "{name}");
        match (object.debug_id(), reference) {
            (Some(DebugId::Pdb { guid, age }), Some(pdb)) => {
                assert_eq!((*guid, *age, object.id_kind()), (pdb.guid, pdb.age, IdKind::PdbGuidAge), "{name}");
            }
            (Some(DebugId::Pdb { age, .. }), None) => {
                assert_eq!((*age, object.id_kind()), (0, IdKind::TextHash), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        if have("llvm-readobj") {
            let text =
                tool("llvm-readobj", &["--file-headers", "--coff-debug-directory"], &path).expect("llvm-readobj");
            let number = |key: &str| field(&text, key).and_then(|value| value.parse::<u64>().ok());
            assert_eq!(number("ImageBase").or(hex_field(&text, "ImageBase")), Some(object.image_base().0), "{name}");
            // LLVM 14 prints the GUID as it is stored, in braces from 15 on.
            if let Some(printed) = field(&text, "PDBGUID") {
                let digits: String = printed.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_uppercase();
                let ours = reference.map(|pdb| pdb.guid).unwrap_or_default();
                assert!(digits == hex(&ours) || digits == hex(&stored(ours)), "{name}: {printed}");
                assert_eq!(number("PDBAge"), reference.map(|pdb| u64::from(pdb.age)), "{name}");
                assert_eq!(field(&text, "PDBFileName").map(str::to_owned), path_in_it, "{name}");
            } else {
                assert_eq!(reference, None, "{name}");
            }
        }
    }
}

fn hex_field(text: &str, key: &str) -> Option<u64> {
    u64::from_str_radix(field(text, key)?.strip_prefix("0x")?, 16).ok()
}

/// A GUID as it stands in a file.
fn stored(guid: [u8; 16]) -> [u8; 16] {
    let mut bytes = guid;
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

#[test]
fn pdb_fixtures_have_the_ids_of_the_manifest_and_of_llvm_pdbutil() {
    for (name, path, bytes, ids) in inputs(b"Microsoft C/C++ MSF 7.00") {
        let Ok(ReleaseFile::Pdb(pdb)) = ReleaseFile::parse(&bytes) else { panic!("{name}") };
        assert_eq!(Some(hex(&pdb.guid()).as_str()), ids["guid"].as_str(), "{name}");
        assert_eq!(Some(u64::from(pdb.stream_age())), ids["info_age"].as_u64(), "{name}");
        assert_eq!(Some(u64::from(pdb.age())), ids["dbi_age"].as_u64(), "{name}");
        assert_eq!(pdb.debug_id(), DebugId::Pdb { guid: pdb.guid(), age: pdb.age() });
        if have("llvm-pdbutil") {
            let text = tool("llvm-pdbutil", &["dump", "--summary"], &path).expect("llvm-pdbutil");
            let guid: String = field(&text, "GUID").expect("a GUID").chars().filter(char::is_ascii_hexdigit).collect();
            assert_eq!(guid, hex(&pdb.guid()), "{name}");
            assert_eq!(field(&text, "Age").and_then(|age| age.parse().ok()), Some(pdb.stream_age()), "{name}");
            let is_stripped = field(&text, "Is stripped").expect("a line");
            assert_eq!(is_stripped == "true", pdb.is_stripped(), "{name}");
        }
    }
}

#[test]
fn every_pe_with_its_pdb_beside_it_has_the_same_id() {
    let mut pairs = 0;
    for (name, path, bytes, _) in inputs(b"MZ") {
        let beside = path.with_extension("pdb");
        let Ok(pdb) = std::fs::read(&beside) else { continue };
        let object = ObjectFile::parse(&bytes).expect("a PE");
        let pdb = PdbFile::parse(&pdb).expect("a PDB");
        assert_eq!(object.debug_id(), Some(&pdb.debug_id()), "{name}");
        assert_eq!(object.arch(), pdb.arch(), "{name}");
        pairs += 1;
    }
    println!("{pairs} pairs");
}

const SOURCE: &str = "int twice(int x) { return 2 * x; }\nint start(void) { return twice(21); }\n";

/// A DLL and its PDB, of Microsoft's formats but made by clang and lld; none without them.
fn made(folder: &Path, target: &str, name: &str, link: &[&str]) -> Option<PathBuf> {
    if !have("clang") || !have("lld-link") {
        return None;
    }
    std::fs::write(folder.join("main.c"), SOURCE).expect("a source");
    let object = format!("{name}.obj");
    let target = format!("--target={target}-pc-windows-msvc");
    run("clang", &[&target, "-O1", "-g", "-gcodeview", "-c", "main.c", "-o", &object], folder).expect("clang");
    let out = format!("/out:{name}.dll");
    let mut all = vec!["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", &object, &out];
    all.extend(link);
    run("lld-link", &all, folder).expect("lld-link");
    Some(folder.join(format!("{name}.dll")))
}

#[test]
fn made_pairs_of_every_processor_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    for (target, arch, is_64) in
        [("x86_64", Arch::X86_64, true), ("i686", Arch::X86, false), ("aarch64", Arch::Aarch64, true)]
    {
        let Some(dll) = made(folder.path(), target, target, &["/safeseh:no"]) else { return };
        let bytes = std::fs::read(&dll).expect("a DLL");
        let object = ObjectFile::parse(&bytes).expect("a PE");
        assert_eq!((object.arch(), object.is_64(), object.is_executable()), (arch, is_64, true));
        assert_eq!(object.debug_info_kind(), DebugInfoKind::None);
        let pdb = std::fs::read(dll.with_extension("pdb")).expect("a PDB");
        let pdb = PdbFile::parse(&pdb).expect("a PDB");
        assert_eq!((object.debug_id(), pdb.arch()), (Some(&pdb.debug_id()), arch));
    }
}

#[test]
fn the_path_of_the_pdb_is_told_as_llvm_readobj_reads_it_and_a_bare_name_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(tool) = any_of(&["llvm-readobj", "llvm-readobj-19", "llvm-readobj-14"]) else { return };
    for (name, link, is_path) in [("far", &[][..], true), ("near", &["/pdbaltpath:near.pdb"][..], false)] {
        let Some(dll) = made(folder.path(), "x86_64", name, link) else { return };
        let told = run(tool, &["--coff-debug-directory", &format!("{name}.dll")], folder.path()).expect("llvm-readobj");
        let line = told.lines().find_map(|line| line.trim().strip_prefix("PDBFileName: ")).expect("a record");
        let bytes = std::fs::read(&dll).expect("a DLL");
        let found: Vec<String> = ObjectFile::parse(&bytes).expect("a PE").build_paths().into_iter().collect();
        assert_eq!(found, if is_path { vec![line.to_owned()] } else { Vec::new() }, "{name}");
        assert_eq!(line.contains(['/', '\\']), is_path, "{line}");
    }
}

#[test]
fn a_fastlink_pdb_is_refused_with_the_reason() {
    if !have("llvm-pdbutil") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (feature, is_refused) in [("VC140", false), ("VC140, MinimalDebugInfo", true)] {
        let yaml = format!(
            "PdbStream:\n  Age: 1\n  Guid: '{{01234567-89AB-CDEF-93CC-0951C9923A14}}'\n  Signature: 1\n  Features: [ {feature} ]\n  Version: VC70\nDbiStream:\n  VerHeader: V70\n  Age: 7\n  Flags: 0\n  MachineType: x86\n"
        );
        std::fs::write(folder.join("in.yaml"), yaml).expect("a file");
        run("llvm-pdbutil", &["yaml2pdb", "--pdb=out.pdb", "in.yaml"], folder).expect("llvm-pdbutil");
        let bytes = std::fs::read(folder.join("out.pdb")).expect("a PDB");
        match PdbFile::parse(&bytes) {
            Ok(pdb) => {
                assert!(!is_refused);
                assert_eq!(pdb.debug_id().to_string(), "0123456789ABCDEF93CC0951C9923A14-7");
                assert_eq!(pdb.stream_age(), 1);
            }
            Err(error) => {
                assert!(is_refused && error.to_string().contains("/DEBUG:FASTLINK"), "{error}");
            }
        }
    }
}

/// Where the debug directory's first entry stands in the file, from llvm-readobj's figures.
fn code_view_at(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|window| window == b"RSDS").expect("a record")
}

#[test]
fn an_old_code_view_record_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dll) = made(folder.path(), "x86_64", "old", &[]) else { return };
    let mut bytes = std::fs::read(dll).expect("a DLL");
    let at = code_view_at(&bytes);
    bytes[at..at + 4].copy_from_slice(b"NB10");
    let error = ObjectFile::parse(&bytes).expect_err("NB10").to_string();
    assert!(error.contains("CodeView") && error.contains("NB10") && error.contains("2002"), "{error}");
}

#[test]
fn a_portable_code_view_entry_has_no_age() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dll) = made(folder.path(), "x86_64", "net", &[]) else { return };
    let mut bytes = std::fs::read(dll).expect("a DLL");
    // The entry before the record: characteristics, time, versions, type 2 (CodeView), size, address, place.
    let record = (code_view_at(&bytes) as u32).to_le_bytes();
    let entry = (0..bytes.len() - 28)
        .find(|at| bytes[at + 12..at + 16] == [2, 0, 0, 0] && bytes[at + 24..at + 28] == record)
        .expect("an entry");
    bytes[entry + 8..entry + 12].copy_from_slice(&[0, 1, 0x4d, 0x50]);
    let object = ObjectFile::parse(&bytes).expect("a PE");
    let reference = object.pdb_reference().expect("a reference");
    assert_eq!((reference.is_portable, reference.age, object.id_kind()), (true, u32::MAX, IdKind::PortablePdb));
    assert!(object.debug_id().expect("an id").to_string().ends_with("-ffffffff"));
}

#[test]
fn a_reproducible_build_is_known_and_has_the_same_id_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dll) = made(folder.path(), "x86_64", "repro", &["/Brepro"]) else { return };
    let first = std::fs::read(&dll).expect("a DLL");
    made(folder.path(), "x86_64", "repro", &["/Brepro"]).expect("a DLL");
    let second = std::fs::read(&dll).expect("a DLL");
    let (first, second) = (ObjectFile::parse(&first).expect("a PE"), ObjectFile::parse(&second).expect("a PE"));
    assert!(first.is_reproducible() && second.is_reproducible());
    assert_eq!((first.debug_id(), first.code_id()), (second.debug_id(), second.code_id()));
}

/// A portable PDB with streams of these names and contents.
fn portable(streams: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = b"BSJB\x01\0\x01\0\0\0\0\0\x0c\0\0\0PDB v1.0\0\0\0\0\0\0".to_vec();
    file.extend((streams.len() as u16).to_le_bytes());
    let headers: usize = streams.iter().map(|(name, _)| 8 + (name.len() + 1).next_multiple_of(4)).sum();
    let mut at = file.len() + headers;
    for (name, content) in streams {
        file.extend((at as u32).to_le_bytes());
        file.extend((content.len() as u32).to_le_bytes());
        file.extend(name.as_bytes());
        file.resize((file.len() + 1).next_multiple_of(4), 0);
        at += content.len();
    }
    streams.iter().for_each(|(_, content)| file.extend(*content));
    file
}

#[test]
fn a_portable_pdb_is_identified_by_its_stream() {
    let mut id = stored(*b"0123456789abcdef").to_vec();
    id.extend(7_u32.to_le_bytes());
    id.extend([0; 12]);
    let file = portable(&[("#~", &[1, 2, 3]), ("#Pdb", &id)]);
    let Ok(ReleaseFile::PortablePdb(pdb)) = ReleaseFile::parse(&file) else { panic!("a portable PDB") };
    assert_eq!(pdb.debug_id(), DebugId::Pdb { guid: *b"0123456789abcdef", age: u32::MAX });
    assert_eq!((pdb.guid(), pdb.stamp()), (*b"0123456789abcdef", 7));
    for length in 0..file.len() {
        let error = ReleaseFile::parse(&file[..length]).expect_err("cut short").to_string();
        assert!(error.contains("expected"), "{error}");
    }
    let other = portable(&[("#~", &[1, 2, 3])]);
    let error = ReleaseFile::parse(&other).expect_err("no id").to_string();
    assert!(error.contains("#Pdb"), "{error}");
}

#[test]
fn mingw_files_are_known_by_code_or_by_their_build_id() {
    let tool = "x86_64-w64-mingw32-gcc";
    if !have(tool) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("main.c"), "int main(void) { return 0; }\n").expect("a source");
    let parse = |name: &str, check: &dyn Fn(&ObjectFile<'_>)| {
        let bytes = std::fs::read(folder.join(name)).expect("a file");
        check(&ObjectFile::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}")));
    };
    run(tool, &["-g", "main.c", "-o", "full.exe", "-Wl,--build-id=none"], folder).expect("gcc");
    run("x86_64-w64-mingw32-strip", &["full.exe", "-o", "stripped.exe"], folder).expect("strip");
    run("x86_64-w64-mingw32-objcopy", &["--only-keep-debug", "full.exe", "full.debug"], folder).expect("objcopy");
    let mut id = None;
    parse("full.exe", &|object| {
        assert_eq!((object.id_kind(), object.debug_info_kind()), (IdKind::TextHash, DebugInfoKind::Full));
        assert!(object.is_debuginfo() && object.is_executable() && object.has_symtab());
        assert!(object.section(".debug_info").is_some(), "long names come from the string table");
    });
    let bytes = std::fs::read(folder.join("full.exe")).expect("a file");
    let _ = id.insert(ObjectFile::parse(&bytes).expect("a PE").debug_id().cloned());
    parse("stripped.exe", &|object| {
        assert_eq!(object.debug_id().cloned(), id.clone().flatten());
        assert!(object.is_stripped() && !object.is_debuginfo());
    });
    parse("full.debug", &|object| {
        assert_eq!(object.debug_info_kind(), DebugInfoKind::Full);
        assert!(!object.is_executable());
    });
    // GNU ld writes a CodeView record for a build-id, without a PDB.
    run(tool, &["-g", "main.c", "-o", "noted.exe", "-Wl,--build-id"], folder).expect("gcc");
    parse("noted.exe", &|object| assert_eq!(object.id_kind(), IdKind::PdbGuidAge));
}

/// A PE file of 64 bits with these section headers: address, size in memory, place, size in the file.
fn with_sections(sections: &[[u32; 4]], length: usize) -> Vec<u8> {
    let mut file = vec![0_u8; 64];
    file[..2].copy_from_slice(b"MZ");
    file[60] = 64;
    file.extend(b"PE\0\0\x64\x86");
    file.extend((sections.len() as u16).to_le_bytes());
    file.extend([0; 12]);
    file.extend([240, 0, 0x22, 0]);
    file.extend([0x0b, 2]);
    file.resize(64 + 24 + 108, 0);
    file.extend(16_u32.to_le_bytes());
    file.resize(64 + 24 + 240, 0);
    for [address, memory, at, size] in sections {
        file.extend(b".text\0\0\0");
        for value in [*memory, *address, *size, *at, 0, 0, 0, 0x6000_0020] {
            file.extend(value.to_le_bytes());
        }
    }
    file.resize(length.max(file.len()), 0x90);
    file
}

#[test]
fn impossible_sections_are_refused_by_name() {
    let fine = with_sections(&[[0x1000, 0x100, 0x400, 0x100], [0x2000, 0x100, 0x500, 0x100]], 0x600);
    assert!(ObjectFile::parse(&fine).expect("a PE").is_executable());
    let overlapping = with_sections(&[[0x1000, 0x1001, 0x400, 0x100], [0x2000, 0x100, 0x500, 0x100]], 0x600);
    let error = ObjectFile::parse(&overlapping).expect_err("overlapping").to_string();
    assert!(error.contains("section .text") && error.contains("0x2001") && error.contains("0x2000"), "{error}");
    let beyond = with_sections(&[[0x1000, 0x100, 0x400, 0x201]], 0x600);
    let error = ObjectFile::parse(&beyond).expect_err("beyond the file").to_string();
    assert!(error.contains("section .text") && error.contains("0x400..0x601"), "{error}");
    let many: Vec<[u32; 4]> = (0..65_535).map(|number| [0x1000 + number * 16, 16, 0, 0]).collect();
    let file = with_sections(&many, 0);
    assert_eq!(ObjectFile::parse(&file).expect("a PE").unwind_inputs().text.len(), 1);
    let error = ObjectFile::parse(&file[..file.len() - 1]).expect_err("cut short").to_string();
    assert!(error.contains("section table"), "{error}");
}

#[test]
fn a_pe_of_no_known_kind_says_what_was_expected() {
    for (bytes, expected) in [(&b"MZ"[..], "DOS header"), (&[b'M', b'Z', 0, 0].repeat(20)[..], "PE header")] {
        match ObjectFile::parse(bytes) {
            Err(error @ ArtifactError::Truncated { .. }) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
