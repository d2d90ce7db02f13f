//! Conditional requests (RFC 9110, section 13).

use std::time::SystemTime;

use axum::http::{HeaderMap, header};

/// What is held against the request's conditions.
pub(crate) struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub(crate) etag: &'a str,
    /// When the bytes were stored.
    pub(crate) modified: Option<SystemTime>,
}

impl Validators<'_> {
    /// Whether the client wants other bytes than these, or none that were written later: 412. Judged before all else (section 13.2.2).
    pub(crate) fn fails(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(header::IF_MATCH) {
            return !tags(headers, &header::IF_MATCH).any(|tag| self.matches_strongly(tag));
        }
        let since = headers.get(header::IF_UNMODIFIED_SINCE).and_then(|value| value.to_str().ok());
        match (since.and_then(|since| httpdate::parse_http_date(since).ok()), self.modified) {
            (Some(since), Some(modified)) => whole_seconds(modified) > whole_seconds(since),
            _ => false,
        }
    }

    /// Whether the client has these bytes already: 304.
    pub(crate) fn not_modified(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(header::IF_NONE_MATCH) {
            return tags(headers, &header::IF_NONE_MATCH).any(|tag| self.matches_weakly(tag));
        }
        let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
        match (since.and_then(|since| httpdate::parse_http_date(since).ok()), self.modified) {
            // HTTP dates have whole seconds. Equal, and not earlier: what answers an id now may have been stored before what answered it
            // then, which was taken down or deleted meanwhile.
            (Some(since), Some(modified)) => whole_seconds(modified) == whole_seconds(since),
            _ => false,
        }
    }

    /// Whether a `Range` may be answered with a part: there is no `If-Range`, or it names these bytes.
    pub(crate) fn range_applies(&self, headers: &HeaderMap) -> bool {
        headers.get(header::IF_RANGE).is_none_or(|tag| tag.as_bytes() == self.etag.as_bytes())
    }

    fn matches_strongly(&self, tag: &str) -> bool {
        tag == "*" || tag == self.etag
    }

    fn matches_weakly(&self, tag: &str) -> bool {
        tag == "*" || self.matches(tag)
    }

    fn matches(&self, tag: &str) -> bool {
        tag.strip_prefix("W/").unwrap_or(tag) == self.etag
    }
}

/// Whether what a request would change is not what the client expects it to be: 412. `etag`: the tag of what is there, none where nothing is.
pub(crate) fn forbids_change(headers: &HeaderMap, etag: Option<&str>) -> bool {
    let now = etag.map(|etag| Validators { etag, modified: None });
    let expects = |tag: &str| now.as_ref().is_some_and(|now| now.matches_strongly(tag));
    let excludes = |tag: &str| now.as_ref().is_some_and(|now| now.matches_weakly(tag));
    let expects_other = headers.contains_key(header::IF_MATCH) && !tags(headers, &header::IF_MATCH).any(expects);
    expects_other || tags(headers, &header::IF_NONE_MATCH).any(excludes)
}

/// Whether a condition of a request names the entity tag: the client has these bytes, or a part of them.
pub(crate) fn names_tag(headers: &HeaderMap, etag: &str) -> bool {
    let named = Validators { etag, modified: None };
    let names = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_RANGE];
    names.iter().any(|name| tags(headers, name).any(|tag| named.matches(tag)))
}

/// The entity tags in a header's lists, of which there may be several.
fn tags<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'h str> {
    let lists = headers.get_all(name).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',').map(str::trim))
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, header::HeaderValue::from_static(value))])
    }

    #[test]
    fn a_tag_is_named_by_a_list_and_by_a_range_and_not_by_a_star() {
        let names = |name, value| names_tag(&headers(name, value), "\"abc\"");
        assert!(names(header::IF_NONE_MATCH, "\"x\", \"abc\"") && names(header::IF_RANGE, "\"abc\""));
        assert!(names(header::IF_MATCH, "\"abc\"") && !names(header::IF_MATCH, "*"));
        assert!(!names(header::IF_NONE_MATCH, "*") && !names(header::IF_RANGE, "\"abc-gzip\""));
    }

    #[test]
    fn a_change_is_made_to_what_the_client_expects_alone() {
        let forbids = |name, value, etag| forbids_change(&headers(name, value), etag);
        let there = Some("\"abc\"");
        assert!(!forbids(header::IF_MATCH, "\"x\", \"abc\"", there) && !forbids(header::IF_MATCH, "*", there));
        assert!(forbids(header::IF_MATCH, "\"x\"", there) && forbids(header::IF_MATCH, "W/\"abc\"", there));
        assert!(forbids(header::IF_MATCH, "*", None));
        assert!(forbids(header::IF_NONE_MATCH, "*", there) && forbids(header::IF_NONE_MATCH, "W/\"abc\"", there));
        assert!(!forbids(header::IF_NONE_MATCH, "*", None) && !forbids(header::IF_NONE_MATCH, "\"x\"", there));
        assert!(!forbids_change(&HeaderMap::new(), there));
    }

    #[test]
    fn the_own_tag_a_list_with_it_and_a_star_match() {
        let validators = Validators { etag: "\"abc\"", modified: None };
        for (value, expected) in [
            ("\"abc\"", true),
            ("W/\"abc\"", true),
            ("\"x\", \"abc\"", true),
            ("*", true),
            ("\"x\"", false),
            ("", false),
        ] {
            assert_eq!(validators.not_modified(&headers(header::IF_NONE_MATCH, value)), expected, "{value}");
        }
        assert!(!validators.not_modified(&HeaderMap::new()));
    }

    #[test]
    fn a_date_counts_in_whole_seconds() {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_900);
        let validators = Validators { etag: "\"abc\"", modified: Some(modified) };
        let since = |value| validators.not_modified(&headers(header::IF_MODIFIED_SINCE, value));
        assert!(since("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(!since("Sun, 06 Nov 1994 08:49:36 GMT"));
        assert!(!since("Sun, 06 Nov 1994 08:49:38 GMT"));
        assert!(!since("yesterday"));
    }

    #[test]
    fn who_wants_other_bytes_or_older_ones_gets_none() {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_900);
        let validators = Validators { etag: "\"abc\"", modified: Some(modified) };
        let fails = |name, value| validators.fails(&headers(name, value));
        // Compared strongly: a weak tag is never the same.
        for (value, expected) in [
            ("\"abc\"", false),
            ("\"x\", \"abc\"", false),
            ("*", false),
            ("\"x\"", true),
            ("W/\"abc\"", true),
            ("", true),
        ] {
            assert_eq!(fails(header::IF_MATCH, value), expected, "{value}");
        }
        for (value, expected) in [
            ("Sun, 06 Nov 1994 08:49:36 GMT", true),
            ("Sun, 06 Nov 1994 08:49:37 GMT", false),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
            ("yesterday", false),
        ] {
            assert_eq!(fails(header::IF_UNMODIFIED_SINCE, value), expected, "{value}");
        }
        // With a tag the date says nothing.
        let mut both = headers(header::IF_UNMODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT");
        both.append(header::IF_MATCH, header::HeaderValue::from_static("\"x\""));
        both.append(header::IF_MATCH, header::HeaderValue::from_static("\"abc\""));
        assert!(!validators.fails(&both));
        assert!(!validators.fails(&HeaderMap::new()));
    }

    #[test]
    fn a_range_of_other_bytes_is_not_served_from_these() {
        let validators = Validators { etag: "\"abc\"", modified: None };
        assert!(validators.range_applies(&HeaderMap::new()));
        assert!(validators.range_applies(&headers(header::IF_RANGE, "\"abc\"")));
        assert!(!validators.range_applies(&headers(header::IF_RANGE, "\"other\"")));
    }
}
