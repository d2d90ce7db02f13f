//! Frame data: how the frames of functions of 32-bit x86 are laid out, which nothing in the code itself tells.
//!
//! Two streams have it. The newer one has records of 32 bytes, each with a program in postfix notation among the PDB's texts; the older one, for code that was
//! compiled without a frame pointer, has records of 16 bytes (`FPO_DATA`). (Microsoft, `winnt.h` and `cvinfo.h`; LLVM, "The PDB DBI Stream")

use super::addresses::Addresses;
use super::files::Files;
use super::header::{DbiHeader, u16_at, u32_at};
use super::identity::{DBI_STREAM, PdbFile};
use crate::ArtifactError;
use crate::budget::Budget;
use crate::work::Work;
use pdb2::StreamIndex;
use std::collections::HashMap;
use symseal_symx::{StrId, Strings};

/// Places in the DBI stream's optional debug header.
const OLD_FPO: usize = 0;
const NEW_FPO: usize = 9;

/// Bytes of their records.
const OLD_RECORD: usize = 16;
const NEW_RECORD: usize = 32;

/// The longest program that is taken, in bytes. Those of Microsoft's compilers have less than 200.
const PROGRAM: usize = 1024;

/// Frames by the byte of the PDB, one for so many: a record has 16 bytes at least, and may lie in several parts of code that was moved.
const BYTES_OF_FRAME: usize = 8;

/// What the programs of all frames together may come to when each is written out, by the byte of the PDB. A program of 200 bytes in a record of 32
/// would be six times as long if a PDB were nothing but frame data.
const WRITTEN_OUT: u64 = 8;

/// Frames and bytes that a PDB of any size may have.
const LEAST: usize = 4096;

/// The frames that a PDB describes, and the programs that they name: many frames have the same one.
#[derive(Debug, Clone, Default)]
pub struct FrameTable {
    frames: Vec<FrameData>,
    programs: Strings,
}

/// The frame of a stretch of code. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameData {
    /// First address, from the image base.
    pub rva: u32,
    /// Code that it holds for.
    pub code_size: u32,
    /// Code at its beginning that builds the frame.
    pub prolog_size: u32,
    /// Arguments on the stack.
    pub params_size: u32,
    /// Saved registers.
    pub saved_size: u32,
    /// Local variables.
    pub locals_size: u32,
    /// The most that is on the stack, where it is known.
    pub max_stack_size: u32,
    /// How the caller's registers are found.
    pub rule: FrameRule,
}

/// How the caller's registers are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameRule {
    /// By the sizes, for this kind of frame.
    Sizes {
        /// What kind of frame it is.
        kind: FrameKind,
        /// The function uses `ebp` for something else.
        uses_base_pointer: bool,
    },
    /// By a program in postfix notation: [`FrameTable::program`] has its text.
    Program(ProgramId),
}

/// The kinds of frames that records without a program tell apart. (`winnt.h`, `FRAME_FPO` and the following)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameKind {
    /// Without a frame pointer.
    Fpo,
    /// Of a trap of the kernel.
    Trap,
    /// Of a task state segment.
    Tss,
    /// With a frame pointer: `ebp` leads to the caller, whatever the sizes say.
    Standard,
}

/// The number of a program in its [`FrameTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(StrId);

impl FrameTable {
    /// The frames, by address.
    pub fn frames(&self) -> &[FrameData] {
        &self.frames
    }

    /// The text of a program of one of the frames: one line.
    pub fn program(&self, id: ProgramId) -> &str {
        self.programs.get(id.0)
    }
}

impl PdbFile<'_> {
    /// The frames that the PDB describes, by address; of code that was moved after linking where it is now. Records that are damaged are left out,
    /// and so is what would make the table larger than a PDB of that size can have: the table is no larger than a few times the file, and the texts
    /// of its programs, written out once for each frame, no longer than eight times.
    ///
    /// # Errors
    /// [`ArtifactError`] where the PDB cannot be opened.
    pub fn frame_data(&self) -> Result<FrameTable, ArtifactError> {
        let mut pdb = self.open()?;
        let mut work = Work::new();
        let addresses = Addresses::read(&mut pdb, &mut work);
        let mut extra = |place: usize| {
            let dbi = pdb.raw_stream(DBI_STREAM).ok()??;
            let number = DbiHeader::parse(&dbi)?.extra_stream(&dbi, place)?;
            pdb.raw_stream(StreamIndex(number)).ok()?
        };
        let (old, new) = (extra(OLD_FPO), extra(NEW_FPO));
        let mut programs = Programs::new(Files::read(&mut pdb));
        // A relocation of four bytes may come first.
        let new = new.as_deref().map(|stream| stream.get(stream.len() % NEW_RECORD..).unwrap_or_default());
        let new = new.unwrap_or_default().chunks_exact(NEW_RECORD);
        let new = new.filter_map(|record| new_frame(record, programs.find(u32_at(record, 20)?)?));
        let old = old.as_deref().unwrap_or_default().chunks_exact(OLD_RECORD).filter_map(old_frame);
        let records: Vec<FrameData> = new.chain(old).collect();
        let mut most = usize::try_from(self.bytes()).unwrap_or(usize::MAX) / BYTES_OF_FRAME;
        most = most.max(LEAST);
        let mut written_out = self.bytes().saturating_mul(WRITTEN_OUT).max(LEAST as u64);
        let mut budget = Budget::for_bytes(self.bytes());
        let mut frames = Vec::new();
        for record in records {
            let range = record.rva..record.rva.saturating_add(record.code_size);
            if budget.charge(addresses.records_in(&range).saturating_add(1)).is_err() {
                break;
            }
            let parts = placed(record, &addresses);
            let bytes = programs.length(record.rule).saturating_mul(parts.len() as u64);
            let left = (most.checked_sub(parts.len()), written_out.checked_sub(bytes));
            let (Some(frames_left), Some(bytes_left)) = left else { break };
            (most, written_out) = (frames_left, bytes_left);
            frames.extend(parts);
        }
        // By the programs' numbers: many long texts that are alike would be compared for ever.
        frames.sort_unstable();
        frames.dedup();
        Ok(FrameTable { frames, programs: programs.known })
    }
}

/// The programs that records name by their place among the PDB's texts.
struct Programs {
    texts: Files,
    by_place: HashMap<u32, Option<ProgramId>>,
    known: Strings,
    /// Bytes of different texts that may still come. Texts do not lie over each other in what linkers write.
    left: usize,
}

impl Programs {
    fn new(texts: Files) -> Self {
        let left = texts.size();
        Self { texts, by_place: HashMap::new(), known: Strings::new(), left }
    }

    /// None where there is no program.
    fn find(&mut self, place: u32) -> Option<ProgramId> {
        let Self { texts, by_place, known, left } = self;
        *by_place.entry(place).or_insert_with(|| {
            let text = texts.text(place, PROGRAM).filter(|text| text.len() <= *left)?;
            let text = std::str::from_utf8(text).ok()?;
            let is_plain = !text.chars().any(char::is_control);
            let text = text.trim_end();
            *left = left.checked_sub(text.len()).filter(|_| is_plain && !text.is_empty())?;
            Some(ProgramId(known.intern(text)))
        })
    }

    /// Bytes of a frame's program.
    fn length(&self, rule: FrameRule) -> u64 {
        match rule {
            FrameRule::Program(program) => self.known.get(program.0).len() as u64,
            FrameRule::Sizes { .. } => 0,
        }
    }
}

fn new_frame(record: &[u8], program: ProgramId) -> Option<FrameData> {
    let word = |at| u32_at(record, at);
    Some(FrameData {
        rva: word(0)?,
        code_size: word(4)?,
        prolog_size: u16_at(record, 24)?.into(),
        params_size: word(12)?,
        saved_size: u16_at(record, 26)?.into(),
        locals_size: word(8)?,
        max_stack_size: word(16)?,
        rule: FrameRule::Program(program),
    })
}

/// Counts of words; the last half is cbProlog in 8 bits, cbRegs in 3, fHasSEH, fUseBP, one that is reserved, cbFrame in 2.
fn old_frame(record: &[u8]) -> Option<FrameData> {
    let bits = u16_at(record, 14)?;
    let kind = match bits >> 14 {
        0 => FrameKind::Fpo,
        1 => FrameKind::Trap,
        2 => FrameKind::Tss,
        _ => FrameKind::Standard,
    };
    Some(FrameData {
        rva: u32_at(record, 0)?,
        code_size: u32_at(record, 4)?,
        prolog_size: u32::from(bits & 0xff),
        params_size: u32::from(u16_at(record, 12)?).saturating_mul(4),
        saved_size: u32::from(bits >> 8 & 7).saturating_mul(4),
        locals_size: u32_at(record, 8)?.saturating_mul(4),
        max_stack_size: 0,
        rule: FrameRule::Sizes { kind, uses_base_pointer: bits >> 12 & 1 == 1 },
    })
}

/// How much longer code may be that has something between its parts, to be taken as one stretch.
const STRETCHED: u32 = 8;

/// Where the code is in the image. What a tool put in between belongs to the frame; code that was taken apart further gives several.
fn placed(frame: FrameData, addresses: &Addresses) -> Vec<FrameData> {
    let end = frame.rva.saturating_add(frame.code_size);
    let parts = addresses.mapped(frame.rva..end);
    let is_rising = parts.is_sorted_by(|a, b| a.image.saturating_add(a.end.saturating_sub(a.start)) <= b.image);
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        let behind = last.image.saturating_add(last.end.saturating_sub(last.start));
        let code_size = behind.saturating_sub(first.image);
        if is_rising && code_size <= frame.code_size.saturating_mul(STRETCHED) {
            let prolog_size = if first.start == frame.rva { frame.prolog_size } else { 0 };
            return vec![FrameData { rva: first.image, code_size, prolog_size, ..frame }];
        }
    }
    let part = |part: super::addresses::Mapped| {
        let prolog_size = if part.start == frame.rva { frame.prolog_size } else { 0 };
        FrameData { rva: part.image, code_size: part.end.saturating_sub(part.start), prolog_size, ..frame }
    };
    parts.into_iter().map(part).filter(|frame| frame.code_size > 0).collect()
}
