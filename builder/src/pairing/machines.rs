//! Files of several machines with one debug id: one machine's files are the module.
//!
//! * The machine is that of the file that tells a debugger most, of several such that of the largest.
//! * A file of another machine that loads the code of one of them, byte for byte, is its boot image: Xen is started as a program of 32 bits
//!   that holds the hypervisor, under the hypervisor's own build-id.
//! * Any other one is a mismatch: one id was given to two programs.

use symseal_artifact::Arch;
use symseal_bundle::LayoutDir;
use symseal_module::DebugId;

use super::Part;
use super::choose::{Group, Told, instead};
use super::same_build::{code, slice};
use crate::error::BuildError;
use crate::report::{Mismatch, NamedBy, Side};

/// Takes files of other machines than the module's out of its group.
pub(super) fn keep_one(
    id: &DebugId,
    group: &mut Group<'_>,
    layout: Option<&LayoutDir>,
    told: &mut Told,
) -> Result<(), BuildError> {
    let all = || group.binaries.iter().chain(&group.debug_files);
    let Some(chosen) = all().filter(|part| arch(part).is_some()).max_by_key(|part| rank(part)).copied() else {
        return Ok(());
    };
    let is_other = |part: &Part<'_>| arch(part).is_some_and(|other| Some(other) != arch(&chosen));
    if !all().any(is_other) {
        return Ok(());
    }
    let mut others: Vec<Part<'_>> = group.binaries.extract_if(.., |part| is_other(part)).collect();
    others.extend(group.debug_files.extract_if(.., |part| is_other(part)));
    for other in others {
        if other.is_binary() && holds_code(other, group, layout)? {
            told.superseded.push(instead(other, chosen, "the program that this boot image of another machine holds"));
        } else {
            told.mismatches.push(of_another_machine(id, chosen, other));
        }
    }
    Ok(())
}

fn arch(part: &Part<'_>) -> Option<Arch> {
    part.object().map(|object| object.arch)
}

/// Which of two files says what the module's machine is.
fn rank<'f>(part: &Part<'f>) -> impl Ord + use<'f> {
    (part.tells(), part.file.measured.size, std::cmp::Reverse(part.file.digest()))
}

/// Whether the file loads the code of a binary of the group.
fn holds_code(part: Part<'_>, group: &Group<'_>, layout: Option<&LayoutDir>) -> Result<bool, BuildError> {
    let image = part.file.read(layout)?;
    let Some(image) = slice(part, &image)? else { return Ok(false) };
    for binary in &group.binaries {
        let bytes = binary.file.read(layout)?;
        if let Some(binary) = slice(*binary, &bytes)?
            && code(&binary).is_some_and(|(_, code)| image.loads(code))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn of_another_machine(id: &DebugId, chosen: Part<'_>, other: Part<'_>) -> Mismatch {
    let side = |part: Part<'_>| Side { place: part.file.place.clone(), debug_id: Some(id.clone()) };
    let machine = |part: Part<'_>| arch(&part).map_or("no machine".to_owned(), |arch| format!("the machine {arch}"));
    Mismatch {
        binary: side(chosen),
        debug_file: side(other),
        named_by: NamedBy::DebugId,
        expected: machine(chosen),
        found: format!("{}: it is another program of the same id, and left out", machine(other)),
    }
}
