//! `Range` of a request (RFC 9110, section 14) and `Content-Range` of an upload chunk (OCI distribution-spec).

/// A part of a representation: first byte and number of bytes, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// The first byte.
    pub(crate) start: u64,
    /// Bytes in the part.
    pub(crate) length: u64,
}

/// What to answer to a `Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranged {
    /// 200 with everything: no range, one of another unit, or several.
    Whole,
    /// 206 with this part.
    Part(ByteRange),
    /// 416: nothing of what is here was asked for.
    Unsatisfiable,
}

/// Reads a `Range` header against a representation of `size` bytes.
///
/// A range that ends beyond the end is clipped. Several ranges are answered with everything, which RFC 9110 allows:
/// no client of ours asks for them, and a multipart answer is a way to make a server work.
pub(crate) fn parse_range(header: Option<&[u8]>, size: u64) -> Ranged {
    let Some(spec) = header.and_then(|header| std::str::from_utf8(header).ok()) else { return Ranged::Whole };
    let Some((unit, spec)) = spec.split_once('=') else { return Ranged::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return Ranged::Whole;
    }
    let Some((first, last)) = spec.trim().split_once('-') else { return Ranged::Whole };
    match (number(first), number(last)) {
        (Number::Absent, Number::Value(suffix)) => {
            let length = suffix.min(size);
            if length == 0 { Ranged::Unsatisfiable } else { Ranged::Part(ByteRange { start: size - length, length }) }
        }
        (Number::Value(start), last @ (Number::Absent | Number::Value(_))) => {
            let last = match last {
                Number::Value(last) => last,
                _ => u64::MAX,
            };
            if start >= size || last < start {
                return Ranged::Unsatisfiable;
            }
            let end = last.min(size - 1);
            Ranged::Part(ByteRange { start, length: end - start + 1 })
        }
        _ => Ranged::Whole,
    }
}

/// Where an upload chunk's bytes go: first and last byte, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// The first byte.
    pub(crate) start: u64,
    /// Bytes announced.
    pub(crate) length: u64,
}

/// Reads a chunk's `Content-Range`: `0-1023` as the OCI specification has it, or with `bytes ` and `/total` as in HTTP.
/// `None` when it is neither.
pub(crate) fn parse_content_range(header: &[u8]) -> Option<ContentRange> {
    let text = std::str::from_utf8(header).ok()?.trim();
    let text = text.strip_prefix("bytes").map_or(text, str::trim_start);
    let text = text.split_once('/').map_or(text, |(range, _)| range);
    let (first, last) = text.split_once('-')?;
    match (number(first), number(last)) {
        (Number::Value(start), Number::Value(last)) => {
            Some(ContentRange { start, length: last.checked_sub(start)?.checked_add(1)? })
        }
        _ => None,
    }
}

enum Number {
    Absent,
    Value(u64),
    Malformed,
}

/// Digits only: `u64::from_str` would take a plus sign.
fn number(text: &str) -> Number {
    let text = text.trim();
    if text.is_empty() {
        return Number::Absent;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Number::Malformed;
    }
    // Digits that do not fit mean "beyond any end".
    Number::Value(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: &str, size: u64, expected: Ranged) {
        assert_eq!(parse_range(Some(header.as_bytes()), size), expected, "{header} of {size}");
    }

    fn part(start: u64, length: u64) -> Ranged {
        Ranged::Part(ByteRange { start, length })
    }

    #[test]
    fn ranges_are_clipped_to_what_is_there() {
        check("bytes=0-0", 10, part(0, 1));
        check("bytes=500-1499", 2000, part(500, 1000));
        check("bytes=500-", 2000, part(500, 1500));
        check("bytes=-500", 2000, part(1500, 500));
        check("bytes=-5000", 2000, part(0, 2000));
        check("bytes=1000-5000", 2000, part(1000, 1000));
        check("bytes=0-99999999999999999999999", 10, part(0, 10));
    }

    #[test]
    fn what_lies_outside_is_unsatisfiable() {
        check("bytes=500-0", 2000, Ranged::Unsatisfiable);
        check("bytes=2000-5000", 2000, Ranged::Unsatisfiable);
        check("bytes=-0", 2000, Ranged::Unsatisfiable);
        check("bytes=0-", 0, Ranged::Unsatisfiable);
    }

    #[test]
    fn other_units_several_ranges_and_nonsense_get_everything() {
        for header in ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-x", "items=0-1", "bytes=0-1,3-4"] {
            check(header, 10, Ranged::Whole);
        }
        assert_eq!(parse_range(None, 10), Ranged::Whole);
        assert_eq!(parse_range(Some(b"bytes=\xff-1"), 10), Ranged::Whole);
    }

    #[test]
    fn a_chunk_says_where_it_goes_in_both_spellings() {
        let chunk = Some(ContentRange { start: 10, length: 5 });
        assert_eq!(parse_content_range(b"10-14"), chunk);
        assert_eq!(parse_content_range(b"bytes 10-14/*"), chunk);
        for header in [&b""[..], b"10", b"10-", b"-14", b"14-10", b"+1-2", b"0-18446744073709551615", b"\xff"] {
            assert_eq!(parse_content_range(header), None);
        }
    }

    proptest! {
        #[test]
        fn a_part_is_what_slicing_gives(size in 0_u64..300, first in 0_u64..400, last in 0_u64..400) {
            let bytes: Vec<u64> = (0..size).collect();
            let found = parse_range(Some(format!("bytes={first}-{last}").as_bytes()), size);
            let expected: Vec<u64> = bytes.iter().copied().filter(|byte| (first..=last).contains(byte)).collect();
            match found {
                Ranged::Part(part) => {
                    prop_assert_eq!(expected.first(), Some(&part.start));
                    prop_assert_eq!(expected.len() as u64, part.length);
                }
                Ranged::Unsatisfiable => prop_assert!(expected.is_empty()),
                Ranged::Whole => prop_assert!(false, "a well-formed range was ignored"),
            }
        }

        #[test]
        fn no_header_leads_outside(header in proptest::collection::vec(any::<u8>(), 0..40), size in any::<u64>()) {
            for header in [header.clone(), [b"bytes=".to_vec(), header].concat()] {
                let _ = parse_content_range(&header);
                if let Ranged::Part(part) = parse_range(Some(&header), size) {
                    prop_assert!(part.length > 0);
                    prop_assert!(part.start.checked_add(part.length).is_some_and(|end| end <= size));
                }
            }
        }
    }
}
