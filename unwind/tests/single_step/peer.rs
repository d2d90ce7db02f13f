//! framehop on the same registers and bytes, for the figure beside ours. It says nothing of CFAs.

use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use symseal_module::Avma;
use symseal_unwind::{Memory, Registers};

use crate::elf::{Parts, Section};
use crate::shadow::Expected;

/// A section's stated address and bytes, leaked.
type Leaked = Option<(u64, &'static [u8])>;

/// What framehop reads of a file.
#[derive(Clone, Copy)]
pub(crate) struct Sections {
    image_base: u64,
    text: Leaked,
    eh_frame: Leaked,
    eh_frame_hdr: Leaked,
}

impl Sections {
    pub(crate) fn of(parts: &Parts<'_>) -> Self {
        let leaked = |section: Section<'_>| section.map(|(svma, bytes)| (svma, &*bytes.to_vec().leak()));
        Self {
            image_base: parts.image_base.0,
            text: leaked(parts.code.iter().max_by_key(|(_, bytes)| bytes.len()).copied()),
            eh_frame: leaked(parts.eh_frame),
            eh_frame_hdr: leaked(parts.eh_frame_hdr),
        }
    }
}

/// framehop with the modules of a process.
pub(crate) struct Peer {
    unwinder: UnwinderX86_64<&'static [u8]>,
    cache: CacheX86_64,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self { unwinder: UnwinderX86_64::new(), cache: CacheX86_64::new() }
    }

    pub(crate) fn add(&mut self, path: &str, avma: Range<u64>, sections: &Sections) {
        let svma = |section: Leaked| section.map(|(start, bytes)| start..start + bytes.len() as u64);
        let bytes = |section: Leaked| section.map(|(_, bytes)| bytes);
        let info = ExplicitModuleSectionInfo {
            base_svma: sections.image_base,
            text_svma: svma(sections.text),
            text: bytes(sections.text),
            eh_frame_svma: svma(sections.eh_frame),
            eh_frame: bytes(sections.eh_frame),
            eh_frame_hdr_svma: svma(sections.eh_frame_hdr),
            eh_frame_hdr: bytes(sections.eh_frame_hdr),
            ..Default::default()
        };
        self.unwinder.add_module(Module::new(path.to_owned(), avma.clone(), avma.start, info));
    }

    /// Whether it finds all callers and no others.
    pub(crate) fn finds(&mut self, registers: &Registers, memory: &impl Memory, expected: &[Expected]) -> bool {
        let mut read = |address: u64| memory.read_u64(Avma(address)).ok_or(());
        let mut address = FrameAddress::InstructionPointer(registers.pc);
        let mut registers = UnwindRegsX86_64::new(registers.pc, registers.sp, registers.fp);
        let mut callers = || {
            let caller = self.unwinder.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
            address = FrameAddress::from_return_address(caller.ok().flatten()?)?;
            Some(address.address())
        };
        expected.iter().all(|expected| callers() == Some(expected.pc)) && callers().is_none()
    }
}
