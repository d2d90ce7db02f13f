//! Debug sections that are not read, because what a linker would write into them is not known.

use super::rules;
use crate::elf::gabi;
use crate::elf::headers::{Elf, Section};

/// Why the debug information of a relocatable object is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationProblem {
    /// The rules of its processor's relocations are not known.
    Processor,
    /// Its relocations are in a compact form (`SHT_CREL`).
    Compact,
}

impl RelocationProblem {
    /// The problem in words, as [`StreamStatistics::skipped`](crate::StreamStatistics::skipped) has it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Processor => "relocatable object of a processor whose relocations are not read",
            Self::Compact => "relocatable object with compact relocations (CREL), which are not read",
        }
    }
}

/// Why the file's debug sections cannot be relocated, if so.
pub(in crate::elf) fn problem(elf: &Elf<'_>) -> Option<RelocationProblem> {
    if elf.kind != crate::ObjectKind::Relocatable {
        return None;
    }
    let names_debug = |section: &Section<'_>| {
        elf.sections.get(section.info as usize).is_some_and(|target| target.name.starts_with(b".debug_"))
    };
    let has = |kinds: &[u32]| elf.sections.iter().any(|section| kinds.contains(&section.kind) && names_debug(section));
    if !rules::knows(elf.machine) && has(&[gabi::SHT_REL, gabi::SHT_RELA, gabi::SHT_CREL]) {
        Some(RelocationProblem::Processor)
    } else if has(&[gabi::SHT_CREL]) {
        Some(RelocationProblem::Compact)
    } else {
        None
    }
}
