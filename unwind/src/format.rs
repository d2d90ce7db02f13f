//! The outer layout of a `.uwt` file: magic, header fields, section kinds. Written down in `docs/formats/uwt.md`.

/// The first four bytes.
pub const MAGIC: [u8; 4] = *b"UWT1";
/// The version that this crate reads and writes.
pub const VERSION: u16 = 1;
/// Bytes of the fixed header; the section directory follows.
pub const HEADER_BYTES: usize = 96;
/// Bytes of one entry of the section directory.
pub const DIRECTORY_ENTRY_BYTES: usize = 24;
/// More sections than any writer has; bounds what a reader looks at.
pub const MAX_SECTIONS: usize = 64;
/// Sections start at multiples of this, the size of their largest elements.
pub const SECTION_ALIGNMENT: usize = 8;
/// Bytes of code in a bucket, as a power of two.
pub const BUCKET_SHIFT: u32 = 8;
/// Rules are numbered with 16 bits.
pub const MAX_RULES: usize = 1 << 16;
/// Flag of a table whose rules are numbered with 8 bits: it has at most 256.
pub(crate) const NARROW_ROW_RULES: u8 = 1;
/// Flag of a table whose rows are counted with 16 bits: it has below 65,536.
pub(crate) const NARROW_BUCKETS: u8 = 2;
/// Bytes of code that one table may span: what keeps the bucket directory of a hostile input small.
pub const MAX_TEXT_SPAN: u64 = 1 << 31;
/// Bytes of an entry of the index over the source map.
pub const SOURCE_INDEX_BYTES: usize = 16;
/// Entries of the source map in one block.
pub const SOURCE_BLOCK: usize = 64;

/// Byte offsets in the header.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 4;
    pub(crate) const ARCH: usize = 6;
    pub(crate) const FLAGS: usize = 7;
    pub(crate) const HEADER_CRC: usize = 8;
    pub(crate) const SECTIONS: usize = 12;
    pub(crate) const FILE_SIZE: usize = 16;
    pub(crate) const IMAGE_BASE: usize = 24;
    pub(crate) const TEXT_START: usize = 32;
    pub(crate) const TEXT_END: usize = 40;
    pub(crate) const ROWS: usize = 48;
    pub(crate) const RULES: usize = 56;
    pub(crate) const SOURCE_SHA256: usize = 64;
}

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum SectionKind {
    /// The debug id's text form.
    DebugId = 1,
    /// The producer's name and version.
    Producer = 2,
    /// u32, or u16 by [`NARROW_BUCKETS`], per 256 bytes of code, and one more: the first row at or after the bucket's start.
    Buckets = 3,
    /// u8 per row: the low byte of its relative address.
    RowAddress = 4,
    /// u16, or u8 by [`NARROW_ROW_RULES`], per row: the number of its rule.
    RowRule = 5,
    /// u64 per rule.
    Rules = 6,
    /// u64 per rule: slots of the other saved registers.
    Slots = 7,
    /// Programs.
    Programs = 8,
    /// One entry per block of the source map.
    SourceIndex = 9,
    /// The source map.
    SourceMap = 10,
    /// u64 per rule: slots of the registers that the module's calling convention keeps beyond those of the processor. Where
    /// the section is missing, these registers are lost.
    ConventionSlots = 11,
    /// What leads from the stack of a thread to its goroutine, in Go programs.
    GoRuntime = 12,
    /// Why code has no rule, where something speaks of it.
    Reasons = 13,
    /// What leads from a task to the one that waits for it, in Rust programs with tokio.
    Tasks = 14,
    /// What leads from a coroutine to the one that waits for it, in C++ programs.
    Coroutines = 15,
}

impl SectionKind {
    /// Every kind that a table must have, by number.
    pub const ALL: [Self; 10] = [
        Self::DebugId,
        Self::Producer,
        Self::Buckets,
        Self::RowAddress,
        Self::RowRule,
        Self::Rules,
        Self::Slots,
        Self::Programs,
        Self::SourceIndex,
        Self::SourceMap,
    ];

    /// Kinds that some tables have.
    pub const OPTIONAL: [Self; 5] =
        [Self::ConventionSlots, Self::GoRuntime, Self::Reasons, Self::Tasks, Self::Coroutines];
}
