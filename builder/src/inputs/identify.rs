//! What a file's bytes are.

use std::ops::Range;

use symseal_artifact::{
    ArtifactError, DebugInfoKind, FileKind, Format, IdKind, ObjectFile, ObjectKind, ReleaseFile, SplitKind, escaped,
    is_universal_library, sniff,
};
use symseal_module::DebugId;

use super::file::{
    Content, NamedCrc, NamedId, ObjectFacts, PdbFacts, PdbName, SplitAsked, SplitFacts, Tells, foreign_base_name,
};

/// What became of a file.
#[derive(Debug)]
pub(crate) enum Identified {
    /// It belongs into a bundle.
    Release(Content),
    /// It does not, for the reason that is counted; and what it is, in more words.
    Other(&'static str, String),
    /// A debugger would run text that is in it.
    Script,
}

/// Why files are passed over. Stable texts: they are keys of the report.
pub(crate) mod reason {
    pub(crate) const NO_RELEASE_FILE: &str = "no release file";
    pub(crate) const OBJECT: &str = "object file of a linker";
    pub(crate) const CORE: &str = "core file";
    pub(crate) const BOOT_IMAGE: &str = "boot image of a Linux kernel, whose code is that of vmlinux";
    pub(crate) const NOT_LOADED: &str = "object file that no process loads";
    pub(crate) const EMPTY: &str = "neither code nor debug information nor symbols";
    pub(crate) const NO_ID: &str = "no id and nothing to make one from";
    pub(crate) const LINK: &str = "symbolic link";
    pub(crate) const SPECIAL: &str = "device, pipe or socket";
    pub(crate) const HARD_LINK: &str = "hard link to another member";
    pub(crate) const REPLACED: &str = "member that a later one of the same path replaces";
    pub(crate) const APPLE_DOUBLE: &str = "attributes of another file (AppleDouble)";
    pub(crate) const STATIC_LIBRARY: &str = "static library of several processors, whose members are no modules";
    pub(crate) const PASSED_OVER: &str = "archive or package that is not looked into";
    pub(crate) const UNREAD_PROGRAM: &str = "program or library of a format that is not read";
    pub(crate) const PORTABLE: &str = "WebAssembly, which is not read";
    pub(crate) const REFUSED: &str = "refused, with the reason";
    pub(crate) const SCRIPT: &str = "script of a debugger";
}

/// Whether a file may be a release file by its first bytes. Without this, nothing else of it is read.
pub(crate) fn is_candidate(head: &[u8]) -> bool {
    matches!(
        sniff(head),
        FileKind::Elf | FileKind::Pe | FileKind::Macho | FileKind::MachoFat | FileKind::Pdb | FileKind::PortablePdb
    )
}

/// Whether firmware starts this as a PE file, and what it holds is a Linux kernel in a form of its own, mostly compressed: by the
/// signs that its boot protocols give it. (Linux, Documentation/arch/x86/boot.rst, arch/arm64/booting.rst,
/// arch/riscv/boot-image-header.rst)
fn is_boot_image(bytes: &[u8]) -> bool {
    let has = |at: usize, sign: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(sign));
    has(0, b"MZ") && (has(0x1fe, b"\x55\xaa") && has(0x202, b"HdrS") || has(0x38, b"ARM\x64") || has(0x38, b"RSC\x05"))
}

/// Identifies a release file. An error means that it starts like one and is damaged.
pub(crate) fn identify(bytes: &[u8]) -> Result<Identified, ArtifactError> {
    if is_boot_image(bytes) {
        return Ok(Identified::Other(
            reason::BOOT_IMAGE,
            "boot image of a Linux kernel; its vmlinux has the symbols".to_owned(),
        ));
    }
    if is_universal_library(bytes) {
        return Ok(Identified::Other(reason::STATIC_LIBRARY, "a static library for several processors".to_owned()));
    }
    let parsed = match ReleaseFile::parse(bytes) {
        // `MZ` alone is a DOS program, and one magic of Mach-O is also Java's.
        Err(ArtifactError::UnknownFormat { found }) => return Ok(Identified::Other(reason::NO_RELEASE_FILE, found)),
        parsed => parsed?,
    };
    if parsed.has_inline_debugger_scripts() {
        return Ok(Identified::Script);
    }
    Ok(match parsed {
        ReleaseFile::Object(object) => match suitable(&object) {
            Ok(()) => Identified::Release(Content::Objects(vec![facts(&object, bytes)])),
            Err((reason, found)) => Identified::Other(reason, found),
        },
        ReleaseFile::Fat(slices) => {
            let judged: Vec<_> = slices.iter().map(suitable).collect();
            match judged.iter().find_map(|one| one.clone().err()) {
                // Slices of object files and archives are of no use, whatever else is in there.
                Some((reason, found)) if judged.iter().all(Result::is_err) => Identified::Other(reason, found),
                _ => Identified::Release(Content::Objects(slices.iter().map(|slice| facts(slice, bytes)).collect())),
            }
        }
        ReleaseFile::Pdb(pdb) => Identified::Release(Content::Pdb(PdbFacts {
            id: pdb.debug_id(),
            is_portable: false,
            stream_age: Some(pdb.stream_age()),
            arch: Some(pdb.arch()),
            tells: if pdb.is_stripped() { Tells::Symbols } else { Tells::Types },
        })),
        ReleaseFile::PortablePdb(pdb) => Identified::Release(Content::Pdb(PdbFacts {
            id: pdb.debug_id(),
            is_portable: true,
            stream_age: None,
            arch: None,
            tells: Tells::Types,
        })),
    })
}

/// Whether an object file belongs into a bundle: what a process loads, and its debug files. Kernel modules are
/// relocatable object files; a build-id, or the section that each of them has, tells them from the input of a linker.
fn suitable(object: &ObjectFile<'_>) -> Result<(), (&'static str, String)> {
    let other = |reason: &'static str| {
        Err((reason, format!("{} of the kind {:?}", object.format().code(), object.kind().code())))
    };
    match object.kind() {
        ObjectKind::Executable | ObjectKind::Shared | ObjectKind::DebugCompanion => {}
        ObjectKind::Relocatable if is_loaded(object) => {}
        // Joined by a linker (`ld -r`) units have lost what they counted from, and their names would be those of others.
        ObjectKind::Relocatable if object.has_code() && object.split_ids().len() > 1 => return other(reason::OBJECT),
        // Split DWARF has no other kind; with `-gsplit-dwarf=single` it stays in what the linker was given.
        _ if object.split_kind().is_some() => return Ok(()),
        // What a compiler leaves beside the code of link-time optimization is called `.dwo` too, and has nothing in it.
        ObjectKind::Relocatable => {
            let (reason, kind) = (reason::OBJECT, object.kind().code());
            return Err((
                reason,
                format!("{} of the kind {kind:?}, without units of split DWARF", object.format().code()),
            ));
        }
        ObjectKind::Core => return other(reason::CORE),
        ObjectKind::Other if object.is_debuginfo() => {}
        ObjectKind::Other => return other(reason::NOT_LOADED),
    }
    if !is_binary(object) && !object.is_debuginfo() && !object.has_debug_info() && !object.has_symtab() {
        return Err((reason::EMPTY, "neither code nor debug information nor symbols".to_owned()));
    }
    // A debug file without an id may still be the one that a binary names, with its CRC-32.
    if object.debug_id().is_none() && is_binary(object) {
        return Err((reason::NO_ID, "no id and nothing to make one from; link with --build-id".to_owned()));
    }
    Ok(())
}

/// Whether Linux would load it, or it is the debug file of such. What a kernel's build compiles the section from (`NAME.mod.o`) has the
/// section too, and no code.
fn is_kernel_module(object: &ObjectFile<'_>) -> bool {
    object.is_kernel_module() && !object.is_data_alone()
}

/// Whether a relocatable object file is one that is loaded as it is.
fn is_loaded(object: &ObjectFile<'_>) -> bool {
    matches!(object.id_kind(), IdKind::GnuBuildId | IdKind::LongBuildId) || is_kernel_module(object)
}

fn is_binary(object: &ObjectFile<'_>) -> bool {
    let is_input_of_linker = object.split_kind().is_some() && !is_loaded(object);
    object.is_executable()
        || object.kind() == ObjectKind::Relocatable
            && !is_input_of_linker
            && (object.has_code() || object.is_data_alone())
}

/// The units that a file asks for. Skeletons take their addresses from `.debug_addr`: without it there are none, and
/// nothing is decompressed to see that.
fn split_asked(object: &ObjectFile<'_>) -> Vec<SplitAsked> {
    if ![".debug_addr", ".zdebug_addr"].iter().any(|name| object.section(name).is_some()) {
        return Vec::new();
    }
    let own = object.split_ids();
    let units = object.split_units().into_iter().filter(|unit| !own.contains(&unit.id));
    let text = |bytes: &[u8]| escaped(bytes).into_owned();
    units.map(|unit| SplitAsked { id: unit.id, name: text(&unit.name), comp_dir: text(&unit.comp_dir) }).collect()
}

/// Sections of code that are kept of a file: a program has a handful, and objects of the kernel may have thousands.
const MAX_CODE_SECTIONS: usize = 32;

fn code_sections(object: &ObjectFile<'_>) -> Vec<(Vec<u8>, Range<u64>)> {
    let sections = object.code_sections().into_iter().take(MAX_CODE_SECTIONS);
    sections.map(|(name, svma)| (name.to_vec(), svma)).collect()
}

fn facts(object: &ObjectFile<'_>, bytes: &[u8]) -> ObjectFacts {
    let is_binary = is_binary(object);
    let id = object.debug_id().cloned();
    // A debug file has no code of its own, so a hash of code says nothing about it.
    let id = id.filter(|_| is_binary || object.id_kind() != IdKind::TextHash);
    let can_be_linked = !is_binary && id.is_none() && object.format() != Format::Macho;
    ObjectFacts {
        format: object.format(),
        arch: object.arch(),
        kind: object.kind(),
        id_kind: object.id_kind(),
        is_binary,
        is_debuginfo: object.is_debuginfo() || !is_binary && object.has_debug_info(),
        tells: match object.debug_info_kind() {
            DebugInfoKind::Full => Tells::Types,
            DebugInfoKind::LineTables => Tells::Lines,
            DebugInfoKind::Symbols => Tells::Symbols,
            DebugInfoKind::None if object.has_mini_debug_info() => Tells::FewSymbols,
            DebugInfoKind::None => Tells::Nothing,
        },
        relocation_problem: object.relocation_problem(),
        has_stabs: object.has_stabs(),
        is_packed_by_dwz: object.is_packed_by_dwz(),
        has_mini_debug_info: object.has_mini_debug_info(),
        code: code_sections(object),
        debug_link: object
            .debug_link()
            .map(|link| NamedCrc { name: escaped(link.file_name).into_owned(), crc32: link.crc32 }),
        alt_link: object.debug_alt_link().and_then(|link| {
            let id = DebugId::from_build_id(link.build_id).ok()?;
            Some(NamedId { path: escaped(link.path).into_owned(), id })
        }),
        pdb: object.pdb_reference().map(|pdb| PdbName {
            name: foreign_base_name(pdb.path),
            guid: pdb.guid,
            age: pdb.age,
        }),
        is_il_alone: object.is_il_alone(),
        has_embedded_pdb: object.has_embedded_portable_pdb(),
        code_id: object.code_id(),
        go_build_id: object.go_build_id().map(|id| escaped(id).into_owned()),
        object_map: object.object_map_count(),
        debug_bytes: object.debug_bytes(),
        crc32: can_be_linked.then(|| crc32fast::hash(bytes)),
        split: object
            .split_kind()
            // Otherwise it is a debug file that holds its own split units too.
            .filter(|_| id.is_none() && !is_binary)
            .map(|kind| SplitFacts { is_package: kind == SplitKind::Dwp, units: object.split_ids() }),
        split_asked: split_asked(object),
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_images_are_told_by_the_signs_of_their_protocols() {
        let with = |at: usize, sign: &[u8]| {
            let mut bytes = b"MZ".to_vec();
            bytes.resize(at, 0);
            bytes.extend(sign);
            bytes.resize(1024, 0);
            bytes
        };
        for (at, sign) in [(0x1fe, &b"\x55\xaa\xeb\x66HdrS"[..]), (0x38, b"ARM\x64"), (0x38, b"RSC\x05")] {
            assert!(is_boot_image(&with(at, sign)), "{sign:?}");
            assert!(!is_boot_image(&with(at + 1, sign)), "{sign:?}");
        }
    }
}
