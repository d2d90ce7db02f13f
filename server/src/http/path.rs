//! Path and query bytes as they came: nothing is normalised, and each part is decoded once.

/// Decodes `%XX`; a malformed escape is kept as it is. `None` when the result is no UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    String::from_utf8(decode(text.as_bytes())).ok()
}

/// The same, with a replacement character for each part that is no UTF-8.
pub(crate) fn percent_decode_lossy(text: &str) -> String {
    String::from_utf8_lossy(&decode(text.as_bytes())).into_owned()
}

/// Escapes everything but letters, digits, `-._~` (RFC 3986, "Unreserved Characters") and the bytes of `kept`.
pub(crate) fn percent_encode(text: impl AsRef<[u8]>, kept: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte);
    let part = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.as_ref().iter().copied().map(part).collect()
}

/// Every value of a query's `name`, decoded. `+` stays a plus: media types have it, and clients send it raw.
pub(crate) fn query_values(query: Option<&str>, name: &str) -> Vec<String> {
    query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key)? == name).then(|| percent_decode(value))?
        })
        .collect()
}

/// Every value of a form's field `name`, decoded (WHATWG URL, "application/x-www-form-urlencoded parsing"): `+` is a space, as most HTTP
/// libraries write one in a query, and a plus comes as `%2B`.
pub(crate) fn form_values(query: Option<&str>, name: &str) -> Vec<String> {
    query_values(query.map(|query| query.replace('+', "%20")).as_deref(), name)
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    decoded.push(high << 4 | low);
                    rest = tail;
                }
                _ => decoded.push(b'%'),
            },
            (byte, _) => decoded.push(*byte),
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once_and_malformed_ones_are_kept() {
        for (text, expected) in [
            ("a%20b", Some("a b")),
            ("%2541", Some("%41")),
            ("50%", Some("50%")),
            ("%zz%4", Some("%zz%4")),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_plus_in_a_form_is_a_space() {
        let query = Some("name=My+App.pdb&name=My%20App.pdb&name=libstdc%2B%2B.so&name=50%25");
        assert_eq!(form_values(query, "name"), ["My App.pdb", "My App.pdb", "libstdc++.so", "50%"]);
        assert!(form_values(None, "name").is_empty());
    }

    #[test]
    fn a_plus_in_a_media_type_survives() {
        let query = Some("artifactType=application/x+json&tag=a&tag=b%2Bc&flag");
        assert_eq!(query_values(query, "artifactType"), ["application/x+json"]);
        assert_eq!(query_values(query, "tag"), ["a", "b+c"]);
        assert_eq!(query_values(query, "flag"), [""]);
        assert!(query_values(None, "tag").is_empty());
    }
}
