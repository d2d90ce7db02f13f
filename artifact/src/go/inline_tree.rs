//! Inlined calls of a function: a tree in the read-only data. (`runtime.inlinedCall`)

use super::header::{Table, TreePlace, Version};
use super::image::Image;
use crate::cursor::{Cursor, Damaged, Result};

/// Where the trees of all functions are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trees {
    /// Address of `go:func.*`, which offsets count from.
    pub(crate) base: u64,
}

/// An inlined call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Offset of the inlined function's name.
    pub(crate) name: u32,
    /// An instruction at the line of the call, in bytes from the function's entry.
    pub(crate) call: u32,
    /// The call around this one, where the layout says it; otherwise it is that of the call's instruction.
    pub(crate) parent: Option<i32>,
}

impl Trees {
    /// The node of that number.
    pub(crate) fn node(&self, image: &Image<'_>, table: &Table<'_>, place: TreePlace, number: u32) -> Result<Node> {
        let start = match place {
            TreePlace::Svma(svma) => svma,
            TreePlace::Offset(offset) => self.base.checked_add(offset.into()).ok_or(Damaged)?,
        };
        let size: u64 = if table.version == Version::Go120 { 16 } else { 20 };
        let svma = start.checked_add(size * u64::from(number)).ok_or(Damaged)?;
        let mut cursor = Cursor::new(image.from(svma).ok_or(Damaged)?, image.is_little_endian);
        if table.version == Version::Go120 {
            // Kind of function and three bytes of padding, name, call, line of the declaration.
            let [_, 0, 0, 0] = *cursor.bytes(4)? else { return Err(Damaged) };
            let (name, call) = (cursor.unsigned(4)? as u32, cursor.unsigned(4)? as u32);
            return Ok(Node { name, call, parent: None });
        }
        // Parent, kind of function, padding, file and line of the call, name, call.
        let parent = i32::from(cursor.unsigned(2)? as u16 as i16);
        let [_, 0] = *cursor.bytes(2)? else { return Err(Damaged) };
        cursor.skip(8)?;
        let (name, call) = (cursor.unsigned(4)? as u32, cursor.unsigned(4)? as u32);
        Ok(Node { name, call, parent: Some(parent) })
    }
}
