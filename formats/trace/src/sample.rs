//! `trace.sample`: the registers and stack bytes of one thread at one instant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_module::Avma;

use crate::forms;

/// One thread, frozen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSample {
    /// The thread's id (tid).
    pub thread: u32,
    /// The thread's name (escaped), empty where it has none.
    #[serde(default)]
    pub thread_name: String,
    /// Register values by the architecture's own lower-case names; for x86_64 `rip`, `rsp`, `rbp`, `rax` … `r15`,
    /// `eflags`, `cs`, `ss`, `fs_base`, `gs_base`, `orig_rax`.
    pub registers: BTreeMap<String, Avma>,
    /// The copied stretches of stack memory, without overlap. The first holds the stack pointer; further
    /// ones are the stacks that signal frames on the earlier ones interrupted.
    pub stacks: Vec<StackSegment>,
    /// How long the thread was stopped for this sample, in nanoseconds; 0 where it was not stopped.
    #[serde(default)]
    pub stopped_ns: u64,
}

impl TraceSample {
    /// A register by name.
    pub fn register(&self, name: &str) -> Option<Avma> {
        self.registers.get(name).copied()
    }

    /// The segment that holds `address`.
    pub fn segment(&self, address: Avma) -> Option<&StackSegment> {
        self.stacks.iter().find(|segment| segment.start <= address && address < segment.end())
    }

    /// The little-endian word of 8 bytes at `address`; `None` where not all of it was copied.
    pub fn read_u64(&self, address: Avma) -> Option<u64> {
        self.segment(address)?.read_u64(address)
    }
}

/// One copied stretch of stack memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSegment {
    /// The address of the first byte.
    pub start: Avma,
    /// First address of the mapping that the stretch was copied from.
    pub mapping_start: Avma,
    /// First address after that mapping. Where `end()` lies below it, the copy is cut short.
    pub mapping_end: Avma,
    /// The bytes.
    #[serde(with = "forms::base64_bytes")]
    pub bytes: Vec<u8>,
}

impl StackSegment {
    /// A segment whose mapping ends where the bytes do.
    pub fn new(start: Avma, bytes: Vec<u8>) -> Self {
        let mut segment = Self { start, mapping_start: start, mapping_end: start, bytes };
        segment.mapping_end = segment.end();
        segment
    }

    /// First address after the copied bytes.
    pub fn end(&self) -> Avma {
        Avma(self.start.0.saturating_add(self.bytes.len() as u64))
    }

    /// Whether the mapping goes on above the copied bytes.
    pub fn is_truncated(&self) -> bool {
        self.end() < self.mapping_end
    }

    /// The words of 8 bytes at multiples of 8, as they lie in memory, by rising address.
    pub fn word_bytes(&self) -> &[[u8; 8]] {
        let skip = usize::try_from(self.start.0.wrapping_neg() % 8).unwrap_or(0);
        self.bytes.get(skip..).unwrap_or_default().as_chunks().0
    }

    /// The little-endian words at multiples of 8, by rising address.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.word_bytes().iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The little-endian word of 8 bytes at `address`; `None` where not all of it was copied.
    pub fn read_u64(&self, address: Avma) -> Option<u64> {
        let from = usize::try_from(address.0.checked_sub(self.start.0)?).ok()?;
        let word = self.bytes.get(from..from.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_from_whichever_segment_holds_all_of_them() {
        let sample = TraceSample {
            stacks: vec![
                StackSegment::new(Avma(0x1000), (0..16).collect()),
                StackSegment::new(Avma(0x9000), vec![0xff; 8]),
            ],
            ..TraceSample::default()
        };
        assert_eq!(sample.read_u64(Avma(0x1000)), Some(0x0706_0504_0302_0100));
        assert_eq!(sample.read_u64(Avma(0x1008)), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(sample.read_u64(Avma(0x1009)), None);
        assert_eq!(sample.read_u64(Avma(0xfff)), None);
        assert_eq!(sample.read_u64(Avma(0x9000)), Some(u64::MAX));
        assert_eq!(sample.read_u64(Avma(u64::MAX)), None);
    }

    #[test]
    fn a_segment_at_the_top_of_the_address_space_does_not_overflow() {
        let segment = StackSegment::new(Avma(u64::MAX - 3), vec![0; 8]);
        assert_eq!(segment.end(), Avma(u64::MAX));
        assert_eq!(segment.read_u64(Avma(0)), None);
    }
}
