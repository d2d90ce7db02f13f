//! What was too large, and is not fetched to its bound a second time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use reqwest::Url;

use super::silence::host_of;

/// A server that gave so many too large answers, one after another, is asked no more.
const IN_A_ROW: u32 = 3;

/// Files that are known to be too large. What is beyond is not known: the servers that gave them are not asked by then.
const ENTRIES: usize = 4096;

/// For as long as the process runs: what is larger than a bound does not become smaller by waiting.
#[derive(Debug, Default)]
pub(super) struct Oversize(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    urls: HashSet<String>,
    /// By host: how many of its last answers were too large.
    in_a_row: HashMap<String, u32>,
}

impl Oversize {
    /// Whether this file is known to be too large.
    pub(super) fn contains(&self, url: &Url) -> bool {
        self.with(|state| state.urls.contains(url.as_str()))
    }

    /// Whether the host gives nothing else.
    pub(super) fn is_all_of(&self, url: &Url) -> bool {
        self.with(|state| state.in_a_row.get(&host_of(url)).is_some_and(|count| *count >= IN_A_ROW))
    }

    /// This file is too large.
    pub(super) fn keep(&self, url: &Url) {
        self.with(|state| {
            if state.urls.len() < ENTRIES {
                state.urls.insert(url.to_string());
            }
        });
    }

    /// The same of one whose server did not say so.
    pub(super) fn note(&self, url: &Url) {
        self.keep(url);
        self.count(url);
    }

    /// An answer had no end that there was room for. Alone it may have had it.
    pub(super) fn count(&self, url: &Url) {
        self.with(|state| {
            let count = state.in_a_row.entry(host_of(url)).or_default();
            *count = count.saturating_add(1);
        });
    }

    /// The host gave another answer.
    pub(super) fn forgive(&self, url: &Url) {
        self.with(|state| {
            // Who is asked no more may still have answers under way.
            if let Some(count) = state.in_a_row.get_mut(&host_of(url)).filter(|count| **count < IN_A_ROW) {
                *count = 0;
            }
        });
    }

    fn with<T>(&self, of: impl FnOnce(&mut State) -> T) -> T {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_whose_last_three_answers_were_too_large_is_asked_no_more() {
        let url = |text: &str| Url::parse(text).unwrap();
        let oversize = Oversize::default();
        // Whoever says how large its files are may have others.
        for name in ["1", "2", "3", "4"] {
            oversize.keep(&url(&format!("http://host/{name}")));
        }
        assert!(oversize.contains(&url("http://host/4")) && !oversize.is_all_of(&url("http://host/5")));
        for name in ["a", "b"] {
            oversize.note(&url(&format!("http://host/{name}")));
        }
        assert!(oversize.contains(&url("http://host/a")) && !oversize.contains(&url("http://host/c")));
        oversize.forgive(&url("http://host/c"));
        oversize.note(&url("http://host/d"));
        oversize.note(&url("http://host/e"));
        assert!(!oversize.is_all_of(&url("http://host/f")));
        oversize.count(&url("http://host/f"));
        oversize.forgive(&url("http://host/g"));
        assert!(oversize.is_all_of(&url("http://host/f")) && !oversize.contains(&url("http://host/f")));
        assert!(!oversize.is_all_of(&url("http://other/f")));
    }
}
