//! The section of function descriptors, `.opd`.

use super::headers::{Elf, Section};
use super::{gabi, loaded, relocate};
use crate::ObjectKind;
use crate::descriptors::Descriptors;
use std::borrow::Cow;

/// Whether the symbols of a section are names of descriptors. No flag of the header tells: linkers write version 2 of the ABI into files
/// that are made of objects of version 1, and a section of this name is in no other.
pub(super) fn is_of_descriptors(elf: &Elf<'_>, section: &Section<'_>) -> bool {
    elf.machine == gabi::EM_PPC64 && elf.is_64 && section.name == b".opd" && !section.is_executable()
}

/// The file's descriptors, with the addresses that a linker or the loader would write into them.
pub(super) fn descriptors<'d>(elf: &Elf<'d>) -> Option<Descriptors<'d>> {
    let mut sections = elf.sections.iter().enumerate();
    let (number, section) =
        sections.find(|(_, section)| is_of_descriptors(elf, section)).filter(|(_, section)| section.is_stored())?;
    let mut bytes = Cow::Borrowed(section.bytes);
    if relocate::concerns(elf, number) {
        relocate::apply(elf, number, bytes.to_mut());
    } else if elf.kind != ObjectKind::Relocatable {
        let range = section.range();
        for (svma, value) in loaded::relocated_words(elf) {
            let at = svma.checked_sub(range.start).and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|_| range.contains(&svma)) else { continue };
            let Some(word) = bytes.to_mut().get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<8>()) else {
                continue;
            };
            *word = if elf.is_little_endian { value.to_le_bytes() } else { value.to_be_bytes() };
        }
    }
    Some(Descriptors { svma: section.addr, bytes, is_little_endian: elf.is_little_endian })
}
