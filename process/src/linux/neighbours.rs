//! The mappings of a process by the files that they map, so that a question about one of them does not look at all.

use std::collections::HashMap;

use symseal_module::Avma;

use crate::{Device, Mapping};

/// Which file is mapped, as maps tells it. A process may have 60,000 mappings of one: compilers at run time map their code
/// twice, page by page.
pub(super) type MappedFile = (Device, u64);

/// Mappings, with what lies next to each.
pub(super) struct Neighbours<'m> {
    mappings: &'m [Mapping],
    /// The mappings of a file's first byte that can be read, by rising address.
    heads: HashMap<(MappedFile, &'m [u8]), Vec<usize>>,
    /// For each mapping the end of the nearest one below it that maps another file.
    foreign_end_below: Vec<Avma>,
    /// For each mapping the start of the nearest one above it that maps another file.
    foreign_start_above: Vec<Avma>,
}

impl<'m> Neighbours<'m> {
    /// Of mappings that rise and do not overlap, as the kernel lists them.
    pub(super) fn of(mappings: &'m [Mapping]) -> Self {
        let mut heads: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, mapping) in mappings.iter().enumerate() {
            if mapping.offset == 0 && mapping.readable {
                heads.entry((file_of(mapping), mapping.path.as_slice())).or_default().push(index);
            }
        }
        let below = beyond_each(mappings.iter(), |mapping| mapping.end, Avma(0));
        let mut above = beyond_each(mappings.iter().rev(), |mapping| mapping.start, Avma(u64::MAX));
        above.reverse();
        Self { mappings, heads, foreign_end_below: below, foreign_start_above: above }
    }

    /// The mapping of the first byte of the file that is mapped at `code`, nearest below it; by index.
    pub(super) fn head(&self, code: &Mapping) -> Option<usize> {
        let heads = self.heads.get(&(file_of(code), code.path.as_slice()))?;
        let start_of = |index: &usize| self.mappings.get(*index).map(|mapping| mapping.start);
        let after = heads.partition_point(|index| start_of(index).is_some_and(|start| start <= code.start));
        heads.get(after.checked_sub(1)?).copied()
    }

    /// Between which addresses no other file is mapped around the mapping with this index.
    pub(super) fn room(&self, index: usize) -> (Avma, Avma) {
        let below = self.foreign_end_below.get(index).copied().unwrap_or_default();
        (below, self.foreign_start_above.get(index).copied().unwrap_or(Avma(u64::MAX)))
    }
}

/// The file that is mapped.
pub(super) fn file_of(mapping: &Mapping) -> MappedFile {
    (mapping.device, mapping.inode)
}

/// For each mapping the border of the nearest one that came before it and maps another file; `none` where there is none.
fn beyond_each<'m>(mappings: impl Iterator<Item = &'m Mapping>, border: fn(&Mapping) -> Avma, none: Avma) -> Vec<Avma> {
    // The last file, the border of its last mapping, and the border of the file before it.
    let (mut last, mut last_border, mut other) = (None, none, none);
    let mut beyond = Vec::new();
    for mapping in mappings {
        let file = Some(file_of(mapping)).filter(|(_, inode)| *inode != 0);
        if file.is_some() && file != last {
            (other, last) = (last_border, file);
        }
        if file.is_some() {
            last_border = border(mapping);
            beyond.push(other);
        } else {
            // Of memory without a file, such as the vDSO, every file is another one.
            beyond.push(last_border);
        }
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::parse;

    const TEXT: &str = "\
1000-2000 r--p 00000000 08:01 1 /a
2000-3000 r-xp 00001000 08:01 1 /a
3000-4000 rw-p 00000000 00:00 0
4000-5000 r--p 00000000 08:01 2 /b
5000-6000 r-xp 00001000 08:01 2 /b
6000-7000 r-xp 00001000 08:01 1 /a
7000-8000 r--p 00000000 08:01 1 /a
8000-9000 r-xp 00001000 08:01 1 /a
9000-a000 r-xp 00000000 00:00 0 [vdso]
";

    /// The slow way: a look at all mappings.
    fn room(mappings: &[Mapping], code: &Mapping) -> (Avma, Avma) {
        let foreign = || mappings.iter().filter(|mapping| mapping.inode != 0 && file_of(mapping) != file_of(code));
        let below = foreign().filter(|mapping| mapping.end <= code.start).map(|mapping| mapping.end).max();
        let above = foreign().filter(|mapping| mapping.start >= code.end).map(|mapping| mapping.start).min();
        (below.unwrap_or(Avma(0)), above.unwrap_or(Avma(u64::MAX)))
    }

    #[test]
    fn what_lies_around_a_mapping_is_what_a_look_at_all_finds() {
        let mappings = parse(TEXT.as_bytes()).unwrap();
        let neighbours = Neighbours::of(&mappings);
        for (index, mapping) in mappings.iter().enumerate() {
            assert_eq!(neighbours.room(index), room(&mappings, mapping), "{mapping:?}");
        }
    }

    #[test]
    fn the_head_is_the_nearest_one_below() {
        let mappings = parse(TEXT.as_bytes()).unwrap();
        let neighbours = Neighbours::of(&mappings);
        let heads: Vec<_> = mappings.iter().map(|mapping| neighbours.head(mapping)).collect();
        assert_eq!(heads, [Some(0), Some(0), Some(2), Some(3), Some(3), Some(0), Some(6), Some(6), Some(8)]);
    }
}
