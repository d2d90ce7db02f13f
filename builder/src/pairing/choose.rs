//! Several files with one debug id: which is the binary, which its debug file, and when they contradict each other.
//!
//! * A boot image for another machine that holds the program is left out first ([`boot_images`]).
//! * Of binaries with the same code, the one that tells a debugger least is what is shipped, and the binary; one that tells
//!   more is its debug file.
//! * Of debug files, the one that tells most is taken: types before lines before symbols. Of equals, one that dwz has not packed
//!   comes before one that it has, and a file without code before an unstripped binary.
//! * Of program databases, the one with the highest age of its PDB stream is taken: tools that add to one raise it.
//! * What is in a thin file and in a universal one is taken from the thin one.
//! * Of files that come out of one build and tell as much, the larger one is taken: a signature, a link or a note was added to it.
//! * None of these rules holds for files that have different functions at one address, or one function at different addresses: of two
//!   debug files that is a contradiction, and the one that contradicts the binary's own symbols is a mismatch.
//! * A debug file whose sections of code lie elsewhere than the binary's is of another build, whatever its id says, and a mismatch.
//! * Binaries without an id of a linker that have the same code and other data are different programs: one is taken, and each other is a
//!   mismatch.
//! * Everything else is a contradiction, and an error that names both; the module is told with the file that comes first.

use std::cmp::Reverse;

use symseal_artifact::IdKind;
use symseal_bundle::{FileRole, LayoutDir};
use symseal_module::DebugId;

use super::contradiction::{Contradiction, contradiction};
use super::difference::difference;
use super::same_build::is_same_build;
use super::{Module, Paired, Part, boot_images};
use crate::error::BuildError;
use crate::report::{Conflict, Mismatch, NamedBy, PairedBy, Side, Superseded};

/// The files of one debug id.
#[derive(Debug, Default)]
pub(super) struct Group<'f> {
    pub(super) binaries: Vec<Part<'f>>,
    pub(super) debug_files: Vec<Part<'f>>,
}

/// What is said of files beside those that make up the modules.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) superseded: Vec<Superseded>,
    pub(super) mismatches: Vec<Mismatch>,
    pub(super) conflicts: Vec<Conflict>,
}

pub(super) fn choose<'f>(
    id: &DebugId,
    mut group: Group<'f>,
    layout: Option<&LayoutDir>,
    told: &mut Told,
) -> Result<Module<'f>, BuildError> {
    boot_images::without_boot_images(&mut group, layout, told)?;
    let Told { superseded, mismatches, conflicts } = told;
    let Group { mut binaries, mut debug_files } = group;
    let size = |part: &Part<'_>| Reverse(part.file.measured.size);
    binaries.sort_by_key(|part| (part.tells(), part.file.objects().len(), size(part), part.file.digest()));
    let mut binaries = binaries.into_iter();
    let binary = binaries.next();
    for other in binaries {
        // `binary` is there, as there is another.
        let Some(binary) = binary else { break };
        let same_code = is_same_build(binary, other, layout)?;
        if same_code && other.tells() > binary.tells() {
            debug_files.push(other);
        } else if same_code && is_in_universal(binary, other) {
            superseded.push(instead(other, binary, "the same slice in another file"));
        } else if same_code {
            let is_larger = other.file.measured.size < binary.file.measured.size;
            let rule = match is_larger {
                true => "the same code in a larger file, with more in it or packed otherwise",
                false => "the same code in a file of the same size, which differs elsewhere",
            };
            superseded.push(instead(other, binary, rule));
        } else if is_hash_of_code(binary) && is_hash_of_code(other) {
            mismatches.push(twin(id, binary, other));
        } else {
            let found = difference(binary, other, layout)?;
            conflicts.push(conflict(id, FileRole::Executable, binary, other, found));
        }
    }
    debug_files.sort_by_key(|part| {
        let state = Reverse(part.pdb().and_then(|pdb| pdb.stream_age));
        (
            Reverse(part.tells()),
            is_packed(*part),
            part.is_binary(),
            state,
            part.file.objects().len(),
            size(part),
            part.file.digest(),
        )
    });
    if let Some(binary) = binary {
        let mut others = Vec::new();
        // What stands alone is not read twice for what only says which of several is the right one.
        let is_alone = debug_files.len() < 2;
        for part in debug_files {
            let mismatch = match of_another_build(id, binary, part) {
                None if !is_alone => of_other_functions(id, binary, part, layout)?,
                known => known,
            };
            match mismatch {
                Some(mismatch) => mismatches.push(mismatch),
                None => others.push(part),
            }
        }
        debug_files = others;
    }
    let mut debug_files = debug_files.into_iter();
    let debug = debug_files.next();
    for other in debug_files {
        let Some(debug) = debug else { break };
        if let Some(rule) = why_instead(debug, other) {
            // It says what it says of other code, whatever it says more.
            match contradiction(debug, other, layout)? {
                Some(found) => conflicts.push(conflict(id, FileRole::Debuginfo, debug, other, found)),
                None => superseded.push(instead(other, debug, rule)),
            }
        } else if is_same_build(debug, other, layout)? {
            let rule = match is_in_universal(debug, other) {
                true => "the same slice in another file",
                false => "the same debug information in a larger file, with more in it or packed otherwise",
            };
            superseded.push(instead(other, debug, rule));
        } else {
            let found = difference(debug, other, layout)?;
            conflicts.push(conflict(id, FileRole::Debuginfo, debug, other, found));
        }
    }
    let by = match id {
        _ if binary.or(debug).is_some_and(is_hash_of_code) => PairedBy::TextHash,
        DebugId::BuildId(_) => PairedBy::BuildId,
        DebugId::Pdb { .. } => PairedBy::GuidAge,
        DebugId::MachoUuid(_) => PairedBy::Uuid,
    };
    Ok(Module { binary, debug: debug.map(|part| Paired { part, by }), ..Module::default() })
}

/// By which rule the one debug file comes before the other, as long as they are of one build.
fn why_instead(debug: Part<'_>, other: Part<'_>) -> Option<&'static str> {
    if debug.tells() > other.tells() {
        Some("debug information of the same id that tells more")
    } else if is_packed(other) && !is_packed(debug) {
        Some("debug information of the same id that dwz has not packed")
    } else if other.is_binary() && !debug.is_binary() {
        Some("a debug file that tells as much as the unstripped binary")
    } else if is_earlier(other, debug) {
        Some("a later state of the same program database")
    } else {
        None
    }
}

/// A debug file that has other functions where the binary's own symbols have some.
fn of_other_functions(
    id: &DebugId,
    binary: Part<'_>,
    debug: Part<'_>,
    layout: Option<&LayoutDir>,
) -> Result<Option<Mismatch>, BuildError> {
    let side = |part: Part<'_>| Side { place: part.file.place.clone(), debug_id: Some(id.clone()) };
    Ok(contradiction(binary, debug, layout)?.map(|Contradiction { expected, found }| Mismatch {
        binary: side(binary),
        debug_file: side(debug),
        named_by: NamedBy::DebugId,
        expected,
        found,
    }))
}

/// What contradicts that a debug file is the binary's: another processor, or a section of code that both have, at other addresses or of another
/// size. (eu-unstrip looks at the same.)
fn of_another_build(id: &DebugId, binary: Part<'_>, debug: Part<'_>) -> Option<Mismatch> {
    let (of_binary, of_debug) = (binary.object()?, debug.object()?);
    let side = |part: Part<'_>| Side { place: part.file.place.clone(), debug_id: Some(id.clone()) };
    let mismatch = |expected, found| Mismatch {
        binary: side(binary),
        debug_file: side(debug),
        named_by: NamedBy::DebugId,
        expected,
        found,
    };
    if of_binary.arch != of_debug.arch {
        let [expected, found] = [of_binary, of_debug].map(|object| format!("a file for {}", object.arch));
        return Some(mismatch(expected, found));
    }
    let differs = of_binary.code.iter().find_map(|(name, svma)| {
        // Of sections with one name nobody knows which is which.
        let mut same = of_debug.code.iter().filter(|(other, _)| other == name);
        let (_, found) = same.next().filter(|_| same.next().is_none())?;
        let alone = of_binary.code.iter().filter(|(other, _)| other == name).count() == 1;
        (alone && found != svma).then_some((name, svma, found))
    });
    let (name, expected, found) = differs?;
    let section = |svma: &std::ops::Range<u64>| {
        let name = symseal_artifact::escaped(name);
        format!("section {name} at {:#x}, {:#x} bytes", svma.start, svma.end.saturating_sub(svma.start))
    };
    Some(mismatch(section(expected), section(found)))
}

/// Without an id of a linker.
fn is_hash_of_code(part: Part<'_>) -> bool {
    part.object().is_some_and(|object| object.id_kind == IdKind::TextHash)
}

/// Two programs of the same code, of which nothing that a process shows says which is which: names of one may be untrue of the
/// other, and the bundle has place for one.
fn twin(id: &DebugId, binary: Part<'_>, other: Part<'_>) -> Mismatch {
    let side = |part: Part<'_>| Side { place: part.file.place.clone(), debug_id: Some(id.clone()) };
    Mismatch {
        binary: side(binary),
        debug_file: side(other),
        named_by: NamedBy::TextHash,
        expected: "the same data, as their id is a hash of the same code (link with --build-id or /DEBUG)".to_owned(),
        found: "other data: it is another program, and left out".to_owned(),
    }
}

/// Whether one of the two is a slice of a universal file, so that different files may hold the same module.
fn is_in_universal(one: Part<'_>, other: Part<'_>) -> bool {
    one.tells() == other.tells() && (one.file.objects().len() > 1 || other.file.objects().len() > 1)
}

/// Whether dwz has packed it: the file before says as much, and needs no other one.
fn is_packed(part: Part<'_>) -> bool {
    part.object().is_some_and(|object| object.is_packed_by_dwz)
}

/// Whether a program database is an earlier state of another: tools that add streams to one raise the age of its PDB stream.
fn is_earlier(one: Part<'_>, other: Part<'_>) -> bool {
    let age = |part: Part<'_>| part.pdb().and_then(|pdb| pdb.stream_age);
    age(one).zip(age(other)).is_some_and(|(one, other)| one < other)
}

pub(super) fn instead(left_out: Part<'_>, taken: Part<'_>, rule: &'static str) -> Superseded {
    let id = left_out.object().map_or_else(|| left_out.pdb().map(|pdb| pdb.id.clone()), |object| object.id.clone());
    Superseded { place: left_out.file.place.clone(), debug_id: id, by: taken.file.place.clone(), rule }
}

fn conflict(id: &DebugId, role: FileRole, one: Part<'_>, other: Part<'_>, found: Contradiction) -> Conflict {
    found.conflict(id.to_string(), role, one, other)
}
