//! Binaries that are not told by code in `.text`: libraries of data alone, and kernel modules; and what of the rest is named.

use std::path::{Path, PathBuf};

use crate::inputs::{SOURCE, builder, compile, output, report, run, tool};
use symseal_builder::{BuildReport, PairedBy, PairedRole};
use symseal_bundle::DebugInfo;

const TABLE: &str = "const int table[64] = { 1, 2, 3 };\n";

/// A kernel's `struct module` in the section that makes a module of an object file, and what its build puts beside it.
const MODULE: &str = r#"
#ifndef FACTOR
#define FACTOR 3
#endif
struct module { char before[24]; char name[56]; int (*init)(void); };
static int value;
__attribute__((noinline)) int first(int x) { value += x; return value * FACTOR; }
__attribute__((noinline)) int second(int x) { return first(x) + 1; }
int init_module(void) { return second(4); }
__attribute__((section(".gnu.linkonce.this_module"))) struct module __this_module = { .name = NAME, .init = init_module };
static const char license[] __attribute__((section(".modinfo"), used)) = "license=GPL";
"#;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The object file of a module of that name.
fn module_object(cc: &Path, dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, object) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
    std::fs::write(&source, MODULE).unwrap();
    let name = format!("-DNAME=\"{name}\"");
    let mut arguments = vec!["-g", "-O1", "-c", &name, "-o", text(&object), text(&source)];
    arguments.extend(flags);
    run(cc, &arguments);
    object
}

#[track_caller]
fn skipped<'r>(report: &'r BuildReport, reason: &str) -> Vec<&'r str> {
    let places: Vec<&str> = report.inputs.skipped_places.of(reason).collect();
    assert_eq!(report.inputs.skipped.get(reason).copied().unwrap_or_default(), places.len() as u64, "{report:#?}");
    places
}

#[test]
fn a_windows_library_of_data_alone_is_paired_with_its_program_database() {
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let Some(readobj) = tool("llvm-readobj") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("table.c"), TABLE).unwrap();
    let target = "--target=x86_64-pc-windows-msvc";
    run(&clang, &[target, "-g", "-gcodeview", "-c", text(&at("table.c")), "-o", text(&at("table.obj"))]);
    let (object, common) = (at("table.obj"), ["/dll", "/noentry", "/nodefaultlib", "/export:table,DATA"]);
    let linked = |name: &str, more: &[&str]| {
        let out = format!("/out:{}", text(&at(name)));
        let mut arguments = common.to_vec();
        arguments.extend([text(&object), &out]);
        arguments.extend(more);
        run(&link, &arguments);
        at(name)
    };
    let dll = linked("table.dll", &["/debug"]);
    let found = report(&[dll.clone(), at("table.pdb")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    let told = output(&readobj, &["--coff-debug-directory", text(&dll)]);
    let guid = told.lines().find_map(|line| line.trim().strip_prefix("PDBGUID: ")).unwrap();
    // Printed as it is stored: the first three parts of a GUID are little-endian numbers.
    let stored: Vec<String> = guid.trim_matches(['(', ')']).split_whitespace().map(str::to_ascii_lowercase).collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let guid: String = order.iter().map(|at| stored[*at].as_str()).collect();
    assert_eq!(module.debug_id.to_string().replace('-', "").to_ascii_lowercase(), format!("{guid}1"));
    let [pdb] = module.paired.as_slice() else { panic!("{module:#?}") };
    assert_eq!((pdb.role, pdb.paired_by), (PairedRole::Pdb, Some(PairedBy::GuidAge)));
    assert_eq!(module.binary.as_deref(), Some(text(&dll)));
    assert!(module.code_id.is_some());
    assert!(found.is_complete(), "{found:#?}");
    assert_eq!(module.unwind.none_because.as_deref(), Some("it holds data, and no code"));
    builder(&[dll, at("table.pdb")]).strict(true).build_into(&at("layout")).unwrap();

    // Without a debugger's record the data tells it from others.
    let bare = linked("bare.dll", &[]);
    let found = report(&[bare]);
    assert_eq!((found.modules.len(), found.modules[0].id_kind), (1, "text-hash"));
    assert!(found.modules[0].code_id.is_some() && found.is_complete(), "{found:#?}");
}

/// The compilers of .NET are not at hand: the record by which lld says that a build is reproducible is made the one of an embedded portable
/// PDB. (PE Format, "Debug Type")
#[test]
fn an_assembly_with_its_portable_pdb_in_itself_lacks_none() {
    const REPRODUCIBLE: u32 = 16;
    const EMBEDDED_PORTABLE_PDB: u32 = 17;
    const CODE_VIEW: u32 = 2;
    const ENTRY_BYTES: usize = 28;
    const TYPE_AT: usize = 12;
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("app.c"), "int twice(int x) { return 2 * x; }\n").unwrap();
    run(&clang, &["--target=x86_64-pc-windows-msvc", "-c", text(&at("app.c")), "-o", text(&at("app.obj"))]);
    let (object, out) = (at("app.obj"), format!("/out:{}", text(&at("app.dll"))));
    let options = ["/dll", "/noentry", "/nodefaultlib", "/debug", "/Brepro", "/export:twice"];
    run(&link, &[&options[..], &[text(&object), &out]].concat());
    let found = report(&[at("app.dll")]);
    assert_eq!(found.binaries_without_debug_files.len(), 1, "{found:#?}");

    let mut bytes = std::fs::read(at("app.dll")).unwrap();
    let kind = |at: usize| u32::from_le_bytes(bytes[at + TYPE_AT..at + TYPE_AT + 4].try_into().unwrap());
    let entries = (0..bytes.len() - 2 * ENTRY_BYTES).step_by(4);
    let entry = entries.into_iter().find(|at| kind(*at) == CODE_VIEW && kind(at + ENTRY_BYTES) == REPRODUCIBLE);
    let kind_at = entry.unwrap() + ENTRY_BYTES + TYPE_AT;
    bytes[kind_at..kind_at + 4].copy_from_slice(&EMBEDDED_PORTABLE_PDB.to_le_bytes());
    std::fs::write(at("app.dll"), bytes).unwrap();
    let found = report(&[at("app.dll")]);
    assert!(found.modules.len() == 1 && found.is_complete(), "{found:#?}");
}

#[test]
fn an_assembly_of_methods_alone_has_no_native_code_and_lacks_its_program_database() {
    /// The directory of the CLI header in the optional header of 64 bits, behind the signature and the file header; the address in a section's header.
    const CLI_DIRECTORY: usize = 24 + 112 + 14 * 8;
    const ADDRESS: usize = 12;
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Its size, the runtime's version and the flag "IL only". (ECMA-335, II.25.3.3)
    let source = "__declspec(dllexport) int twice(int x) { return 2 * x; }\n\
                  __declspec(allocate(\".cli\")) const unsigned header[18] = { 72, 2 | 5 << 16, 0, 0, 1 };\n";
    std::fs::write(at("app.c"), format!("#pragma section(\".cli\", read)\n{source}")).unwrap();
    run(&clang, &["--target=x86_64-pc-windows-msvc", "-c", text(&at("app.c")), "-o", text(&at("app.obj"))]);
    let out = format!("/out:{}", text(&at("app.dll")));
    run(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", "/include:header", &out, text(&at("app.obj"))]);
    let found = report(&[at("app.dll")]);
    assert!(found.modules[0].statistics.text_bytes > 0 && found.modules[0].unwind.none_because.is_none(), "{found:#?}");

    let mut bytes = std::fs::read(at("app.dll")).unwrap();
    let section = bytes.windows(8).position(|name| name == b".cli\0\0\0\0").unwrap();
    let headers = u32::from_le_bytes(bytes[0x3c..0x40].try_into().unwrap()) as usize;
    let directory = headers + CLI_DIRECTORY;
    bytes.copy_within(section + ADDRESS..section + ADDRESS + 4, directory);
    bytes[directory + 4..directory + 8].copy_from_slice(&72_u32.to_le_bytes());
    std::fs::write(at("app.dll"), bytes).unwrap();
    let found = report(&[at("app.dll")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.statistics.text_bytes, module.statistics.functions), (0, 0), "{module:#?}");
    let why = module.unwind.none_because.as_deref();
    assert_eq!(why, Some("it holds methods for the runtime of .NET, and no native code"));
    assert_eq!(found.binaries_without_debug_files.len(), 1, "{found:#?}");
    assert!(report(&[at("app.dll"), at("app.pdb")]).is_complete());
}

#[test]
fn a_mac_library_of_data_alone_is_a_binary() {
    let Some(clang) = tool("clang") else { return };
    let Some(lld) = ["ld64.lld-19", "ld64.lld"].iter().find_map(|name| tool(name)) else { return };
    let Some(dwarfdump) = tool("llvm-dwarfdump") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("table.c"), TABLE).unwrap();
    run(&clang, &["--target=x86_64-apple-macos11", "-c", text(&at("table.c")), "-o", text(&at("table.o"))]);
    let link = |name: &str, more: &[&str]| {
        let common = ["-dylib", "-arch", "x86_64", "-platform_version", "macos", "11", "11"];
        let (object, library) = (at("table.o"), at(name));
        let mut arguments = common.to_vec();
        arguments.extend([text(&object), "-o", text(&library)]);
        arguments.extend(more);
        run(&lld, &arguments);
        library
    };
    let (named, bare) = (link("named.dylib", &[]), link("bare.dylib", &["-no_uuid"]));
    let found = report(std::slice::from_ref(&named));
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!(module.id_kind, "macho-uuid");
    let told = output(&dwarfdump, &["--uuid", text(&named)]).replace('-', "").to_ascii_lowercase();
    let id = module.debug_id.to_string().replace('-', "").to_ascii_lowercase();
    assert!(told.contains(id.trim_start_matches("uuid:")), "{id}: {told}");
    let found = report(&[bare]);
    assert_eq!((found.modules.len(), found.modules[0].id_kind), (1, "text-hash"), "{found:#?}");
}

#[test]
fn an_elf_library_of_data_alone_without_an_id_is_a_module() {
    let (Some(cc), Some(strip)) = (tool("cc"), tool("strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let full = compile(&cc, dir.path(), "table.so", TABLE, &["-g", "-Wl,--build-id=none"]);
    let other = compile(&cc, dir.path(), "other.so", "const int table[64] = { 3, 2, 1 };\n", &["-Wl,--build-id=none"]);
    let shipped = dir.path().join("shipped.so");
    run(&strip, &["-o", text(&shipped), text(&full)]);
    let found = report(&[shipped.clone(), other]);
    let kinds: Vec<_> = found.modules.iter().map(|module| (module.name.as_str(), module.id_kind)).collect();
    assert_eq!(kinds.len(), 2, "{found:#?}");
    assert!(kinds.contains(&("shipped.so", "text-hash")) && kinds.contains(&("other.so", "text-hash")), "{kinds:?}");
    assert!(found.is_complete() && found.inputs.skipped.is_empty(), "{found:#?}");
    // What is taken away by stripping is no part of the id.
    let found = report(&[shipped, full]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.name.as_str(), module.paired.len()), ("shipped.so", 1));
}

#[test]
fn a_kernel_module_whose_code_is_in_sections_of_its_functions_is_a_binary() {
    let (Some(cc), Some(ld), Some(objcopy)) = (tool("cc"), tool("ld"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let object = module_object(&cc, dir.path(), "widget", &["-ffunction-sections"]);
    run(&ld, &["-r", "--unique", "--build-id=0xdd0102", text(&object), "-o", text(&at("widget.ko"))]);
    let found = report(&[at("widget.ko")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!(module.binary.as_deref(), Some(text(&at("widget.ko"))), "{module:#?}");
    assert!(found.is_complete() && module.functions["dwarf"] == 3, "{found:#?}");
    // As distributions pack them.
    for (packer, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        let Some(packer) = tool(packer) else { continue };
        run(&packer, &["-k", text(&at("widget.ko"))]);
        let packed = report(&[at(&format!("widget.ko.{suffix}"))]);
        let [unpacked] = packed.modules.as_slice() else { panic!("{packed:#?}") };
        assert_eq!((&unpacked.debug_id, &unpacked.functions), (&module.debug_id, &module.functions), "{suffix}");
    }
    // Its debug file has the headers of these sections, and no bytes.
    run(&objcopy, &["--only-keep-debug", text(&at("widget.ko")), text(&at("widget.ko.debug"))]);
    run(&objcopy, &["--strip-debug", text(&at("widget.ko")), text(&at("shipped.ko"))]);
    let found = report(&[at("shipped.ko"), at("widget.ko.debug")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!(module.binary.as_deref(), Some(text(&at("shipped.ko"))));
    assert_eq!(module.debug_file.as_deref(), Some(text(&at("widget.ko.debug"))));
    assert!(found.is_complete(), "{found:#?}");
}

#[test]
fn two_kernel_modules_with_one_id_are_of_one_build_if_every_section_of_code_is_the_same() {
    let (Some(cc), Some(ld), Some(strip)) = (tool("cc"), tool("ld"), tool("strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let linked = |name: &str, flags: &[&str]| {
        let object = module_object(&cc, dir.path(), name, &[&["-ffunction-sections"], flags].concat());
        let module = at(&format!("{name}.ko"));
        run(&ld, &["-r", "--unique", "--build-id=0xdd0103", text(&object), "-o", text(&module)]);
        module
    };
    let full = linked("widget", &[]);
    let shipped = at("shipped.ko");
    run(&strip, &["--strip-debug", "-o", text(&shipped), text(&full)]);
    let found = report(&[shipped.clone(), full]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.binary.as_deref(), module.functions["dwarf"]), (Some(text(&shipped)), 3));
    // As long, but one function computes something else.
    let other = linked("gadget", &["-DFACTOR=5"]);
    let told = builder(&[shipped.clone(), other.clone()]).report().unwrap_err().to_string();
    assert!(told.contains(text(&shipped)) && told.contains(text(&other)), "{told}");
}

#[test]
fn kernel_modules_without_an_id_of_a_linker_are_told_apart_by_code_and_data() {
    let (Some(cc), Some(ld), Some(objcopy)) = (tool("cc"), tool("ld"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["widget", "gadget"] {
        let object = module_object(&cc, dir.path(), name, &[]);
        run(&ld, &["-r", text(&object), "-o", text(&at(&format!("{name}.ko")))]);
    }
    // Named on the command line, too: an object file there is an error.
    let found = report(&[at("widget.ko"), at("gadget.ko")]);
    let found: Vec<_> = found.modules.iter().map(|module| (module.name.as_str(), module.id_kind)).collect();
    assert_eq!(found.len(), 2, "their code is the same until it is relocated");
    assert!(found.contains(&("widget.ko", "text-hash")) && found.contains(&("gadget.ko", "text-hash")), "{found:?}");
    // What the kernel's build leaves beside a module: the section without code, and code that is linked into the kernel.
    let parts = [
        ("part.mod.o", "struct { char name[64]; } part __attribute__((section(\".gnu.linkonce.this_module\")));\n"),
        (
            "part.o",
            "int part(void) { return 3; }\nstatic const char l[] __attribute__((section(\".modinfo\"), used)) = \"license=GPL\";\n",
        ),
    ];
    for (name, source) in parts {
        std::fs::write(at("part.c"), source).unwrap();
        run(&cc, &["-c", "-o", text(&at(name)), text(&at("part.c"))]);
        let told = builder(&[at(name)]).report().unwrap_err().to_string();
        assert!(told.contains("relocatable"), "{told}");
    }
    let (debug, shipped) = (at("widget.ko.debug"), at("shipped.ko"));
    run(&objcopy, &["--only-keep-debug", text(&at("widget.ko")), text(&debug)]);
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    run(&objcopy, &["--strip-debug", &link, text(&at("widget.ko")), text(&shipped)]);
    let found = report(&[shipped, debug]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.name.as_str(), module.paired.len()), ("shipped.ko", 1));
    assert_eq!(module.paired[0].paired_by, Some(PairedBy::DebuglinkCrc));
    assert!(found.is_complete(), "{found:#?}");
}

#[test]
fn a_kernel_module_whose_relocations_are_not_read_is_told_as_that() {
    let Some(clang) = tool("clang-19") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, flags, expected) in [
        ("s390x", &["--target=s390x-linux-gnu"][..], None),
        ("m68k", &["--target=m68k-linux-gnu"], Some("of a processor whose relocations are not read")),
        ("crel", &["--target=x86_64-linux-gnu", "-Wa,--crel,--allow-experimental-crel"], Some("without -Wa,--crel")),
    ] {
        let object = module_object(&clang, dir.path(), name, flags);
        let found = report(std::slice::from_ref(&object));
        let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
        assert_eq!(module.debug_info == DebugInfo::Full, expected.is_none(), "{module:#?}");
        let advice: Vec<&str> =
            found.binaries_without_debug_files.iter().map(|binary| binary.advice.as_str()).collect();
        match (expected, advice.as_slice()) {
            (None, []) => {}
            (Some(expected), [advice]) => {
                assert!(advice.starts_with("its debug information is not read"), "{advice}");
                assert!(advice.contains(expected) && !advice.contains("strip"), "{advice}");
                assert_eq!(module.functions.get("symtab"), Some(&3), "{module:#?}");
            }
            _ => panic!("{name}: {advice:?}"),
        }
        // Without debug information it lacks what any other binary lacks.
        if let (Some(_), Some(objcopy)) = (expected, tool("llvm-objcopy-19")) {
            run(&objcopy, &["--strip-debug", text(&object)]);
            let found = report(&[object]);
            let [lacking] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
            assert!(!lacking.advice.contains("not read"), "{}", lacking.advice);
        }
    }
}

#[test]
fn what_looks_like_a_part_of_a_release_and_is_none_is_named() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    std::fs::write(at("table.c"), SOURCE).unwrap();
    run(&cc, &["-c", text(&at("table.c")), "-o", text(&at("table.o"))]);
    // A dSYM bundle whose DWARF file tells nothing: a Mach-O header of the kind, for x86-64, with no commands.
    let bundle = at("App.dSYM/Contents");
    std::fs::create_dir_all(bundle.join("Resources/DWARF")).unwrap();
    let header: Vec<u8> =
        [0xfeed_facf_u32, 0x0100_0007, 3, 10, 0, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(bundle.join("Resources/DWARF/App"), header).unwrap();
    std::fs::write(bundle.join("Info.plist"), "<plist/>").unwrap();

    let found = report(&[dir.path().to_owned()]);
    assert_eq!(found.modules.len(), 1);
    assert_eq!(skipped(&found, "object file of a linker"), [text(&at("table.o"))]);
    let dwarf = bundle.join("Resources/DWARF/App");
    assert_eq!(skipped(&found, "neither code nor debug information nor symbols"), [text(&dwarf)]);
    let plist = bundle.join("Info.plist");
    let members = found.inputs.skipped.keys().filter(|reason| reason.contains("dSYM")).collect::<Vec<_>>();
    let [members] = members.as_slice() else { panic!("{found:#?}") };
    assert_eq!(skipped(&found, members), [text(&plist)]);

    // Of many the first by name, and how many there are.
    for number in 0..150 {
        std::fs::copy(at("table.o"), at(&format!("many-{number:03}.o"))).unwrap();
    }
    let found = report(&[dir.path().to_owned()]);
    let named: Vec<&str> = found.inputs.skipped_places.of("object file of a linker").collect();
    assert_eq!((named.len(), found.inputs.skipped["object file of a linker"]), (100, 151));
    assert_eq!((named[0], named[99]), (text(&at("many-000.o")), text(&at("many-099.o"))));
}
