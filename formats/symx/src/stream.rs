//! Every row of a table, in the order of addresses.

use crate::Hit;
use crate::data::{Blocks, Data};
use crate::rows::{GAP, RowReader};
use symseal_module::Rva;

/// The whole stream of a table: hits whose ranges follow each other and never overlap.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    blocks: Blocks<'a>,
    data: Data<'a>,
    /// The block to read next.
    block: usize,
    /// The block being read.
    reader: Option<(u64, RowReader<'a>)>,
    /// What is left of a row that several columns divide.
    rest: Option<Hit<'a>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(blocks: Blocks<'a>, data: Data<'a>) -> Self {
        Self { blocks, data, block: 0, reader: None, rest: None }
    }

    /// The next row of the core, undivided.
    fn next_row(&mut self) -> Option<Hit<'a>> {
        loop {
            let Some((block_start, mut reader)) = self.reader.take() else {
                let block_start = self.blocks.start(self.block)?;
                let rows = self.blocks.rows_of(self.block).and_then(|rows| RowReader::new(block_start, rows));
                self.reader = rows.map(|reader| (block_start, reader));
                self.block += 1;
                continue;
            };
            let row = reader;
            let end = match reader.peek() {
                Some(next) => {
                    let entered = reader.enter(next);
                    self.reader = entered.map(|()| (block_start, reader));
                    Some(next.0)
                }
                None => self.blocks.start(self.block),
            };
            // The last row of all is a gap; a damaged table may lack it.
            let end = end?;
            if row.state != GAP && row.address < end {
                return Some(Hit {
                    data: self.data,
                    context: row.state - 1,
                    line: row.line,
                    address: row.address,
                    row: (row.address, end),
                    block_start,
                    columns: self.blocks.columns_of(self.block - 1),
                });
            }
        }
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Hit<'a>;

    fn next(&mut self) -> Option<Hit<'a>> {
        let hit = match self.rest.take() {
            Some(rest) => rest,
            None => self.next_row()?,
        };
        let Rva(end) = hit.range().end;
        if end < hit.row.1 && end > hit.address {
            self.rest = Some(Hit { address: end, ..hit });
        }
        Some(hit)
    }
}
