//! This machine's clock against another's.

use std::time::{Duration, SystemTime};

use super::Finding;

/// Clocks that differ by more than this are told: times of what one of them wrote read oddly by the other.
const APART: Duration = Duration::from_secs(5);

/// And by more than this are a problem: S3 refuses requests whose time is more than 15 minutes from its own, and tokens and seals begin and end at
/// other times.
const FAR_APART: Duration = Duration::from_secs(5 * 60);

/// How far another clock is from this one, where it showed `theirs` at `ours`; `exact`: how finely it tells the time.
pub(super) fn look(id: &'static str, whose: &str, theirs: SystemTime, ours: SystemTime, exact: Duration) -> Finding {
    let (apart, how) = match theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    let apart = apart.saturating_sub(exact);
    let found = format!("the clock of {whose} is {} s {how} this machine's", apart.as_secs());
    let advice = "let both machines take the time from the same place (NTP)";
    if apart > FAR_APART {
        Finding::problem(id, found, advice)
    } else if apart > APART {
        Finding::warning(id, found, advice)
    } else {
        Finding::ok(id, format!("the clock of {whose} is that of this machine, but for {} s", apart.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Standing;

    #[test]
    fn clocks_that_differ_are_told_by_how_much() {
        let ours = SystemTime::now();
        let check = |theirs, expected, part: &str| {
            let found = look("database.clock", "the database", theirs, ours, Duration::from_secs(1));
            assert!(found.standing == expected && found.found.contains(part), "{found:?}");
        };
        let seconds = Duration::from_secs;
        check(ours, Standing::Ok, "but for 0 s");
        check(ours + seconds(6), Standing::Ok, "but for 5 s");
        check(ours + seconds(61), Standing::Warning, "60 s ahead of");
        check(ours - seconds(61), Standing::Warning, "60 s behind");
        check(ours - seconds(3601), Standing::Problem, "3600 s behind");
    }
}
