//! Times in policies: whole seconds, UTC, as RFC 3339 text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds since 1970-01-01T00:00:00Z. Its text is `2026-11-20T12:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcSeconds(pub i64);

/// The text is no RFC 3339 time in UTC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as 2026-11-20T12:00:00Z, found {found:?}")]
pub struct ParseTimeError {
    found: String,
}

const SECONDS_PER_DAY: i64 = 86_400;

impl UtcSeconds {
    /// This time plus whole days.
    #[must_use]
    pub fn plus_days(self, days: u32) -> Self {
        Self(self.0.saturating_add(i64::from(days) * SECONDS_PER_DAY))
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant's `days_from_civil`).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl fmt::Display for UtcSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Years outside 0000–9999 have no RFC 3339 text; they are shown at the nearest end.
        let seconds = self.0.clamp(-62_167_219_200, 253_402_300_799);
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let rest = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

fn parse(text: &str) -> Option<UtcSeconds> {
    let body = text.strip_suffix('Z')?;
    // Sigstore's own trusted roots carry fractions of a second; they round down.
    let whole = match body.split_once('.') {
        Some((whole, fraction)) => {
            let digits = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
            digits.then_some(whole)?
        }
        None => body,
    };
    let (date, clock) = whole.split_once('T')?;
    let number = |text: &str, width: usize| -> Option<i64> {
        (text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let mut clock = clock.split(':');
    let (hour, minute, second) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    if date.next().is_some() || clock.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day that the month does not have would come back as a day of the next one.
    if civil_from_days(days) != (year, month, day) {
        return None;
    }
    Some(UtcSeconds(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second))
}

impl FromStr for UtcSeconds {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        parse(text).ok_or_else(|| ParseTimeError { found: text.chars().take(40).collect() })
    }
}

impl Serialize for UtcSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// From when to when something holds; both ends belong to it, an absent end is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second, if bounded.
    pub not_before: Option<UtcSeconds>,
    /// Last second, if bounded.
    pub not_after: Option<UtcSeconds>,
}

impl Validity {
    /// Whether `at` lies within.
    #[must_use]
    pub fn contains(&self, at: UtcSeconds) -> bool {
        self.not_before.is_none_or(|start| start <= at) && self.not_after.is_none_or(|end| at <= end)
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.not_before, self.not_after) {
            (None, None) => f.write_str("any time"),
            (Some(start), None) => write!(f, "from {start}"),
            (None, Some(end)) => write!(f, "until {end}"),
            (Some(start), Some(end)) => write!(f, "from {start} until {end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(text.parse::<UtcSeconds>().ok().map(|time| time.0), expected, "{text}");
    }

    #[test]
    fn known_times_are_read() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2000-02-29T12:34:56Z", Some(951_827_696));
        check("2026-11-20T00:00:00Z", Some(1_795_132_800));
        check("2021-01-12T11:53:27.123456789Z", Some(1_610_452_407));
        check("1969-12-31T23:59:59Z", Some(-1));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "2026-11-20",
            "2026-11-20T00:00:00",
            "2026-11-20T00:00:00+00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "+026-01-01T00:00:00Z",
            "2026-1-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01 00:00:00Z",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn writing_and_reading_agree_over_four_centuries() {
        for day in (-80_000..140_000).step_by(37) {
            let time = UtcSeconds(day * SECONDS_PER_DAY + day.rem_euclid(SECONDS_PER_DAY));
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn both_ends_of_a_validity_belong_to_it() {
        let validity = Validity { not_before: Some(UtcSeconds(10)), not_after: Some(UtcSeconds(20)) };
        let inside: Vec<bool> = [9, 10, 20, 21].map(|at| validity.contains(UtcSeconds(at))).to_vec();
        assert_eq!(inside, [false, true, true, false]);
    }
}
