//! .NET assemblies: methods for the runtime are no code of a processor.

use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};

use crate::support::downloads::{CLR_LOADER, PYTHONNET};
use crate::support::{have, is_there, run};
use crate::windows_pairs::unpack;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

/// Bytes of native code that a file has, as it is counted.
fn code_bytes(bytes: &[u8]) -> u64 {
    functions(&ObjectFile::parse(bytes).expect("a PE"), &DebugFiles::default()).expect("a stream").statistics.text_bytes
}

/// Flags and size of native code of the CLI header, as llvm-readobj and the bytes have it.
fn flags(path: &Path, bytes: &[u8]) -> Option<(u32, u32)> {
    let text = run("llvm-readobj-19", &["--file-headers", &path.display().to_string()], Path::new("."))?;
    let (_, rva) = text.lines().find_map(|line| line.trim().split_once("CLRRuntimeHeaderRVA: 0x"))?;
    let rva = u64::from_str_radix(rva, 16).ok().filter(|rva| *rva > 0)?;
    let file = object::File::parse(bytes).expect("a PE");
    let address = file.relative_address_base() + rva;
    let data = file.sections().find_map(|section| section.data_range(address, 72).ok().flatten()).expect("the header");
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"));
    Some((word(16), word(68)))
}

/// Assemblies of a compiler for any processor, and those of a wheel.
fn assemblies(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if is_there("mcs") {
        std::fs::write(folder.join("app.cs"), "public class App { public static int Main() { return 3; } }\n")
            .expect("a file");
        run("mcs", &["-debug", "app.cs"], folder).expect("an assembly");
        found.push(folder.join("app.exe"));
    }
    // One of methods alone, and two that export functions to native programs.
    if unpack(&PYTHONNET, folder) {
        found.push(folder.join("pythonnet/runtime/Python.Runtime.dll"));
    }
    if unpack(&CLR_LOADER, folder) {
        found.extend(["x86", "amd64"].map(|arch| folder.join(format!("clr_loader/ffi/dlls/{arch}/ClrLoader.dll"))));
    }
    found
}

#[test]
fn methods_for_a_runtime_are_not_counted_as_native_code() {
    let folder = tempfile::tempdir().expect("a folder");
    if !have("llvm-readobj-19") {
        return;
    }
    for path in assemblies(folder.path()) {
        let bytes = std::fs::read(&path).expect("an assembly");
        let (flags, native) = flags(&path, &bytes).expect("a CLI header");
        let is_alone = flags & 1 == 1 && native == 0;
        let object = ObjectFile::parse(&bytes).expect("a PE");
        println!("{}: flags {flags:#x}, {} bytes of code", path.display(), code_bytes(&bytes));
        assert_eq!(object.is_il_alone(), is_alone, "{}", path.display());
        assert_eq!(code_bytes(&bytes) == 0, is_alone, "{}", path.display());
        assert_eq!(object.unwind_inputs().text.is_empty(), is_alone, "{}", path.display());
        if !is_alone {
            left_beside_methods(&path, &bytes, &object);
        }
        // It is a binary as before, and told from others by the bytes of its methods.
        assert!(object.is_executable() && object.has_code() && object.debug_id().is_some(), "{}", path.display());
    }
}

/// What is exported to native programs is code; methods and metadata, which fill the sections of code of such an assembly, are not.
fn left_beside_methods(path: &Path, bytes: &[u8], object: &ObjectFile<'_>) {
    let file = object::File::parse(bytes).expect("a PE");
    let text = object.unwind_inputs().text;
    let exports =
        run("llvm-readobj-19", &["--coff-exports", &path.display().to_string()], Path::new(".")).expect("exports");
    let exports: Vec<u64> = exports
        .lines()
        .filter_map(|line| line.trim().strip_prefix("RVA: 0x"))
        .map(|rva| file.relative_address_base() + u64::from_str_radix(rva, 16).expect("an address"))
        .collect();
    assert!(!exports.is_empty());
    for address in exports {
        assert!(text.iter().any(|range| range.contains(&address)), "{address:#x}");
    }
    let is_code = |section: &object::Section<'_, '_>| matches!(section.flags(), object::SectionFlags::Coff { characteristics } if characteristics.contains(object::pe::IMAGE_SCN_MEM_EXECUTE));
    let sections: u64 = file.sections().filter(is_code).map(|section| section.size()).sum();
    let code: u64 = text.iter().map(|range| range.end - range.start).sum();
    assert!(code * 4 < sections, "{code} of {sections}");
}

/// A native library, with a CLI header of these flags and this size of code that was compiled ahead of time.
#[test]
fn an_assembly_with_native_code_has_it_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    if !have("clang") || !have("lld-link") {
        return;
    }
    let source = "__declspec(dllexport) int twice(int x) { return 2 * x; }\n\
                  #pragma section(\".cli\", read)\n\
                  __declspec(allocate(\".cli\")) const unsigned header[18] = { 72, 2 | 5 << 16 };\n";
    std::fs::write(folder.path().join("app.c"), source).expect("a file");
    run("clang", &["--target=x86_64-pc-windows-msvc", "-O1", "-c", "app.c", "-o", "app.obj"], folder.path())
        .expect("clang");
    let options = ["/dll", "/noentry", "/nodefaultlib", "/include:header", "/out:app.dll", "app.obj"];
    run("lld-link", &options, folder.path()).expect("lld-link");
    let native = std::fs::read(folder.path().join("app.dll")).expect("a library");
    let (header_rva, header_at) = {
        let file = object::File::parse(&*native).expect("a PE");
        let section = file.section_by_name(".cli").expect("the section");
        let (at, _) = section.file_range().expect("bytes");
        (section.address() - file.relative_address_base(), usize::try_from(at).expect("an offset"))
    };
    let code = code_bytes(&native);
    assert!(code > 0);
    // The optional header of 64 bits has its directories from byte 112 on, of which the CLI header's is number 14.
    let headers_at =
        usize::try_from(u32::from_le_bytes(native[0x3c..0x40].try_into().expect("four bytes"))).expect("an offset");
    let directory_at = headers_at + 24 + 112 + 14 * 8;
    let check = |flags: u32, ahead_of_time: u32, expected: u64| {
        let mut bytes = native.clone();
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(directory_at, u32::try_from(header_rva).expect("an address"));
        put(directory_at + 4, 72);
        put(header_at + 16, flags);
        put(header_at + 68, ahead_of_time);
        assert_eq!(code_bytes(&bytes), expected, "{flags:#x} {ahead_of_time}");
        assert_eq!(ObjectFile::parse(&bytes).expect("a PE").is_il_alone(), expected == 0);
    };
    // Methods alone, the same for 32 bits where possible; with native code beside them; compiled ahead of time.
    check(1, 0, 0);
    check(1 | 0x2_0002, 0, 0);
    check(0, 0, code);
    check(4, 0x100, code);
    check(1, 0x100, code);
}

/// An assembly that was compiled ahead of time: functions, the head of its native code, the CLI header, the exception directory.
fn ready_to_run(machine: u16) -> Vec<u8> {
    const SECTION: u32 = 0x1000;
    let functions = [(0u32, 0x21u32), (0x30, 0x40), (0x80, 0x90)].map(|(begin, end)| [SECTION + begin, SECTION + end]);
    let mut section = vec![0xc3; 0x200];
    section[0xa0..0xa4].copy_from_slice(b"RTR\0");
    let word = |section: &mut [u8], at: usize, value: u32| section[at..at + 4].copy_from_slice(&value.to_le_bytes());
    section[0x100..0x148].fill(0);
    word(&mut section, 0x100 + 64, SECTION + 0xa0);
    word(&mut section, 0x100 + 68, 0x20);
    for (at, [begin, end]) in functions.into_iter().enumerate() {
        word(&mut section, 0x150 + 12 * at, begin);
        word(&mut section, 0x154 + 12 * at, end);
        word(&mut section, 0x158 + 12 * at, SECTION + 0x1c0);
    }
    section[0x1c0..0x1c4].copy_from_slice(&[1, 0, 0, 0]);
    let mut file = vec![0; 0x200];
    file[..2].copy_from_slice(b"MZ");
    word(&mut file, 0x3c, 0x40);
    file[0x40..0x44].copy_from_slice(b"PE\0\0");
    file[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
    file[0x46] = 1;
    file[0x54] = 240;
    file[0x56..0x58].copy_from_slice(&0x2022u16.to_le_bytes());
    let optional = 0x58;
    file[optional..optional + 2].copy_from_slice(&0x20bu16.to_le_bytes());
    for (at, value) in [(24, 0x1000_0000), (32, 0x1000), (36, 0x200), (56, 0x2000), (60, 0x200), (108, 16)] {
        word(&mut file, optional + at, value);
    }
    // The exception directory and the CLI header.
    for (number, rva, size) in [(3, SECTION + 0x150, 36), (14, SECTION + 0x100, 72)] {
        word(&mut file, optional + 112 + 8 * number, rva);
        word(&mut file, optional + 116 + 8 * number, size);
    }
    let header = optional + 240;
    file[header..header + 5].copy_from_slice(b".text");
    for (at, value) in [(8, 0x200), (12, SECTION), (16, 0x200), (20, 0x200), (36, 0x6000_0020)] {
        word(&mut file, header + at, value);
    }
    [file, section].concat()
}

#[test]
fn what_dotnet_compiles_ahead_of_time_has_its_processor_and_the_code_of_its_functions() {
    let plain = [(0x8664, "x86_64"), (0xaa64, "aarch64"), (0x014c, "x86"), (0x01c4, "arm")];
    for (machine, arch) in plain {
        // Windows, Linux, macOS, FreeBSD.
        for system in [0, 0x7b79, 0x4644, 0xadc4] {
            let bytes = ready_to_run(machine ^ system);
            let object = ObjectFile::parse(&bytes).expect("a PE");
            assert_eq!(object.arch().code(), arch, "{machine:#x} {system:#x}");
            assert!(!object.is_il_alone());
            assert_eq!(object.unwind_inputs().is_system_v, system != 0);
        }
    }
    let bytes = ready_to_run(0x8664 ^ 0x7b79);
    let inputs = ObjectFile::parse(&bytes).expect("a PE").unwind_inputs();
    // The first two have padding between them, and before the third are the runtime's thunks.
    assert_eq!(inputs.text, [0x1000_1000..0x1000_1040, 0x1000_1080..0x1000_1090]);
    let code: Vec<(u64, usize)> = inputs.code().iter().map(|(start, bytes)| (*start, bytes.len())).collect();
    assert_eq!(code, [(0x1000_1000, 0x40), (0x1000_1080, 0x10)]);
}
