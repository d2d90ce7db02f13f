//! Boot images for another machine with the debug id of the program that they hold.
//!
//! Xen is started as a program of 32 bits that holds the hypervisor, under the hypervisor's own build-id. The module is that of the machine whose file tells a
//! debugger most, of several such of the largest; an ELF binary of the same machine with words of 32 bits that loads its code, byte for byte, is left out for it. Any other file of
//! another machine stays: one id was given to two programs, and they contradict each other.

use symseal_artifact::{Arch, Format};
use symseal_bundle::LayoutDir;

use super::Part;
use super::choose::{Group, Told, instead};
use super::same_build::{code, slice};
use crate::error::BuildError;

/// Takes boot images of the module out of its group.
pub(super) fn without_boot_images(
    group: &mut Group<'_>,
    layout: Option<&LayoutDir>,
    told: &mut Told,
) -> Result<(), BuildError> {
    let all = || group.binaries.iter().chain(&group.debug_files);
    let Some(chosen) = all().filter(|part| arch(part).is_some()).max_by_key(|part| rank(part)).copied() else {
        return Ok(());
    };
    let is_other = |part: &Part<'_>| is_started_as(arch(part), arch(&chosen)) && is_elf(part);
    if !group.binaries.iter().any(is_other) {
        return Ok(());
    }
    let (others, own): (Vec<Part<'_>>, Vec<Part<'_>>) = group.binaries.drain(..).partition(is_other);
    group.binaries = own;
    let mut kept = Vec::new();
    for other in others {
        match holds_code(other, group, layout)? {
            true => told.superseded.push(instead(
                other,
                chosen,
                "the program that this boot image of another machine holds",
            )),
            false => kept.push(other),
        }
    }
    group.binaries.extend(kept);
    Ok(())
}

/// Whether programs of the second processor are started as ones of the first, which is the same one with words of 32 bits.
fn is_started_as(image: Option<Arch>, program: Option<Arch>) -> bool {
    matches!((image, program), (Some(Arch::X86), Some(Arch::X86_64)) | (Some(Arch::Arm), Some(Arch::Aarch64)))
}

fn is_elf(part: &Part<'_>) -> bool {
    part.object().is_some_and(|object| object.format == Format::Elf)
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
