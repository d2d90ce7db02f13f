//! What an unwind table is compiled from.

use crate::Arch;
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::Svma;

/// A section's bytes, decompressed, and where they lie.
#[derive(Clone, PartialEq, Eq)]
pub struct SectionSlice<'d> {
    /// Stated address of the first byte; 0 for a section that is not loaded.
    pub svma: u64,
    /// The bytes.
    pub bytes: Cow<'d, [u8]>,
}

impl std::fmt::Debug for SectionSlice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SectionSlice")
            .field("svma", &format_args!("{:#x}", self.svma))
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// A procedure linkage table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PltSection {
    /// Stated addresses.
    pub range: Range<u64>,
    /// Bytes of an entry: the section header's figure, else what the processor's linkers use.
    pub entry_size: u64,
    /// `.plt`, `.plt.sec`, `.plt.got`, `.iplt`; `.MIPS.stubs`; `__stubs`, `__auth_stubs`.
    pub name: String,
}

/// The sections that say how to unwind a module. All addresses are stated ones (svma).
#[derive(Clone, Debug)]
pub struct UnwindInputs<'d> {
    /// The processor.
    pub arch: Arch,
    /// What relative addresses are counted from.
    pub image_base: Svma,
    /// Executable ranges, sorted, not overlapping.
    pub text: Vec<Range<u64>>,
    /// `.eh_frame`.
    pub eh_frame: Option<SectionSlice<'d>>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<SectionSlice<'d>>,
    /// `.debug_frame`.
    pub debug_frame: Option<SectionSlice<'d>>,
    /// `.pdr`, the procedure descriptors of 32-bit MIPS.
    pub pdr: Option<SectionSlice<'d>>,
    /// The exception directory of a PE file (`.pdata`).
    pub pdata: Option<SectionSlice<'d>>,
    /// Code of another processor than `arch` in a PE file that holds code of two (ARM64EC, ARM64X): stated addresses.
    pub foreign: Vec<Range<u64>>,
    /// Whether functions of a PE file keep the registers of the System V ABI: one that .NET's compilers made for another system than Windows.
    pub is_system_v: bool,
    /// `.orc_unwind_ip` and `.orc_unwind` of a Linux kernel.
    pub orc: Option<(SectionSlice<'d>, SectionSlice<'d>)>,
    /// `__unwind_info` of a Mach-O file.
    pub unwind_info: Option<SectionSlice<'d>>,
    /// The index table of 32-bit ARM (`.ARM.exidx`).
    pub exidx: Option<SectionSlice<'d>>,
    /// The table of functions of a Go program (`.gopclntab`).
    pub pclntab: Option<SectionSlice<'d>>,
    /// Whether there is a section `.sframe`.
    pub has_sframe: bool,
    /// What is loaded into a process, as far as the file has bytes of it: stated addresses and bytes. The exception directory and the index table lead there, and code
    /// is among it.
    pub loaded: Vec<(u64, &'d [u8])>,
    /// Where functions begin, sorted: of 32-bit MIPS, 32-bit ARM (with bit 0 set where Thumb, microMIPS or MIPS16 code is) and
    /// 64-bit RISC-V by the symbol tables, because much code has no other description; of Mach-O by its
    /// list of function starts, because linkers join the descriptions of several.
    pub functions: Vec<u64>,
    /// Procedure linkage tables, sorted by address.
    pub plt: Vec<PltSection>,
    /// Address of `.text`, the base of `DW_EH_PE_textrel`.
    pub text_base: Option<u64>,
    /// Address of `.got`, the base of `DW_EH_PE_datarel` in `.eh_frame` (the header's own address in its header).
    pub got_base: Option<u64>,
    /// Address of `.data`.
    pub data_base: Option<u64>,
}

impl<'d> UnwindInputs<'d> {
    /// What the file has of the executable ranges, sorted, not overlapping: stated addresses and bytes.
    pub fn code(&self) -> Vec<(u64, &'d [u8])> {
        let parts = self.loaded.iter().flat_map(|(start, bytes)| {
            let end = start.saturating_add(bytes.len() as u64);
            // Most sections are executable as a whole; of assemblies the functions are.
            let first = self.text.partition_point(|text| text.end <= *start);
            let text = self.text.iter().skip(first).take_while(move |text| text.start < end);
            text.filter_map(move |text| {
                let (from, to) = (text.start.max(*start), text.end.min(end));
                let at = |address: u64| usize::try_from(address.checked_sub(*start)?).ok();
                Some((from, bytes.get(at(from)?..at(to)?)?)).filter(|(_, bytes)| !bytes.is_empty())
            })
        });
        let mut parts: Vec<(u64, &[u8])> = parts.collect();
        // Files may say that sections lie over each other: the first counts.
        parts.sort_by_key(|(start, bytes)| (*start, std::cmp::Reverse(bytes.len())));
        let mut end = 0;
        parts.retain(|(start, bytes)| {
            let is_free = *start >= end;
            if is_free {
                end = start.saturating_add(bytes.len() as u64);
            }
            is_free
        });
        parts
    }

    /// Of a file without anything to unwind by.
    pub(crate) fn none(arch: Arch, image_base: Svma) -> Self {
        Self {
            arch,
            image_base,
            text: Vec::new(),
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            pdr: None,
            pdata: None,
            foreign: Vec::new(),
            is_system_v: false,
            orc: None,
            unwind_info: None,
            exidx: None,
            pclntab: None,
            has_sframe: false,
            loaded: Vec::new(),
            functions: Vec::new(),
            plt: Vec::new(),
            text_base: None,
            got_base: None,
            data_base: None,
        }
    }
}
