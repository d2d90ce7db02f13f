//! The ids in a report beside those that other tools print.

use std::path::Path;

use crate::inputs::{fixtures, output, report, tool};
use symseal_builder::{ModuleReport, PairedRole};

/// One line of a tool's output after `key`, without blanks and quotes.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
    Some(line.trim().trim_matches(['"', '{', '}', ' ']))
}

#[test]
fn every_id_of_the_report_is_the_one_that_other_tools_print() {
    let Some(fixtures) = fixtures() else { return };
    let (Some(readelf), Some(readobj), Some(dwarfdump), Some(pdbutil), Some(unstrip)) =
        (tool("eu-readelf"), tool("llvm-readobj"), tool("llvm-dwarfdump"), tool("llvm-pdbutil"), tool("eu-unstrip"))
    else {
        return;
    };
    let mut compared = [0; 3];
    let folders = [
        "breakpad",
        "dump_syms",
        "elfutils",
        "emu",
        "framehop",
        "mac-fat",
        "npm-pypi-msvc",
        "samply/fixtures/other/simple-example",
        "samply/fixtures/win64-ci",
        "symbolic/py",
        "symbolic/symbolic-testutils/fixtures/macos",
        "symbolic/symbolic-testutils/fixtures/windows",
    ];
    for folder in folders {
        let found = report(&[fixtures.join(folder)]);
        for module in &found.modules {
            let id = module.debug_id.to_string();
            if let Some(binary) = &module.binary {
                match module.format {
                    "elf" if module.id_kind == "gnu-build-id" => {
                        assert_eq!(
                            value(&output(&readelf, &["-n", binary]), "Build ID:"),
                            Some(id.as_str()),
                            "{binary}"
                        );
                        assert!(output(&unstrip, &["-n", "-e", binary]).contains(&id), "{binary}");
                        compared[0] += 1;
                    }
                    "pe" => compared[1] += compare_pe(&readobj, &pdbutil, module, binary),
                    "macho" if module.id_kind == "macho-uuid" => {
                        compare_uuid(&dwarfdump, binary, &id);
                        compared[2] += 1;
                    }
                    _ => {}
                }
            }
            for file in module.paired.iter().filter(|file| file.role == PairedRole::DebugFile) {
                match module.format {
                    "macho" => compare_uuid(&dwarfdump, &file.place, &id),
                    _ => assert_eq!(value(&output(&readelf, &["-n", &file.place]), "Build ID:"), Some(id.as_str())),
                }
            }
        }
    }
    assert!(compared[0] >= 4 && compared[1] >= 5 && compared[2] >= 6, "{compared:?}");
}

#[track_caller]
fn compare_uuid(dwarfdump: &Path, file: &str, id: &str) {
    let printed = output(dwarfdump, &["--uuid", file]).replace('-', "");
    assert!(printed.contains(id.trim_start_matches("uuid:")), "{file}: {id} is not in {printed}");
}

/// How many ids were compared: of a PE file with a CodeView record 1.
#[track_caller]
fn compare_pe(readobj: &Path, pdbutil: &Path, module: &ModuleReport, binary: &str) -> usize {
    let headers = output(readobj, &["--file-headers", binary]);
    let stamp = value(&headers, "TimeDateStamp:").unwrap().rsplit("(0x").next().unwrap().trim_end_matches(')');
    let size: u64 = value(&headers, "SizeOfImage:").unwrap().parse().unwrap();
    assert_eq!(module.code_id.as_deref(), Some(format!("{:0>8}{size:x}", stamp.to_uppercase()).as_str()), "{binary}");
    let debug = output(readobj, &["--coff-debug-directory", binary]);
    let Some(guid) = value(&debug, "PDBGUID:").map(guid) else { return 0 };
    let age: u32 = value(&debug, "PDBAge:").unwrap().parse().unwrap();
    assert_eq!(module.debug_id.to_string(), format!("{guid}-{age:x}"), "{binary}");
    if let Some(pdb) = module.paired.iter().find(|file| file.role == PairedRole::Pdb) {
        let summary = output(pdbutil, &["dump", "--summary", &pdb.place]);
        assert_eq!(value(&summary, "GUID:").map(self::guid), Some(guid), "{}", pdb.place);
        let age: u32 = value(&summary, "Age:").unwrap().parse().unwrap();
        assert_eq!(module.pdb.as_ref().unwrap().stream_age, Some(age), "{}", pdb.place);
    }
    1
}

/// A GUID in hex digits. Older versions of llvm-readobj print its bytes as they lie in the file: the first three fields have
/// the least significant byte first.
fn guid(printed: &str) -> String {
    let digits: Vec<&str> = printed.trim_matches(['(', ')']).split(' ').collect();
    match digits.as_slice() {
        [a, b, c, d, e, f, g, h, rest @ ..] => [d, c, b, a, f, e, h, g].into_iter().chain(rest).copied().collect(),
        _ => printed.replace('-', ""),
    }
}
