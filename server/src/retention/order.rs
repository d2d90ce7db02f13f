//! Which of the releases in one place is the newer one.
//!
//! A release whose seal says its sequence stands where its sequence puts it among those that say theirs; of two equal ones, and of those that say
//! none, the later arrival is the newer one. A bundle that is pushed once more arrives anew, and keeps its sequence.

use std::collections::HashMap;

use super::channel::Channel;
use super::{Item, rule_about};
use crate::blobs::BlobDigest;
use crate::config::RetentionConfig;

/// Where releases are counted: a rule, a name and a channel.
type Place<'i> = (usize, &'i str, Option<&'i str>);

/// How many newer releases stand before each in its places.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<(usize, BlobDigest, Option<String>), u32>);

impl Places {
    /// Of items that are ordered by their arrival, the latest first. A release counts in each of its channels, also where another one keeps it.
    pub(super) fn of(rules: &[&RetentionConfig], items: &[Item]) -> Self {
        let mut places: HashMap<Place<'_>, Vec<(&Item, &Channel)>> = HashMap::new();
        for item in items {
            for channel in &item.channels {
                let Some((number, _)) = rule_about(rules, channel) else { continue };
                let place = (number, item.entry.name.as_str(), channel.name.as_deref());
                places.entry(place).or_default().push((item, channel));
            }
        }
        let mut before = HashMap::new();
        for ((number, ..), releases) in places {
            let sequences: Vec<Option<u64>> = releases.iter().map(|(_, channel)| channel.sequence).collect();
            for ((item, channel), newer) in releases.into_iter().zip(newer_ones(&sequences)) {
                before.insert((number, item.digest.clone(), channel.name.clone()), newer);
            }
        }
        Self(before)
    }

    /// How many newer releases stand before this one.
    pub(super) fn before(&self, rule: usize, item: &Item, channel: &Channel) -> u32 {
        self.0.get(&(rule, item.digest.clone(), channel.name.clone())).copied().unwrap_or_default()
    }
}

/// How many releases stand before each, by the sequences of all, the latest arrival first: those without one stay where they arrived, and the others
/// share the remaining places by their sequences.
fn newer_ones(sequences: &[Option<u64>]) -> Vec<u32> {
    let sequenced = || (0_u32..).zip(sequences).filter_map(|(at, sequence)| Some((at, (*sequence)?)));
    let mut by_sequence: Vec<(u32, u64)> = sequenced().collect();
    // Stable: equal ones stay in the order of their arrival.
    by_sequence.sort_by_key(|(_, sequence)| std::cmp::Reverse(*sequence));
    let mut newer: Vec<u32> = (0..).take(sequences.len()).collect();
    for ((place, _), (release, _)) in sequenced().zip(by_sequence) {
        if let Some(slot) = newer.get_mut(release as usize) {
            *slot = place;
        }
    }
    newer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_go_before_arrivals_and_arrivals_decide_the_rest() {
        for (sequences, expected) in [
            (vec![], vec![]),
            (vec![None, None, None], vec![0, 1, 2]),
            (vec![Some(1), Some(2), Some(3)], vec![2, 1, 0]),
            (vec![Some(7), Some(7), Some(9)], vec![1, 2, 0]),
            (vec![Some(3), None, Some(7), Some(5)], vec![3, 1, 0, 2]),
            (vec![None, Some(u64::MAX), Some(0)], vec![0, 1, 2]),
        ] {
            assert_eq!(newer_ones(&sequences), expected, "{sequences:?}");
        }
    }
}
