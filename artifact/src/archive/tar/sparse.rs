//! Files with holes: the parts that are stored, and zeros between them.

use super::extensions::Found;

/// The most parts of one sparse file; 16 MiB of memory.
pub(super) const MAX_PARTS: usize = 1 << 20;

/// Stored parts of a sparse file, in order, and where its reader stands.
#[derive(Debug)]
pub(super) struct SparseFile {
    parts: std::vec::IntoIter<(u64, u64)>,
    /// The part that is read now, or the one behind the hole that is read now: what is left of it.
    current: Option<(u64, u64)>,
    at: u64,
    size: u64,
}

/// What comes next in a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// So many zeros.
    Hole(u64),
    /// So many stored bytes.
    Stored(u64),
    /// Nothing.
    End,
}

impl SparseFile {
    /// A file of `size` bytes, of which `stored` are in the archive.
    pub(super) fn new(parts: Vec<(u64, u64)>, size: u64, stored: u64) -> Result<Self, Found> {
        let mut end = 0_u64;
        let mut sum = 0_u64;
        for (offset, length) in &parts {
            let part_end = offset.checked_add(*length).filter(|part_end| *part_end <= size);
            let part_end = part_end.ok_or_else(|| format!("a part at {offset} of {length} bytes in {size} bytes"))?;
            if *offset < end {
                return Err(format!("a part at {offset} within the one before, which ends at {end}"));
            }
            end = part_end;
            sum = sum.saturating_add(*length);
        }
        if sum > stored {
            return Err(format!("parts of {sum} bytes, of which {stored} are stored"));
        }
        let mut parts = parts.into_iter();
        let current = parts.next();
        Ok(Self { parts, current, at: 0, size })
    }

    pub(super) fn next(&mut self) -> Next {
        loop {
            let Some((offset, length)) = self.current else {
                return match self.size.saturating_sub(self.at) {
                    0 => Next::End,
                    hole => Next::Hole(hole),
                };
            };
            let hole = offset.saturating_sub(self.at);
            if hole > 0 {
                return Next::Hole(hole);
            }
            if length > 0 {
                return Next::Stored(length);
            }
            self.current = self.parts.next();
        }
    }

    /// So many bytes of what comes next were read.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
        if let Some((offset, length)) = self.current.as_mut()
            && self.at > *offset
        {
            *offset = self.at;
            *length = length.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_parts_follow_one_another() {
        let mut file = SparseFile::new(vec![(0, 3), (10, 4), (20, 0)], 20, 7).expect("a sound map");
        let mut seen = Vec::new();
        loop {
            let next = file.next();
            seen.push(next);
            match next {
                Next::Hole(bytes) | Next::Stored(bytes) => file.advance(bytes),
                Next::End => break,
            }
        }
        assert_eq!(seen, [Next::Stored(3), Next::Hole(7), Next::Stored(4), Next::Hole(6), Next::End]);
    }

    #[test]
    fn a_part_may_be_read_in_pieces() {
        let mut file = SparseFile::new(vec![(2, 4)], 8, 4).expect("a sound map");
        assert_eq!(file.next(), Next::Hole(2));
        file.advance(1);
        assert_eq!(file.next(), Next::Hole(1));
        file.advance(1);
        assert_eq!(file.next(), Next::Stored(4));
        file.advance(3);
        assert_eq!(file.next(), Next::Stored(1));
        file.advance(1);
        assert_eq!(file.next(), Next::Hole(2));
        file.advance(2);
        assert_eq!(file.next(), Next::End);
    }

    #[test]
    fn a_map_that_cannot_be_is_refused() {
        assert!(SparseFile::new(vec![(4, 4), (2, 1)], 10, 8).is_err());
        assert!(SparseFile::new(vec![(4, 8)], 10, 8).is_err());
        assert!(SparseFile::new(vec![(0, 8)], 10, 7).is_err());
        assert!(SparseFile::new(vec![(u64::MAX, 2)], u64::MAX, 7).is_err());
    }
}
