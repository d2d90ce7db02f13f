//! Of which version a database's tables are, against those that this program makes.

use sqlx::migrate::Migrator;

/// The version of a database's tables: the number of the last step that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// There are none.
    Empty,
    /// This program's.
    Same(i64),
    /// A start of this program takes the steps between.
    Older {
        /// The database's.
        found: i64,
        /// This program's.
        own: i64,
    },
    /// This program cannot use them.
    Newer {
        /// The database's.
        found: i64,
        /// This program's.
        own: i64,
    },
    /// A step was not this program's.
    Other(i64),
    /// A step was begun and did not end.
    Unfinished(i64),
}

/// A step that was taken, as sqlx records it in `_sqlx_migrations`: its number, whether it ended, and the digest of its text.
pub(super) type Step = (i64, bool, Vec<u8>);

/// What is asked of that table.
pub(super) const STEPS: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

impl Schema {
    /// By the steps that were taken.
    pub(super) fn of(steps: &[Step], own: &Migrator) -> Self {
        let own_last = own.iter().map(|step| step.version).max().unwrap_or_default();
        let Some((found, ..)) = steps.last() else { return Self::Empty };
        if let Some((version, ..)) = steps.iter().find(|(_, is_done, _)| !is_done) {
            return Self::Unfinished(*version);
        }
        if *found > own_last {
            return Self::Newer { found: *found, own: own_last };
        }
        let is_own = |(version, _, checksum): &&Step| {
            own.iter().any(|step| step.version == *version && *step.checksum == **checksum)
        };
        match steps.iter().find(|step| !is_own(step)) {
            Some((version, ..)) => Self::Other(*version),
            None if *found < own_last => Self::Older { found: *found, own: own_last },
            None => Self::Same(*found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWN: Migrator = sqlx::migrate!("../migrations/sqlite");

    #[test]
    fn steps_are_held_against_this_programs() {
        let all: Vec<Step> = OWN.iter().map(|step| (step.version, true, step.checksum.to_vec())).collect();
        let own = all.last().unwrap().0;
        assert_eq!(Schema::of(&[], &OWN), Schema::Empty);
        assert_eq!(Schema::of(&all, &OWN), Schema::Same(own));
        assert_eq!(Schema::of(&all[..1], &OWN), Schema::Older { found: 1, own });
        let with = |step: Step| [all.clone(), vec![step]].concat();
        assert_eq!(Schema::of(&with((99, true, vec![1])), &OWN), Schema::Newer { found: 99, own });
        assert_eq!(Schema::of(&with((99, false, vec![1])), &OWN), Schema::Unfinished(99));
        let mut changed = all.clone();
        changed[1].2 = vec![0; 48];
        assert_eq!(Schema::of(&changed, &OWN), Schema::Other(changed[1].0));
    }
}
