//! What the log was told of at the last look, so that it is not told again at each one.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files, each with its state, by a number for both.
#[derive(Debug, Default)]
pub(super) struct Told {
    hasher: RandomState,
    looks: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    last: HashSet<u64>,
    this: HashSet<u64>,
}

impl Told {
    /// A look begins: what is not met again in it is news the next time.
    pub(super) fn begin(&self) {
        let mut looks = self.looks();
        looks.last = std::mem::take(&mut looks.this);
    }

    /// Whether a file was in another state at the last look, and it was not told in this one.
    pub(super) fn is_news(&self, file: &str, state: impl Hash) -> bool {
        let number = self.hasher.hash_one((file, state));
        let mut looks = self.looks();
        looks.this.insert(number) && !looks.last.contains(&number)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_once_until_its_state_is_another_or_it_was_well_meanwhile() {
        let told = Told::default();
        let look = |state: Option<&str>| {
            told.begin();
            state.map(|state| (told.is_news("a", state), told.is_news("a", state)))
        };
        assert_eq!(look(Some("denied")), Some((true, false)));
        assert_eq!(look(Some("denied")), Some((false, false)));
        assert_eq!(look(Some("broken")), Some((true, false)));
        look(None);
        assert_eq!(look(Some("broken")), Some((true, false)));
    }
}
