//! Debug ids that clients asked for and no bundle has: what an operator may want to publish next.
//!
//! Anybody may ask for any id, so what is kept is bounded: the ids that are asked for most often stay, by the "space saving" algorithm (Metwally,
//! Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005). A new id takes the place
//! of the one that was asked for least, and its count then is a bound from above; how far it may be off is kept beside it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use symseal_seal::{UtcSeconds, is_invisible};

use crate::access::hide_secrets;
use crate::clock::now;
use crate::debug_files::Key;

/// Parts with a lock each, so that requests seldom wait for each other.
const SHARDS: usize = 16;

/// Ids kept in each part.
const PLACES: usize = 128;

/// The longest file name, alone or with a code id, that is kept, in bytes.
const NAME_LIMIT: usize = 128;

/// The ids that are asked for and missing.
#[derive(Debug, Default)]
pub(crate) struct WantedIds {
    hashes: RandomState,
    shards: [Mutex<HashMap<Key, Place>>; SHARDS],
}

#[derive(Debug)]
struct Place {
    asked: u64,
    /// How much of `asked` may be that of ids that had this place before.
    inherited: u64,
    last: UtcSeconds,
    name: Option<Box<str>>,
}

/// An id that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedId {
    /// The id.
    pub(crate) key: Key,
    /// The file that was asked for, where the client named one.
    pub(crate) name: Option<Box<str>>,
    /// It was asked for at least so often since the start.
    pub(crate) asked: u64,
    /// When it was asked for last.
    pub(crate) last: UtcSeconds,
}

impl WantedIds {
    /// Counts a request for an id that nobody has.
    pub(crate) fn count(&self, key: &Key, name: Option<&str>) {
        // Pages for people show it.
        if let Key::Image(text) = key
            && !is_shown(text)
        {
            return;
        }
        let at = usize::try_from(self.hashes.hash_one(key)).unwrap_or_default() % SHARDS;
        let Some(shard) = self.shards.get(at) else { return };
        let last = now();
        let mut places = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get_mut(key) {
            (place.asked, place.last) = (place.asked.saturating_add(1), last);
            return;
        }
        let mut inherited = 0;
        if places.len() >= PLACES
            && let Some(least) =
                places.iter().min_by_key(|(_, place)| (place.asked, place.last)).map(|(key, _)| key.clone())
        {
            inherited = places.remove(&least).map_or(0, |place| place.asked);
        }
        let name = name.filter(|name| is_shown(name)).map(Into::into);
        places.insert(key.clone(), Place { asked: inherited.saturating_add(1), inherited, last, name });
    }

    /// The ids that `is_missing` still, those that were asked for most often first.
    pub(crate) fn list(&self, is_missing: impl Fn(&Key) -> bool) -> Vec<WantedId> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let places = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(places.iter().map(|(key, place)| WantedId {
                key: key.clone(),
                name: place.name.clone(),
                asked: place.asked.saturating_sub(place.inherited),
                last: place.last,
            }));
        }
        all.retain(|wanted| is_missing(&wanted.key));
        all.sort_by_key(|wanted| (std::cmp::Reverse((wanted.asked, wanted.last)), wanted.key.to_string()));
        all
    }
}

/// Whether a stranger's text is one to show: short, without characters that nobody sees or that turn the text around, and without a token, which somebody
/// may have put in the wrong place of a path.
fn is_shown(text: &str) -> bool {
    let is_clear = |character: char| !character.is_control() && !is_invisible(character);
    text.len() <= NAME_LIMIT && text.chars().all(is_clear) && hide_secrets(text) == text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::Id(format!("{number:016x}").parse().unwrap())
    }

    #[test]
    fn what_is_asked_for_often_stays_while_a_flood_passes() {
        let wanted = WantedIds::default();
        for round in 0..20_000 {
            wanted.count(&key(1_000_000 + round), None);
            if round % 20 == 0 {
                wanted.count(&key(7), Some("app.pdb"));
            }
        }
        let list = wanted.list(|_| true);
        assert!(list.len() <= SHARDS * PLACES);
        let first = list.first().unwrap();
        assert_eq!((&first.key, first.name.as_deref()), (&key(7), Some("app.pdb")));
        assert!((500..=1000).contains(&first.asked), "{}", first.asked);
    }

    #[test]
    fn a_token_in_the_wrong_place_of_a_path_is_not_kept() {
        let wanted = WantedIds::default();
        let token = format!("symseal_{}", "0123456789abcdef".repeat(4));
        wanted.count(&Key::image(&format!("x-{token}.dll"), "5f3a1b2c1f000"), None);
        wanted.count(&key(1), Some(&token));
        let list = wanted.list(|_| true);
        assert!(list.len() == 1 && list.iter().all(|wanted| wanted.name.is_none()), "{list:?}");
    }

    #[test]
    fn what_nobody_could_read_is_not_kept() {
        let wanted = WantedIds::default();
        for name in ["app\u{202e}exe.fdp", "a\0b", "a\nb", "\u{200b}", &"x".repeat(NAME_LIMIT)] {
            wanted.count(&Key::image(name, "5f3a1b2c1f000"), None);
        }
        assert!(wanted.list(|_| true).is_empty());
        wanted.count(&key(1), Some("app\u{202e}bdp.exe"));
        wanted.count(&Key::image("Größe.dll", "5f3a1b2c1f000"), None);
        let list = wanted.list(|_| true);
        assert!(list.len() == 2 && list.iter().all(|wanted| wanted.name.is_none()), "{list:?}");
    }

    #[test]
    fn what_has_arrived_is_not_wanted_any_more_and_long_names_are_not_kept() {
        let wanted = WantedIds::default();
        wanted.count(&key(1), Some(&"x".repeat(NAME_LIMIT + 1)));
        wanted.count(&key(2), None);
        wanted.count(&key(2), None);
        let list = wanted.list(|key| *key != super::tests::key(2));
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].asked, list[0].name.as_deref()), (1, None));
    }
}
