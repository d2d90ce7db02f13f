//! A table, read in place.

use crate::contexts::Shapes;
use crate::data::{Blocks, Data};
use crate::layout::{Header, Outline, SectionId};
use crate::rows::{Position, RowBlock};
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
    /// Different ways in which code came to be inlined where it is.
    pub inlines: u64,
    /// Different combinations of function and file, inlined or not; in a table with sites of function, file and call.
    pub places: u64,
    /// Different source files.
    pub files: u64,
    /// Other names of functions.
    pub aliases: u64,
    /// Bytes of names and paths, phrases included.
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
        let producer = Outline::producer(header.section(SectionId::Producer).bytes)?;
        let shapes = Shapes::new(&header.outline, header.section(SectionId::Contexts).bytes)?;
        let (blocks, data) = (Blocks::new(&header, shapes.tight.as_ref()), Data::new(&header, &shapes)?);
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
        self.header.outline.debug_id.clone()
    }

    /// What to add to a relative address to get the stated one.
    pub fn image_base(&self) -> Svma {
        self.header.outline.image_base
    }

    /// SHA-256 of the file that the table was made from.
    pub fn source_sha256(&self) -> [u8; 32] {
        self.header.outline.source_sha256
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
            inlines: self.data.contexts.inlined().into(),
            places: match self.header.outline.sited {
                false => section(SectionId::Places).count,
                true => section(SectionId::Owners).count + section(SectionId::Sites).count,
            },
            // The empty path is no file.
            files: section(SectionId::Paths).count.saturating_sub(1),
            aliases: section(SectionId::Aliases).count,
            string_bytes: [SectionId::Paths, SectionId::Names, SectionId::Phrases]
                .into_iter()
                .map(|id| section(id).bytes.len() as u64)
                .sum(),
            core_bytes: self.bytes.len() as u64 - column_bytes,
            column_bytes,
        }
    }

    /// What is known about `address`; `None` between functions and outside of them. Allocates nothing.
    #[inline]
    pub fn lookup(&self, address: Rva) -> Option<Hit<'_>> {
        let index = self.blocks.find(address.0)?;
        let block = self.blocks.block(index)?;
        let row = block.find(address.0)?;
        hit(&self.blocks, &self.data, index, &block, row, address.0)
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function<'a>> + use<'a> {
        let data = self.data;
        (0..data.function_count()).filter_map(move |index| Function::read(&data, index))
    }

    /// The whole stream: every range of addresses that has one answer, by address.
    pub fn rows(&self) -> Rows<'_> {
        Rows::new(&self.blocks, &self.data)
    }
}

/// The answer at `address`, which lies in row `row` of block `index`; `None` where that is a gap.
#[inline(always)]
pub(crate) fn hit<'a>(
    blocks: &'a Blocks<'a>,
    data: &'a Data<'a>,
    index: usize,
    block: &RowBlock<'a>,
    row: Position,
    address: u64,
) -> Option<Hit<'a>> {
    let value = block.value(row.row)?;
    let context = value.context?;
    // The last row of all is a gap; a damaged table may lack it.
    let end = match block.next(row) {
        Some(next) => block.address(next)?,
        None => blocks.start(index + 1)?,
    };
    let row = (block.address(row)?, end);
    Some(Hit { data, blocks, context, line: value.line, address, row, block: index })
}
