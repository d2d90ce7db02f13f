//! Periods as an operator writes them.

use std::time::Duration;

/// A whole number with its unit: `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// A text of another form, or a period of more than a hundred years.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?}: expected a whole number with its unit, such as 90s, 30m, 24h or 7d");
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(refused)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    // Beyond a hundred years nothing is a period.
    let bounded = number.checked_mul(milliseconds).filter(|found| *found <= 100 * 366 * 24 * 60 * 60 * 1000);
    bounded.map(Duration::from_millis).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604_800)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "h", "-1h", "1.5h", "1h30m", "5 h", "99999999999d", "18446744073709551616s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
