//! The table's header, and the entries of functions.

use super::image::Image;
use crate::cursor::{Cursor, Damaged, Result};

/// Which layout the table has, by its magic number. (`abi.PCLnTabMagic`)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Version {
    /// Go 1.2 to 1.15.
    Go12,
    /// Go 1.16 and 1.17.
    Go116,
    /// Go 1.18 and 1.19.
    Go118,
    /// Go 1.20 and later.
    Go120,
}

impl Version {
    const ALL: [Self; 4] = [Self::Go12, Self::Go116, Self::Go118, Self::Go120];

    const fn magic(self) -> u32 {
        match self {
            Self::Go12 => 0xffff_fffb,
            Self::Go116 => 0xffff_fffa,
            Self::Go118 => 0xffff_fff0,
            Self::Go120 => 0xffff_fff1,
        }
    }

    /// Entries are offsets from `runtime.text`, not addresses.
    pub(crate) fn counts_from_text(self) -> bool {
        self >= Self::Go118
    }
}

/// How tables of that byte order start.
pub(crate) fn magics(is_little_endian: bool) -> [[u8; 4]; 4] {
    Version::ALL.map(
        |version| {
            if is_little_endian { version.magic().to_le_bytes() } else { version.magic().to_be_bytes() }
        },
    )
}

/// A table whose header is sound. Parts are slices from their start to the end of what is loaded: their lengths are not
/// in the header.
pub(crate) struct Table<'d> {
    pub(crate) version: Version,
    /// Address of the header.
    pub(crate) svma: u64,
    is_little_endian: bool,
    word_size: u8,
    /// Bytes of the smallest instruction, which distances are counted in.
    pub(crate) quantum: u64,
    functions: u64,
    /// Offsets of the parts from the header.
    pub(crate) offsets: Offsets,
    /// From the header to the end of what is loaded there.
    pub(crate) all: &'d [u8],
}

/// Offsets in bytes from the header.
#[derive(Clone, Copy, Default)]
pub(crate) struct Offsets {
    pub(crate) names: u64,
    pub(crate) units: u64,
    pub(crate) files: u64,
    pub(crate) pc_tables: u64,
    pub(crate) functions: u64,
    /// Pairs of entry and offset; only in the oldest layout they do not start with the functions' part.
    pub(crate) index: u64,
}

/// A function's line in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Stated address.
    pub(crate) start: u64,
    /// The next function's.
    pub(crate) end: u64,
    /// Offset of the function's record in the functions' part.
    record: u64,
}

/// What a function's record says. (`runtime._func`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    /// Offset in the names' part.
    pub(crate) name: u32,
    /// Offsets in the part of pc tables; 0 for none.
    pub(crate) pc_file: u32,
    pub(crate) pc_line: u32,
    pub(crate) pc_inline: u32,
    /// Where the function's unit starts in the units' part, in entries of 4 bytes.
    pub(crate) unit: u32,
    /// Line of the declaration; 0 where the version does not say.
    pub(crate) line: u32,
    pub(crate) inline_tree: Option<TreePlace>,
}

/// Where a function's inline tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreePlace {
    Svma(u64),
    /// Offset from `go:func.*`.
    Offset(u32),
}

/// More functions than a program can have: each takes a byte of code, and the text is addressed by 32 bits.
const MOST_FUNCTIONS: u64 = 1 << 28;

/// `PCDATA_InlTreeIndex`, from Go 1.14.
const PCDATA_INLINE_TREE_INDEX: u64 = 2;

impl<'d> Table<'d> {
    pub(crate) fn parse(image: &Image<'d>, svma: u64) -> Option<Self> {
        let all = image.from(svma)?;
        let mut cursor = Cursor::new(all, image.is_little_endian);
        let magic = cursor.unsigned(4).ok()?;
        let version = Version::ALL.into_iter().find(|version| u64::from(version.magic()) == magic)?;
        let [0, 0, quantum @ (1 | 2 | 4), word_size @ (4 | 8)] = *cursor.bytes(4).ok()? else { return None };
        if word_size != image.word_size() {
            return None;
        }
        let mut word = || cursor.unsigned(word_size).ok();
        let functions = word()?;
        let offsets = match version {
            Version::Go12 => Offsets { index: 8 + u64::from(word_size), ..Offsets::default() },
            Version::Go116 | Version::Go118 | Version::Go120 => {
                word()?; // Number of files.
                if version.counts_from_text() {
                    word()?; // `runtime.text`, possibly not relocated; nothing from 1.26 on.
                }
                let [names, units, files, pc_tables, functions] = [word()?, word()?, word()?, word()?, word()?];
                Offsets { names, units, files, pc_tables, functions, index: functions }
            }
        };
        let mut table = Self {
            version,
            svma,
            is_little_endian: image.is_little_endian,
            word_size,
            quantum: u64::from(quantum),
            functions,
            offsets,
            all,
        };
        table.check().then_some(())?;
        if version == Version::Go12 {
            // Behind the index stands where the files are.
            let behind = offsets.index.checked_add(table.index_bytes())?;
            table.offsets.files = table.part(behind)?.unsigned(4).ok()?;
            table.part(table.offsets.files)?;
        }
        Some(table)
    }

    /// The parts lie in the file, and the first function has a record and a name.
    fn check(&self) -> bool {
        if self.functions == 0 || self.functions > MOST_FUNCTIONS {
            return false;
        }
        let Offsets { names, units, files, pc_tables, functions, index } = self.offsets;
        let are_there = [names, units, files, pc_tables, functions].iter().all(|at| self.part(*at).is_some());
        let behind = index.checked_add(self.index_bytes()).and_then(|behind| usize::try_from(behind).ok());
        are_there && behind.is_some_and(|behind| behind <= self.all.len())
    }

    fn index_bytes(&self) -> u64 {
        // As many pairs as functions, and the end of the last one.
        (2 * self.functions + 1) * u64::from(self.index_word())
    }

    fn index_word(&self) -> u8 {
        if self.version.counts_from_text() { 4 } else { self.word_size }
    }

    /// The bytes from an offset on.
    fn part(&self, offset: u64) -> Option<Cursor<'d>> {
        let bytes = self.all.get(usize::try_from(offset).ok()?..)?;
        Some(Cursor::new(bytes, self.is_little_endian))
    }

    fn within(&self, part: u64, offset: u64) -> Option<Cursor<'d>> {
        self.part(part.checked_add(offset)?)
    }

    /// How many functions there are.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.functions).unwrap_or_default()
    }

    /// What may be read: from the header to the end of what is loaded there.
    pub(crate) fn bytes(&self) -> u64 {
        self.all.len() as u64
    }

    /// Distance from `runtime.text` to the end of the last function.
    pub(crate) fn text_length(&self) -> Option<u64> {
        let last = self.functions.checked_mul(2)?.checked_mul(u64::from(self.index_word()))?;
        self.within(self.offsets.index, last)?.unsigned(self.index_word()).ok()
    }

    /// Distance from `runtime.text` to the first function.
    pub(crate) fn first_entry(&self) -> Option<u64> {
        self.part(self.offsets.index)?.unsigned(self.index_word()).ok()
    }

    /// A function's line in the index; none for one that is not in order.
    pub(crate) fn entry(&self, image: &Image<'d>, number: usize, text_start: u64) -> Option<Entry> {
        let size = u64::from(self.index_word());
        let at = (number as u64).checked_mul(2)?.checked_mul(size)?;
        let number_at = |word: u64| {
            let at = at.checked_add(word * size)?;
            if self.version.counts_from_text() {
                return self.within(self.offsets.index, at)?.unsigned(4).ok();
            }
            // Addresses, which the loader may have to fill in.
            image.word(self.svma.checked_add(self.offsets.index)?.checked_add(at)?)
        };
        let record = self.within(self.offsets.index, at.checked_add(size)?)?.unsigned(self.index_word()).ok()?;
        let start = text_start.checked_add(number_at(0)?)?;
        let end = text_start.checked_add(number_at(2)?)?;
        (start < end).then_some(Entry { start, end, record })
    }

    /// The record of a function.
    pub(crate) fn function(&self, image: &Image<'d>, entry: &Entry, text_start: u64) -> Result<Function> {
        let offset = self.offsets.functions.checked_add(entry.record).ok_or(Damaged)?;
        let svma = self.svma.checked_add(offset).ok_or(Damaged)?;
        let mut cursor = self.part(offset).ok_or(Damaged)?;
        let (own_start, entry_size) = if self.version.counts_from_text() {
            (text_start.checked_add(cursor.unsigned(4)?), 4_u64)
        } else {
            cursor.skip(usize::from(self.word_size))?;
            (image.word(svma), u64::from(self.word_size))
        };
        if own_start != Some(entry.start) {
            return Err(Damaged);
        }
        let mut u32 = || Ok(cursor.unsigned(4)? as u32);
        let name = u32()?;
        let (_arguments, _deferred_return, _pc_stack) = (u32()?, u32()?, u32()?);
        let (pc_file, pc_line, pc_data_count) = (u32()?, u32()?, u64::from(u32()?));
        let unit = if self.version >= Version::Go116 { u32()? } else { 0 };
        let line = if self.version >= Version::Go120 { u32()? } else { 0 };
        // Kind of function, flags, padding, number of tables.
        let tables = cursor.bytes(4)?.last().copied().map(u64::from).ok_or(Damaged)?;
        let fixed = entry_size
            + match self.version {
                Version::Go12 => 32,
                Version::Go116 | Version::Go118 => 36,
                Version::Go120 => 40,
            };
        let arrays = self.part(offset.checked_add(fixed).ok_or(Damaged)?).ok_or(Damaged)?;
        let nth = |number: u64| {
            let mut cursor = arrays;
            cursor.skip(usize::try_from(number.checked_mul(4).ok_or(Damaged)?).map_err(|_| Damaged)?)?;
            Ok(cursor.unsigned(4)? as u32)
        };
        let pc_inline = if pc_data_count > PCDATA_INLINE_TREE_INDEX { nth(PCDATA_INLINE_TREE_INDEX)? } else { 0 };
        // `FUNCDATA_InlTree`: 4 from Go 1.14, 3 from 1.16.
        let tree = if self.version == Version::Go12 { 4 } else { 3 };
        let inline_tree = if tables <= tree {
            None
        } else if self.version.counts_from_text() {
            match nth(pc_data_count.checked_add(tree).ok_or(Damaged)?)? {
                u32::MAX => None,
                offset => Some(TreePlace::Offset(offset)),
            }
        } else {
            let word = u64::from(self.word_size);
            let behind = pc_data_count.checked_mul(4).and_then(|bytes| svma.checked_add(fixed)?.checked_add(bytes));
            let start = behind.and_then(|behind| behind.checked_next_multiple_of(word)).ok_or(Damaged)?;
            image.word(start.checked_add(tree * word).ok_or(Damaged)?).filter(|svma| *svma != 0).map(TreePlace::Svma)
        };
        Ok(Function { name, pc_file, pc_line, pc_inline, unit, line, inline_tree })
    }

    /// The bytes of a pc table; none where the function has none.
    pub(crate) fn pc_table(&self, offset: u32) -> Option<Cursor<'d>> {
        if offset == 0 { None } else { self.within(self.offsets.pc_tables, offset.into()) }
    }

    /// A name; none where its offset is not the start of one.
    pub(crate) fn name(&self, offset: u32) -> Option<&'d [u8]> {
        let name = self.within(self.offsets.names, offset.into())?.text().ok()?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether a name starts there, and not in the midst of another.
    pub(crate) fn starts_a_name(&self, offset: u32) -> bool {
        let is_start = match offset.checked_sub(1) {
            None => self.version >= Version::Go116,
            Some(before) => {
                let before = self.within(self.offsets.names, before.into());
                before.and_then(|mut before| before.u8().ok()) == Some(0)
            }
        };
        is_start && self.name(offset).is_some()
    }

    /// Where the path of a function's file stands: an offset for [`Self::path`].
    pub(crate) fn file(&self, unit: u32, number: u32) -> Option<u32> {
        let (part, at) = match self.version {
            Version::Go12 => (self.offsets.files, u64::from(number)),
            _ => (self.offsets.units, u64::from(unit).checked_add(number.into())?),
        };
        let offset = self.within(part, at.checked_mul(4)?)?.unsigned(4).ok()? as u32;
        (offset != u32::MAX && (self.version != Version::Go12 || number > 0)).then_some(offset)
    }

    pub(crate) fn path(&self, offset: u32) -> Option<&'d [u8]> {
        // The oldest layout counts from the header.
        let part = if self.version == Version::Go12 { 0 } else { self.offsets.files };
        self.within(part, offset.into())?.text().ok()
    }
}
