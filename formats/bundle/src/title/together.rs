//! The titles of one bundle, which must be files beside each other on every file system.

use std::collections::BTreeMap;

use super::{SEAL, SYMBOL_INDEX, rules::fold};

/// Titles that were seen, by what is left of them where case does not count.
#[derive(Debug)]
pub(crate) struct Titles<'a> {
    seen: BTreeMap<String, &'a str>,
}

impl Default for Titles<'_> {
    /// With the titles that every bundle has.
    fn default() -> Self {
        Self { seen: [SYMBOL_INDEX, SEAL].into_iter().map(|title| (fold(title), title)).collect() }
    }
}

impl<'a> Titles<'a> {
    /// Adds a title, or says which one it meets on a file system that ignores case.
    pub(crate) fn add(&mut self, title: &'a str) -> Result<(), String> {
        match self.seen.insert(fold(title), title) {
            None => Ok(()),
            Some(other) if other == title => Err(format!("two files have the title {title:?}")),
            Some(other) => Err(format!("the titles {other:?} and {title:?} are one where case does not count")),
        }
    }

    /// Checks that no title is a directory of another one.
    pub(crate) fn check_directories(&self) -> Result<(), String> {
        for (folded, title) in &self.seen {
            for (at, _) in folded.match_indices('/') {
                if let Some(file) = folded.get(..at).and_then(|directory| self.seen.get(directory)) {
                    return Err(format!("the title {file:?} is a directory of {title:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_files_beside_each_other_whatever_the_file_system() {
        let mut titles = Titles::default();
        for title in ["a/b", "a/c", "ab", "b/a.debug", "b/a"] {
            titles.add(title).unwrap();
        }
        titles.check_directories().unwrap();
        for title in ["a/b", "A/b", "Symbol_Index.json", "AB"] {
            assert!(Titles { seen: titles.seen.clone() }.add(title).is_err(), "{title}");
        }
        for title in ["a", "A/B/c", "Ab/x/y", "symbol_index.JSON/x"] {
            let mut more = Titles { seen: titles.seen.clone() };
            more.add(title).unwrap();
            assert!(more.check_directories().is_err(), "{title}");
        }
    }
}
