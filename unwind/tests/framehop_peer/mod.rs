//! framehop, a peer: on the same registers and bytes, with what it reads of the same files.
#![allow(dead_code, reason = "each test uses its part")]

use std::ops::Range;
use std::sync::Arc;

use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64};
use framehop::x86_64::{Reg, UnwindRegsX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, ModuleSectionInfo, Unwinder};
use object::{Object, ObjectSection, ObjectSegment};

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

/// What it asks of a file of Windows or macOS.
pub(crate) struct OfFile<'f> {
    pub(crate) file: object::File<'f>,
    /// Where the file says that it begins.
    pub(crate) base: u64,
}

impl<'f> OfFile<'f> {
    fn section(&self, name: &[u8]) -> Option<(u64, &'f [u8])> {
        let section = self.file.section_by_name_bytes(name)?;
        Some((section.address(), section.data().ok()?))
    }

    fn segment(&self, name: &[u8]) -> Option<(u64, &'f [u8])> {
        let segment = self.file.segments().find(|segment| segment.name_bytes() == Ok(Some(name)))?;
        Some((segment.address(), segment.data().ok()?))
    }
}

fn range((start, bytes): (u64, &[u8])) -> Range<u64> {
    start..start + bytes.len() as u64
}

impl ModuleSectionInfo<Arc<[u8]>> for OfFile<'_> {
    fn base_svma(&self) -> u64 {
        self.base
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.section(name).map(range)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        Some(self.section(name)?.1.into())
    }

    fn segment_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.segment(name).map(range)
    }

    fn segment_data(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        Some(self.segment(name)?.1.into())
    }
}

/// All registers of x86_64 in DWARF's order.
pub(crate) fn x86_64(pc: u64, general: impl Fn(usize) -> u64) -> UnwindRegsX86_64 {
    use Reg::{R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
    let mut registers = UnwindRegsX86_64::new(pc, 0, 0);
    let all = [RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15];
    for (number, register) in all.into_iter().enumerate() {
        registers.set(register, general(number));
    }
    registers
}

/// The registers of aarch64 that it knows; what signs return addresses is above the bits of `addresses`.
pub(crate) fn aarch64(addresses: u64, general: impl Fn(usize) -> u64) -> UnwindRegsAarch64 {
    let mask = PtrAuthMask::from_max_known_address(addresses);
    UnwindRegsAarch64::new_with_ptr_auth_mask(mask, general(30), general(31), general(29))
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
        self.add_image(name, avma, info);
    }

    /// The same with what is said of the file in another way.
    pub(crate) fn add_image(&mut self, name: &str, avma: Range<u64>, info: impl ModuleSectionInfo<Arc<[u8]>>) {
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
