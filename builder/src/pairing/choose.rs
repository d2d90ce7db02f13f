//! Several files with one debug id: which is the binary, which its debug file, and when they contradict each other.
//!
//! * Of binaries with the same code, the one that tells a debugger least is what is shipped, and the binary; one that tells
//!   more is its debug file.
//! * Of debug files, the one that tells most is taken: types before lines before symbols. Of equals, one that dwz has not packed
//!   comes before one that it has, and a file without code before an unstripped binary.
//! * Of program databases, the one with the highest age of its PDB stream is taken: tools that add to one raise it.
//! * What is in a thin file and in a universal one is taken from the thin one.
//! * Everything else is a contradiction, and an error that names both.

use std::cmp::Reverse;

use symseal_bundle::FileRole;
use symseal_module::DebugId;

use super::{Module, Paired, Part, SameBuild};
use crate::error::BuildError;
use crate::report::{PairedBy, Superseded};

/// The files of one debug id.
#[derive(Debug, Default)]
pub(super) struct Group<'f> {
    pub(super) binaries: Vec<Part<'f>>,
    pub(super) debug_files: Vec<Part<'f>>,
}

pub(super) fn choose<'f>(
    id: &DebugId,
    group: Group<'f>,
    is_same: &SameBuild<'_>,
    superseded: &mut Vec<Superseded>,
) -> Result<Module<'f>, BuildError> {
    let Group { mut binaries, mut debug_files } = group;
    binaries.sort_by_key(|part| (part.tells(), part.file.objects().len(), part.file.digest()));
    let mut binaries = binaries.into_iter();
    let binary = binaries.next();
    for other in binaries {
        // `binary` is there, as there is another.
        let Some(binary) = binary else { break };
        let same_code = is_same(binary, other)?;
        if same_code && other.tells() > binary.tells() {
            debug_files.push(other);
        } else if same_code && is_in_universal(binary, other) {
            superseded.push(instead(other, binary, "the same slice in another file"));
        } else {
            return Err(conflict(id, FileRole::Executable, binary, other));
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
            part.file.digest(),
        )
    });
    let mut debug_files = debug_files.into_iter();
    let debug = debug_files.next();
    for other in debug_files {
        let Some(debug) = debug else { break };
        if debug.tells() > other.tells() {
            superseded.push(instead(other, debug, "debug information of the same id that tells more"));
        } else if is_packed(other) && !is_packed(debug) {
            superseded.push(instead(other, debug, "debug information of the same id that dwz has not packed"));
        } else if other.is_binary() && !debug.is_binary() {
            superseded.push(instead(other, debug, "a debug file that tells as much as the unstripped binary"));
        } else if is_earlier(other, debug) {
            superseded.push(instead(other, debug, "a later state of the same program database"));
        } else if is_in_universal(debug, other) && is_same(debug, other)? {
            superseded.push(instead(other, debug, "the same slice in another file"));
        } else {
            return Err(conflict(id, FileRole::Debuginfo, debug, other));
        }
    }
    let by = match id {
        DebugId::BuildId(_) => PairedBy::BuildId,
        DebugId::Pdb { .. } => PairedBy::GuidAge,
        DebugId::MachoUuid(_) => PairedBy::Uuid,
    };
    Ok(Module { binary, debug: debug.map(|part| Paired { part, by }), ..Module::default() })
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

fn instead(left_out: Part<'_>, taken: Part<'_>, rule: &'static str) -> Superseded {
    Superseded { place: left_out.file.place.clone(), by: taken.file.place.clone(), rule }
}

fn conflict(id: &DebugId, role: FileRole, one: Part<'_>, other: Part<'_>) -> BuildError {
    let mut places = [one.file.place.clone(), other.file.place.clone()];
    places.sort();
    let [first, second] = places;
    BuildError::Conflict { id: id.to_string(), role, first, second }
}
