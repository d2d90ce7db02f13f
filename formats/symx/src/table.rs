//! A table, read in place.

use crate::data::{Blocks, Data};
use crate::layout::{Header, MAX_PRODUCER_BYTES, SectionId};
use crate::rows::{GAP, RowReader};
use crate::stream::Rows;
use crate::{Function, Hit, OpenError, VerifyError};
use symseal_module::{DebugId, Rva, Svma};

/// How much of everything a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Function ranges.
    pub functions: u64,
    /// Line rows (columns apart), with the rows that say "no function here".
    pub rows: u64,
    /// Different places at which something was inlined.
    pub inlines: u64,
    /// Different source files.
    pub files: u64,
    /// Other names of functions.
    pub aliases: u64,
    /// Bytes of names and paths.
    pub string_bytes: u64,
    /// Bytes of the table without its columns.
    pub core_bytes: u64,
    /// Bytes of the column sections.
    pub column_bytes: u64,
}

/// A symbol table over the bytes of its file, read in place.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) header: Header<'a>,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) data: Data<'a>,
    producer: &'a str,
}

impl<'a> Table<'a> {
    /// Checks the header and the section directory; nothing else is read but the producer.
    ///
    /// # Errors
    /// [`OpenError`] names what is wrong with the header. A table that opens may still be damaged: then lookups answer
    /// something or nothing, within bounds, and [`verify`](Self::verify) says what is wrong.
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let header = Header::read(bytes)?;
        let id = SectionId::Producer;
        let producer = header.section(id).bytes;
        let producer = core::str::from_utf8(producer)
            .ok()
            .filter(|text| text.len() <= MAX_PRODUCER_BYTES)
            .ok_or(OpenError::Section { id: id.number(), problem: "is no text of at most 255 bytes" })?;
        let (blocks, data) = (Blocks::new(&header)?, Data::new(&header)?);
        Ok(Self { bytes, header, blocks, data, producer })
    }

    /// Checks every section against its checksum, and that everything in it holds together.
    ///
    /// # Errors
    /// The first fault found.
    pub fn verify(&self) -> Result<(), VerifyError> {
        crate::verify::verify(self)
    }

    /// The module that the table describes.
    pub fn debug_id(&self) -> DebugId {
        self.header.debug_id.clone()
    }

    /// What to add to a relative address to get the stated one.
    pub fn image_base(&self) -> Svma {
        self.header.image_base
    }

    /// SHA-256 of the file that the table was made from.
    pub fn source_sha256(&self) -> [u8; 32] {
        self.header.source_sha256
    }

    /// Name and version of the program that made the table.
    pub fn producer(&self) -> &'a str {
        self.producer
    }

    /// How much of everything there is, as the header says.
    pub fn counts(&self) -> Counts {
        let section = |id| self.header.section(id);
        let columns = SectionId::ALL.into_iter().filter(|id| id.holds_columns());
        let column_bytes = columns.map(|id| section(id).bytes.len() as u64).sum();
        Counts {
            functions: section(SectionId::Functions).count,
            rows: section(SectionId::Rows).count,
            inlines: section(SectionId::Sites).count,
            // The empty path is no file.
            files: section(SectionId::Paths).count.saturating_sub(1),
            aliases: section(SectionId::Aliases).count,
            string_bytes: (section(SectionId::Paths).bytes.len() + section(SectionId::Names).bytes.len()) as u64,
            core_bytes: self.bytes.len() as u64 - column_bytes,
            column_bytes,
        }
    }

    /// What is known about `address`; `None` between functions and outside of them. Allocates nothing.
    #[inline]
    pub fn lookup(&self, address: Rva) -> Option<Hit<'a>> {
        let blocks = &self.blocks;
        let block = blocks.find(address.0)?;
        let block_start = blocks.start(block)?;
        let mut row = RowReader::new(block_start, blocks.rows_of(block)?)?;
        let end = loop {
            match row.peek() {
                Some(next) if next.0 <= address.0 => row.enter(next)?,
                Some((next, _)) => break next,
                None => break blocks.start(block + 1)?,
            }
        };
        if row.state == GAP {
            return None;
        }
        Some(Hit {
            data: self.data,
            context: row.state - 1,
            line: row.line,
            address: address.0,
            row: (row.address, end),
            block_start,
            columns: blocks.columns_of(block),
        })
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function<'a>> + use<'a> {
        let data = self.data;
        (0..data.function_count()).filter_map(move |index| Function::read(&data, index))
    }

    /// The whole stream: every range of addresses that has one answer, by address.
    pub fn rows(&self) -> Rows<'a> {
        Rows::new(self.blocks, self.data)
    }
}
