//! Every row of a table, in the order of addresses.

use crate::Hit;
use crate::data::{Blocks, Data};
use crate::table::hit;
use symseal_module::Rva;

/// The whole stream of a table: hits whose ranges follow each other and never overlap.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    blocks: &'a Blocks<'a>,
    data: &'a Data<'a>,
    block: usize,
    /// The row to read next.
    row: usize,
    /// What is left of a row that several columns divide.
    rest: Option<Hit<'a>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(blocks: &'a Blocks<'a>, data: &'a Data<'a>) -> Self {
        Self { blocks, data, block: 0, row: 0, rest: None }
    }

    /// The next row of the core, undivided.
    fn next_row(&mut self) -> Option<Hit<'a>> {
        while self.block < self.blocks.len() {
            let (index, row) = (self.block, self.row);
            let block = self.blocks.block(index);
            if block.is_some_and(|block| row + 1 < block.count) {
                self.row += 1;
            } else {
                (self.block, self.row) = (index + 1, 0);
            }
            let found = block.and_then(|block| {
                let row = block.at(row);
                hit(self.blocks, self.data, index, &block, row, block.address(row)?)
            });
            if let Some(found) = found
                && found.row.0 < found.row.1
            {
                return Some(found);
            }
        }
        None
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
