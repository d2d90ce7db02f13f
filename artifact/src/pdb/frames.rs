//! Frame data: how the frames of functions of 32-bit x86 are laid out, which nothing in the code itself tells.
//!
//! Two streams have it. The newer one has records of 32 bytes, each with a program in postfix notation among the PDB's texts; the older one, for code that was
//! compiled without a frame pointer, has records of 16 bytes (`FPO_DATA`). (Microsoft, `winnt.h` and `cvinfo.h`; LLVM, "The PDB DBI Stream")

use super::addresses::Addresses;
use super::header::{DbiHeader, u16_at, u32_at};
use super::identity::{DBI_STREAM, PdbFile};
use crate::ArtifactError;
use crate::budget::Budget;
use crate::work::Work;
use pdb2::StreamIndex;
use std::collections::HashMap;

/// Places in the DBI stream's optional debug header.
const OLD_FPO: usize = 0;
const NEW_FPO: usize = 9;

/// Bytes of their records.
const OLD_RECORD: usize = 16;
const NEW_RECORD: usize = 32;

/// The longest program that is taken, in bytes.
const PROGRAM: usize = 4096;

/// The frame of a stretch of code. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameRule {
    /// By the sizes: a frame without a frame pointer.
    Sizes {
        /// The function uses `ebp` for something else.
        uses_base_pointer: bool,
    },
    /// By a program in postfix notation.
    Program(String),
}

impl PdbFile<'_> {
    /// The frames that the PDB describes, by address; of code that was moved after linking where it is now. Records that are damaged are left out.
    ///
    /// # Errors
    /// [`ArtifactError`] where the PDB cannot be opened.
    pub fn frame_data(&self) -> Result<Vec<FrameData>, ArtifactError> {
        let mut pdb = self.open()?;
        let mut work = Work::new();
        let addresses = Addresses::read(&mut pdb, &mut work);
        let mut extra = |place: usize| {
            let dbi = pdb.raw_stream(DBI_STREAM).ok()??;
            let number = DbiHeader::parse(&dbi)?.extra_stream(&dbi, place)?;
            pdb.raw_stream(StreamIndex(number)).ok()?
        };
        let (old, new) = (extra(OLD_FPO), extra(NEW_FPO));
        let mut frames: Vec<FrameData> = Vec::new();
        if let Some(stream) = &new {
            let texts = pdb.string_table().ok();
            let mut known: HashMap<u32, Option<String>> = HashMap::new();
            // A relocation of four bytes may come first.
            let records = stream.get(stream.len() % NEW_RECORD..).unwrap_or_default();
            for record in records.chunks_exact(NEW_RECORD) {
                let number = u32_at(record, 20).unwrap_or_default();
                let program = known.entry(number).or_insert_with(|| {
                    let text = texts.as_ref()?.get(pdb2::StringRef(number)).ok()?;
                    let text = text.to_string();
                    let is_plain = text.len() <= PROGRAM && !text.chars().any(char::is_control);
                    is_plain.then(|| text.trim_end().to_owned()).filter(|text| !text.is_empty())
                });
                if let Some(program) = program.clone() {
                    frames.extend(new_frame(record, program));
                }
            }
        }
        frames.extend(old.iter().flat_map(|stream| stream.chunks_exact(OLD_RECORD)).filter_map(old_frame));
        let mut budget = Budget::for_bytes(self.bytes());
        let is_within = |frame: &FrameData| {
            let range = frame.rva..frame.rva.saturating_add(frame.code_size);
            budget.charge(addresses.records_in(&range).saturating_add(1)).is_ok()
        };
        let frames = frames.into_iter().take_while(is_within);
        let mut moved: Vec<FrameData> = frames.flat_map(|frame| placed(frame, &addresses)).collect();
        moved.sort();
        moved.dedup();
        Ok(moved)
    }
}

fn new_frame(record: &[u8], program: String) -> Option<FrameData> {
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
    Some(FrameData {
        rva: u32_at(record, 0)?,
        code_size: u32_at(record, 4)?,
        prolog_size: u32::from(bits & 0xff),
        params_size: u32::from(u16_at(record, 12)?).saturating_mul(4),
        saved_size: u32::from(bits >> 8 & 7).saturating_mul(4),
        locals_size: u32_at(record, 8)?.saturating_mul(4),
        max_stack_size: 0,
        rule: FrameRule::Sizes { uses_base_pointer: bits >> 12 & 1 == 1 },
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
        FrameData { rva: part.image, code_size: part.end.saturating_sub(part.start), prolog_size, ..frame.clone() }
    };
    parts.into_iter().map(part).filter(|frame| frame.code_size > 0).collect()
}
