//! `Accept-Encoding` of a request (RFC 9110, section 12.5.3).

use axum::http::{HeaderMap, HeaderValue, header};

/// A content coding that files are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// Its name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// What a body that is sent to us is packed in, if it is.
pub(crate) fn content_coding(request: &HeaderMap) -> Option<&HeaderValue> {
    let codings = request.get_all(header::CONTENT_ENCODING);
    codings.iter().find(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

/// The coding that a client takes and we like best. None with a `Range`, which counts bytes of the file itself.
pub(crate) fn accepted_coding(request: &HeaderMap) -> Option<Coding> {
    if request.contains_key(header::RANGE) {
        return None;
    }
    let mut weights = [None; 2];
    let mut identity = None;
    let mut any = None;
    for value in request.get_all(header::ACCEPT_ENCODING) {
        for part in value.to_str().unwrap_or_default().split(',') {
            let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
            let weight = weight(parameters);
            match name.trim().to_ascii_lowercase().as_str() {
                "zstd" => weights[0] = Some(weight),
                "gzip" | "x-gzip" => weights[1] = Some(weight),
                "identity" => identity = Some(weight),
                "*" => any = Some(weight),
                _ => {}
            }
        }
    }
    let [zstd, gzip] = weights.map(|weight| weight.or(any).unwrap_or(0));
    match (zstd, gzip) {
        (0, 0) => None,
        // Who says nothing of bytes as they are takes them, and asks for a coding because it likes one better.
        (zstd, gzip) if identity.is_some_and(|identity| identity > zstd.max(gzip)) => None,
        (zstd, gzip) if zstd >= gzip => Some(Coding::Zstd),
        _ => Some(Coding::Gzip),
    }
}

/// `q=0.5` in thousandths; 1000 without one, 0 when it is malformed.
fn weight(parameters: &str) -> u32 {
    let Some((_, text)) = parameters.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q")) else {
        return 1000;
    };
    match text.trim().parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_coding_that_a_client_takes_is_chosen() {
        #[track_caller]
        fn check(value: &'static str, expected: Option<Coding>) {
            let request = HeaderMap::from_iter([(header::ACCEPT_ENCODING, header::HeaderValue::from_static(value))]);
            assert_eq!(accepted_coding(&request), expected, "{value}");
        }
        check("deflate, gzip, br, zstd", Some(Coding::Zstd));
        check("gzip", Some(Coding::Gzip));
        check("zstd;q=0.5, gzip;q=0.8", Some(Coding::Gzip));
        check("zstd;q=0, gzip;q=0", None);
        check("*", Some(Coding::Zstd));
        check("zstd;q=0, *;q=0.1", Some(Coding::Gzip));
        check("identity", None);
        check("gzip;q=0.1, identity;q=0.9", None);
        check("gzip;q=0.5, identity;q=0.5", Some(Coding::Gzip));
        check("gzip ; q = 0", None);
        check("gzip;Q=1.0", Some(Coding::Gzip));
        check("br", None);
        check("", None);
        check("zstd;q=nan", None);
        check("zstd;q=7", None);
        assert_eq!(accepted_coding(&HeaderMap::new()), None);
    }

    #[test]
    fn a_range_is_of_the_file_itself() {
        let value = header::HeaderValue::from_static;
        let request = [(header::ACCEPT_ENCODING, value("zstd")), (header::RANGE, value("bytes=0-1"))];
        assert_eq!(accepted_coding(&HeaderMap::from_iter(request)), None);
    }
}
