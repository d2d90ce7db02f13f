//! The file's pages as `pdb2` asks for them, within bounds.
//!
//! A stream is a list of pages. `pdb2` takes the list from the file and asks for its bytes here, so this is where a
//! hostile list is stopped: no page is in two places of one file, so that no stream is larger than the file.

use pdb2::{Source, SourceSlice, SourceView};
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// Bytes of a program database.
#[derive(Debug)]
pub(crate) struct Pages<'d> {
    data: &'d [u8],
    /// The last stream, as a module's is asked for twice.
    last: Option<(Vec<SourceSlice>, Arc<Vec<u8>>)>,
}

impl<'d> Pages<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Self {
        Self { data, last: None }
    }

    fn slice(&self, slice: &SourceSlice) -> Result<&'d [u8], Error> {
        let find = || {
            let start = usize::try_from(slice.offset).ok()?;
            self.data.get(start..start.checked_add(slice.size)?)
        };
        find().ok_or_else(|| {
            Error::new(ErrorKind::UnexpectedEof, format!("a page at byte {:#x}, behind the end", slice.offset))
        })
    }
}

impl<'d> Source<'d> for Pages<'d> {
    /// Copies, as a view may outlive the bytes.
    fn view(&mut self, slices: &[SourceSlice]) -> Result<Box<dyn SourceView<'d> + Send + Sync>, Error> {
        if let Some((known, bytes)) = &self.last
            && known == slices
        {
            return Ok(Box::new(View(Arc::clone(bytes))));
        }
        let total = slices.iter().try_fold(0_usize, |total, slice| total.checked_add(slice.size));
        let Some(total) = total.filter(|total| *total <= self.data.len()) else {
            return Err(Error::new(ErrorKind::InvalidData, "a stream that is larger than the file"));
        };
        let mut bytes = Vec::with_capacity(total);
        for slice in slices {
            bytes.extend_from_slice(self.slice(slice)?);
        }
        let bytes = Arc::new(bytes);
        self.last = Some((slices.to_vec(), Arc::clone(&bytes)));
        Ok(Box::new(View(bytes)))
    }
}

struct View(Arc<Vec<u8>>);

impl SourceView<'_> for View {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
