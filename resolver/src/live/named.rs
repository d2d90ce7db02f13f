//! Frames that were named before, by module and address.

use std::sync::Arc;

use symseal_module::Rva;

use super::shelf::CacheStatistics;
use super::tally::Tally;
use crate::slots::{Slots, hash_of};
use crate::{ResolvedFrame, Text};

/// An address whose name was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NamedAddress {
    /// The names of its module as they were read at one time.
    pub(super) serial: u64,
    /// The address in the module.
    pub(super) rva: Rva,
    /// Whether it was the instruction itself.
    pub(super) exact: bool,
}

/// Frames by address. Asking takes no lock.
#[derive(Debug)]
pub(super) struct NamedAddresses {
    frames: Slots<NamedAddress, Arc<ResolvedFrame>>,
    tally: Tally,
}

impl NamedAddresses {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { frames: Slots::with_capacity(most), tally: Tally::default() }
    }

    /// What `of` makes of the frame, where the address was named before.
    pub(super) fn find_with<T>(&self, address: NamedAddress, of: impl Fn(&ResolvedFrame) -> T) -> Option<T> {
        let found = self.frames.find_with(hash_of(&address), |known| *known == address, |frame| of(frame));
        self.tally.count(found.is_some());
        found
    }

    pub(super) fn keep(&self, address: NamedAddress, frame: &ResolvedFrame) {
        self.frames.put(hash_of(&address), address, Arc::new(frame.clone()));
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        let (hits, misses) = self.tally.counted();
        let sum = |(entries, bytes): (usize, u64), frame: &Arc<ResolvedFrame>| {
            (entries.saturating_add(1), bytes.saturating_add(bytes_of(frame)))
        };
        let (entries, bytes) = self.frames.fold((0, 0), sum);
        CacheStatistics { hits, misses, entries, bytes }
    }
}

/// Estimated.
fn bytes_of(frame: &ResolvedFrame) -> u64 {
    let text = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
    let frames = frame.frames.iter().map(|frame| {
        size_of_val(frame)
            .saturating_add(text(&frame.function))
            .saturating_add(text(&frame.symbol))
            .saturating_add(text(&frame.file))
    });
    let tried = frame.tried.iter().map(|tried| size_of_val(tried).saturating_add(tried.detail.len()));
    frames.chain(tried).fold(size_of_val(frame), usize::saturating_add) as u64
}
