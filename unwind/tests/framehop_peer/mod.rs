//! framehop, a peer: on the same registers and bytes, with what it reads of the same files.

use std::ops::Range;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};

use crate::elf::{Parts, Section};

/// A section's stated address and bytes.
type Owned = Option<(u64, Arc<[u8]>)>;

/// What it reads of a file.
#[derive(Clone)]
pub(crate) struct Sections {
    image_base: u64,
    text: Owned,
    eh_frame: Owned,
    eh_frame_hdr: Owned,
}

impl Sections {
    pub(crate) fn of(parts: &Parts<'_>) -> Self {
        let owned = |section: Section<'_>| section.map(|(svma, bytes)| (svma, bytes.into()));
        Self {
            image_base: parts.image_base.0,
            text: owned(parts.code.iter().max_by_key(|(_, bytes)| bytes.len()).copied()),
            eh_frame: owned(parts.eh_frame),
            eh_frame_hdr: owned(parts.eh_frame_hdr),
        }
    }
}

/// Its unwinder of a processor, with the modules of a process.
#[derive(Default)]
pub(crate) struct Framehop<U: Unwinder> {
    unwinder: U,
    cache: U::Cache,
}

impl<U: Unwinder<Module = Module<Arc<[u8]>>>> Framehop<U> {
    /// A file that is mapped at `avma`.
    pub(crate) fn add(&mut self, name: &str, avma: Range<u64>, sections: &Sections) {
        let svma = |section: &Owned| section.as_ref().map(|(start, bytes)| *start..start + bytes.len() as u64);
        let bytes = |section: &Owned| section.as_ref().map(|(_, bytes)| Arc::clone(bytes));
        let info = ExplicitModuleSectionInfo {
            base_svma: sections.image_base,
            text_svma: svma(&sections.text),
            text: bytes(&sections.text),
            eh_frame_svma: svma(&sections.eh_frame),
            eh_frame: bytes(&sections.eh_frame),
            eh_frame_hdr_svma: svma(&sections.eh_frame_hdr),
            eh_frame_hdr: bytes(&sections.eh_frame_hdr),
            ..Default::default()
        };
        self.unwinder.add_module(Module::new(name.to_owned(), avma.clone(), avma.start, info));
    }

    /// The return addresses that it finds from `pc` on, at most `most`.
    pub(crate) fn callers(
        &mut self,
        pc: u64,
        mut registers: U::UnwindRegs,
        read: impl Fn(u64) -> Option<u64>,
        most: usize,
    ) -> Vec<u64> {
        let mut read = |address| read(address).ok_or(());
        let mut address = FrameAddress::InstructionPointer(pc);
        let mut found = Vec::new();
        while found.len() < most {
            let caller = self.unwinder.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
            let Some(caller) = caller.ok().flatten().and_then(FrameAddress::from_return_address) else { break };
            found.push(caller.address());
            address = caller;
        }
        found
    }
}
