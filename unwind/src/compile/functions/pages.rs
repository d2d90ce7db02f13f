//! What is known of the instructions of a function whose end nobody may have told: memory for those that were reached alone.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::state::State;

/// The state before an instruction and its length in bytes, if some path leads to it.
pub(super) type Known = Option<(State, u8)>;

/// Places in a page.
const PAGE: usize = 32;

/// By place, counted in units of an instruction.
#[derive(Default)]
pub(super) struct States {
    pages: Vec<Option<Box<[Known; PAGE]>>>,
}

impl States {
    pub(super) fn get(&self, place: usize) -> Known {
        self.pages.get(place / PAGE)?.as_ref()?.get(place % PAGE).copied().flatten()
    }

    pub(super) fn set(&mut self, place: usize, known: Known) {
        if self.pages.len() <= place / PAGE {
            self.pages.resize_with(place / PAGE + 1, || None);
        }
        let page = self.pages.get_mut(place / PAGE).map(|page| page.get_or_insert_with(|| Box::new([None; PAGE])));
        if let Some(entry) = page.and_then(|page| page.get_mut(place % PAGE)) {
            *entry = known;
        }
    }

    /// The places that some path leads to, by rising place.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &(State, u8))> {
        let pages = self.pages.iter().enumerate().filter_map(|(number, page)| Some((number, page.as_ref()?)));
        pages.flat_map(|(number, page)| {
            let entries = page.iter().enumerate();
            entries.filter_map(move |(at, known)| Some((number * PAGE + at, known.as_ref()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_in_order_wherever_they_lie() {
        let mut states = States::default();
        for place in [1000, 3, 32, 31] {
            states.set(place, Some((State::ENTRY, 2)));
        }
        states.set(32, None);
        assert_eq!(states.iter().map(|(place, _)| place).collect::<Vec<_>>(), [3, 31, 1000]);
        assert!(states.get(31).is_some() && states.get(32).is_none() && states.get(5000).is_none());
    }
}
