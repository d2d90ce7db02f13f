//! A file that was uploaded by itself: an artifact of one layer, whose ids are read out of the file.
//!
//! It lies in a repository like everything else, so the folder keeps it over a restart, the collector leaves it alone while it
//! is listed, and deleting its manifest removes it. What it answers for follows from its bytes and its name alone; the
//! manifest claims nothing that is believed.

use std::io;

use symseal_artifact::{Arch, ArtifactError, BreakpadFile, DebugInfoKind, ObjectFile, ObjectKind, ReleaseFile};
use symseal_bundle::loose::LOOSE;
use symseal_bundle::{DebugInfo, Digest, loose, oci, title};
use symseal_module::DebugId;

use super::breakpad_ids;
use crate::blobs::{BlobDigest, BlobDirectory};
use crate::debug_files::{Candidate, FileKind, Key, NewBundle};
use crate::ids::BundleEntry;
use crate::repositories::Manifest;

/// The longest name of a file, in bytes: what file systems take.
const NAME_LIMIT: usize = 255;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedLoose {
    /// No manifest with one layer.
    #[error("a manifest of type {LOOSE}: expected one layer with a file's name as its title, {0}")]
    Form(String),
    /// A name that is none, or one that a debugger would run.
    #[error(
        "{name:?}: expected a file name without directories, of at most {NAME_LIMIT} bytes, that no debugger runs as a script"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Not a release file.
    #[error(
        "{name}: expected an ELF, PE or Mach-O file, a program database or a symbol file of Breakpad (unpack archives first, or publish a bundle of them): {problem}"
    )]
    Kind {
        /// The file.
        name: String,
        /// What was found.
        problem: String,
    },
    /// It answers for nothing.
    #[error("{name}: {problem}: nobody could ask for it")]
    NoId {
        /// The file.
        name: String,
        /// What it lacks.
        problem: &'static str,
    },
    /// A file carries text that a debugger would run.
    #[error(
        "{name} has a section .debug_gdb_scripts with a script in it, which a debugger would run: remove the section (objcopy --remove-section=.debug_gdb_scripts)"
    )]
    DebuggerScript {
        /// The file.
        name: String,
    },
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether a manifest is a loose file's.
pub(crate) fn is_loose(manifest: &Manifest) -> bool {
    manifest.is_loose()
}

/// The manifest of a file. Its digest follows from the file's and its name.
pub(crate) fn loose_manifest(name: &str, sha256: [u8; 32], size: u64) -> Result<Vec<u8>, RefusedLoose> {
    check_name(name)?;
    loose::manifest(name, Digest::from_bytes(sha256), size).map_err(|error| RefusedLoose::Form(error.to_string()))
}

/// A name is shown, asked for and written by those who pull: one plain component. What is kept begins like a program or a debug file, as in bundles
/// (docs/formats/bundle.md, "Names from inputs"), so that `arm-none-eabi-gdb.exe` is one that no debugger runs.
pub(crate) fn check_name(name: &str) -> Result<(), RefusedLoose> {
    let is_plain = !name.is_empty()
        && name.len() <= NAME_LIMIT
        && !matches!(name, "." | "..")
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control)
        && !title::is_debugger_script_whatever_it_holds(name);
    if is_plain { Ok(()) } else { Err(RefusedLoose::Name { name: name.to_owned() }) }
}

/// What a loose file answers for. Its blob must be here. Blocks.
pub(crate) fn check_loose(
    digest: &BlobDigest,
    manifest: &[u8],
    blobs: &BlobDirectory,
) -> Result<NewBundle, RefusedLoose> {
    let manifest = oci::Manifest::parse(manifest).map_err(|error| RefusedLoose::Form(error.to_string()))?;
    let [layer] = manifest.layers.as_slice() else {
        return Err(RefusedLoose::Form(format!("found {} layers", manifest.layers.len())));
    };
    let name = layer.title().unwrap_or_default().to_owned();
    check_name(&name)?;
    let blob = BlobDigest::from(layer.digest);
    let kind = |problem: String| RefusedLoose::Kind { name: name.clone(), problem };
    // An empty file cannot be mapped.
    if layer.size == 0 {
        return Err(kind("an empty file".to_owned()));
    }
    let bytes = blobs.map(&blob)?;
    let candidate = |answer: Answer| {
        let candidate = Candidate {
            kind: answer.kind,
            debug_info: answer.debug_info,
            lacks_sections: answer.lacks_sections,
            size: layer.size,
            digest: blob.clone(),
            // In front of the name of a debug file stands no module's.
            name: name.clone(),
            file: if answer.is_named { title::component(&name) } else { String::new() },
            bundle: digest.clone(),
        };
        (answer.key, candidate)
    };
    let files = answers(&bytes, &name)?.into_iter().map(candidate).collect();
    let entry = BundleEntry {
        digest: digest.to_string(),
        name,
        version: String::new(),
        symbol_index: [0; 32],
        modules_root: None,
        is_loose: true,
    };
    Ok(NewBundle { entry, digest: digest.clone(), files })
}

/// A key that a file answers for by itself, with what it is.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What it is asked for by.
    pub(crate) key: Key,
    /// What it answers.
    pub(crate) kind: FileKind,
    /// How much debug information it has.
    pub(crate) debug_info: DebugInfo,
    /// It has no section headers.
    pub(crate) lacks_sections: bool,
    /// It is asked for by its name too.
    pub(crate) is_named: bool,
}

/// What a file of this name answers for, by its bytes.
pub(crate) fn answers(bytes: &[u8], name: &str) -> Result<Vec<Answer>, RefusedLoose> {
    if BreakpadFile::is_one(bytes) {
        return answers_of_symbol_file(bytes, name);
    }
    let parsed = ReleaseFile::parse(bytes)
        .map_err(|error| RefusedLoose::Kind { name: name.to_owned(), problem: error.to_string() })?;
    if parsed.has_inline_debugger_scripts() {
        return Err(RefusedLoose::DebuggerScript { name: name.to_owned() });
    }
    let mut answers = Vec::new();
    for Offer { id, kinds, debug_info, lacks_sections, code_id, arch } in offers(&parsed, name)? {
        // Other ids are asked for by themselves.
        let is_named = matches!(id, Some(DebugId::Pdb { .. }));
        for kind in id.iter().flat_map(|_| &kinds).copied() {
            let answer = |id| Answer { key: Key::Id(id), kind, debug_info, lacks_sections, is_named };
            answers.extend(id.clone().map(answer));
        }
        // Symbol tables are made of it for those who know the module by Breakpad's id.
        if let Some(id) = id.as_ref().filter(|_| kinds.contains(&FileKind::Debuginfo)) {
            answers.extend(breakpad_ids(id, arch.code()).map(|(guid, age)| {
                let key = Key::Breakpad { guid, age };
                Answer { key, kind: FileKind::Debuginfo, debug_info, lacks_sections, is_named: false }
            }));
        }
        if let Some(code_id) = code_id {
            let key = Key::image(name, &code_id);
            answers.push(Answer { key, kind: FileKind::Executable, debug_info, lacks_sections, is_named: true });
        }
    }
    Ok(answers)
}

/// A symbol file is asked for by Breakpad's id, and by the code id of its binary.
fn answers_of_symbol_file(bytes: &[u8], name: &str) -> Result<Vec<Answer>, RefusedLoose> {
    let refused = |error: ArtifactError| RefusedLoose::Kind { name: name.to_owned(), problem: error.to_string() };
    let file = BreakpadFile::parse(bytes).map_err(refused)?;
    let id = file.debug_id().map_err(refused)?;
    let key = Key::Breakpad { guid: file.guid(), age: file.age() };
    let image = file.code_file().zip(file.code_id()).map(|(name, id)| Key::image(name, id));
    let keys = [Some(key), Some(Key::Id(id)), image].into_iter().flatten();
    let (kind, debug_info) = (FileKind::SymbolFile, DebugInfo::LineTables);
    let answer = |key| Answer { key, kind, debug_info, lacks_sections: false, is_named: false };
    Ok(keys.map(answer).collect())
}

/// What a module of the file is good for.
struct Offer {
    /// A PE file may have none.
    id: Option<DebugId>,
    kinds: Vec<FileKind>,
    debug_info: DebugInfo,
    lacks_sections: bool,
    code_id: Option<String>,
    arch: Arch,
}

fn offers(parsed: &ReleaseFile<'_>, name: &str) -> Result<Vec<Offer>, RefusedLoose> {
    let no_id = |problem| RefusedLoose::NoId { name: name.to_owned(), problem };
    let database = |id: DebugId, arch: Arch| {
        let (id, kinds) = (Some(id), vec![FileKind::Debuginfo]);
        vec![Offer { id, kinds, debug_info: DebugInfo::Full, lacks_sections: false, code_id: None, arch }]
    };
    let slices = match parsed {
        ReleaseFile::Object(object) => std::slice::from_ref(object),
        ReleaseFile::Fat(slices) => slices.as_slice(),
        ReleaseFile::Pdb(pdb) => return Ok(database(pdb.debug_id(), pdb.arch())),
        ReleaseFile::PortablePdb(pdb) => return Ok(database(pdb.debug_id(), Arch::Other(0))),
    };
    // The memory of a process is nobody's debug file.
    if slices.iter().any(|object| object.kind() == ObjectKind::Core) {
        return Err(no_id("a core file"));
    }
    let found: Vec<Offer> = slices.iter().filter_map(offer).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let has_id = slices.iter().any(|object| object.debug_id().is_some());
    Err(no_id(if has_id { "neither code nor debug information nor symbols" } else { "it has no debug id" }))
}

fn offer(object: &ObjectFile<'_>) -> Option<Offer> {
    let id = object.debug_id().cloned();
    let is_executable = object.is_executable();
    let is_debug = object.is_debuginfo()
        || object.kind() == ObjectKind::DebugCompanion
        // A debug file of a program that was built without debug information has its symbols.
        || (!is_executable && object.has_symtab());
    let debug_info = match object.debug_info_kind() {
        DebugInfoKind::Full => DebugInfo::Full,
        DebugInfoKind::LineTables => DebugInfo::LineTables,
        DebugInfoKind::Symbols => DebugInfo::Symbols,
        DebugInfoKind::None => DebugInfo::None,
    };
    let kinds: Vec<FileKind> = [(FileKind::Debuginfo, is_debug), (FileKind::Executable, is_executable)]
        .into_iter()
        .filter_map(|(kind, is)| is.then_some(kind))
        .collect();
    let code_id = object.code_id().filter(|_| is_executable);
    let can_be_asked_for = id.is_some() || code_id.is_some();
    let (arch, lacks_sections) = (object.arch(), object.lacks_section_headers());
    let offer = Offer { id, kinds, debug_info, lacks_sections, code_id, arch };
    (!offer.kinds.is_empty() && can_be_asked_for).then_some(offer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plain_component() {
        for name in ["app", "libapp.so.debug", "a b.pdb", "é", "arm-none-eabi-gdb.exe", "libapp-gdb.so"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(256);
        for name in
            ["", ".", "..", "a/b", "a\\b", "a\nb", "a\0", "app-gdb.py", "A-GDB.Scm", "a-gdb.gdb", ".gdbinit", &long]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_release_file_are_refused_by_name() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        for bytes in [&b""[..], b"text", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe"] {
            let digest = BlobDigest::of(bytes);
            blobs.write(bytes, &digest).unwrap();
            let manifest = loose_manifest("app", digest.bytes().try_into().unwrap(), bytes.len() as u64).unwrap();
            let refused = check_loose(&BlobDigest::of(&manifest), &manifest, &blobs).unwrap_err();
            assert!(matches!(refused, RefusedLoose::Kind { .. }), "{refused}");
        }
        assert!(matches!(check_loose(&BlobDigest::of(b"x"), b"{}", &blobs), Err(RefusedLoose::Form(_))));
    }
}
