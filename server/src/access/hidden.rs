//! Texts of requests as logs show them: without what is, or was meant to be, a token.

use std::borrow::Cow;

use super::credentials::PATH_TOKEN;
use super::session;
use crate::http::percent_decode_lossy;
use crate::tokens::{self, TokenSecret};

/// Below these paths come names of repositories, of which one may be called `t` or begin so.
const NAMES: [&str; 2] = ["/v2/", "/s/"];
/// How often a part of a path may have been encoded.
const MOST_ENCODED: usize = 3;
/// How a JSON Web Token begins: the Base64 of `{"`. No shorter text is one.
const JWT: &str = "eyJ";
const SHORTEST_JWT: usize = 40;
/// In place of what is hidden.
const HIDDEN: &str = "…";

/// A path as logs show it: without what has a token's form, and without what stands where a token was meant (a slash too many before it,
/// none behind it, or one that was encoded, a place behind a proxy's prefix). Paths of sources may have a folder `t`, and so may names of repositories.
pub(crate) fn hide_tokens(path: &str) -> Cow<'_, str> {
    // Whoever writes it with a capital is told that there is nothing, and has sent the token all the same.
    let has_sign = |sign| path.contains(sign);
    let may_have_place = [PATH_TOKEN, "/T/", "%", ";", ":", "\\"].into_iter().any(has_sign);
    if path.starts_with("/buildid/") || !may_have_place {
        return hide_secrets(path);
    }
    let has_names = NAMES.iter().any(|names| path.starts_with(names));
    let mut is_place = false;
    let parts = path.split('/').map(|part| {
        let decoded = decoded(part);
        let is_meant = is_place && !part.is_empty() && !(has_names && may_be_name(part));
        let mut names = decoded.rsplit('/');
        // A slash too many behind the place leaves it open.
        is_place = names.next().is_some_and(is_t) || is_place && part.is_empty();
        if is_meant || names.any(is_t) { Cow::Borrowed(HIDDEN) } else { hide_secrets(part) }
    });
    parts.collect::<Vec<_>>().join("/").into()
}

/// A text without tokens of this server, sessions and JSON Web Tokens, wherever they stand in it.
pub(crate) fn hide_secrets(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    let mut skipped = 0;
    while let Some(at) = next_sign(rest, skipped) {
        let (before, from) = rest.split_at(at);
        match secret_at(from) {
            Some(length) => {
                shown.push_str(before);
                shown.push_str(HIDDEN);
                (rest, skipped) = (from.get(length..).unwrap_or_default(), 0);
            }
            None => skipped = at + 1,
        }
    }
    if shown.is_empty() { text.into() } else { (shown + rest).into() }
}

/// Where one may begin, at or behind a place.
fn next_sign(text: &str, from: usize) -> Option<usize> {
    let behind = text.get(from..)?;
    let found = [tokens::PREFIX, session::PREFIX, JWT].into_iter().filter_map(|sign| behind.find(sign)).min()?;
    Some(from + found)
}

/// The length of the secret that a text begins with.
fn secret_at(text: &str) -> Option<usize> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let length = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    let run = text.get(..length)?;
    if run.starts_with(tokens::PREFIX) {
        let own = run.get(..TokenSecret::BYTES)?;
        return TokenSecret::parse(own).map(|_| own.len());
    }
    let is_session = run.starts_with(session::PREFIX) && run.contains('.');
    let is_jwt = run.starts_with(JWT) && run.len() >= SHORTEST_JWT && run.matches('.').count() >= 2;
    (is_session || is_jwt).then_some(length)
}

/// A part of a path with slashes where an encoded or another separator stands.
fn decoded(part: &str) -> String {
    let mut text = part.to_owned();
    for _ in 0..MOST_ENCODED {
        if !text.contains('%') {
            break;
        }
        text = percent_decode_lossy(&text);
    }
    text.replace(['\\', ';', ':', char::REPLACEMENT_CHARACTER], "/")
}

fn is_t(part: &str) -> bool {
    part.eq_ignore_ascii_case("t")
}

/// Whether a part of a path can be one of a repository's name, which has no capitals, and is no session: sessions, and what other systems call a token, are
/// longer, and are Base64.
fn may_be_name(part: &str) -> bool {
    const LONGEST: usize = 64;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    part.len() < LONGEST && part.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_shows_a_token_that_stands_in_the_wrong_place() {
        let token = format!("symseal_{}", "0123456789abcdef".repeat(4));
        let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2kifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ";
        for (path, expected) in [
            ("/t/TOKEN", "/t/…"),
            ("/T/another-system's/buildid/ab/debuginfo", "/T/…/buildid/ab/debuginfo"),
            ("//t/TOKEN/buildid/ab/debuginfo", "//t/…/buildid/ab/debuginfo"),
            ("/symbols/t/TOKEN/a.pdb", "/symbols/t/…/a.pdb"),
            ("/TOKEN/buildid/ab/debuginfo", "/…/buildid/ab/debuginfo"),
            ("/buildid/TOKEN/debuginfo", "/buildid/…/debuginfo"),
            ("/buildid/ab/source/a/xTOKENx/JWT.c", "/buildid/ab/source/a/x…x/…"),
            ("/v2/symseal_tools/manifests/1", "/v2/symseal_tools/manifests/1"),
            ("/buildid/ab/source/usr/t/a.c", "/buildid/ab/source/usr/t/a.c"),
            ("/buildid/ab/source/usr/a%2Ft%2Fa:b.c", "/buildid/ab/source/usr/a%2Ft%2Fa:b.c"),
            ("/v2/t/x/manifests/1.0", "/v2/t/x/manifests/1.0"),
            ("/v2/team/t/my-app_2/blobs/uploads/", "/v2/team/t/my-app_2/blobs/uploads/"),
            ("/v2/t/x/manifests/sha256:abc", "/v2/t/x/manifests/sha256:abc"),
            ("/s/t/x/buildid/ab/debuginfo", "/s/t/x/buildid/ab/debuginfo"),
            ("/v2/t/TOKEN/manifests/1.0", "/v2/t/…/manifests/1.0"),
            ("/v2/t/symsess_eyJncmFudHMi.x/manifests/1.0", "/v2/t/…/manifests/1.0"),
            ("/symbols/t/x/a.pdb", "/symbols/t/…/a.pdb"),
            // Separators that are none, and letters that were encoded.
            ("/t%2fTOKEN/a", "/…/a"),
            ("/t%252Fan-opaque-one/a", "/…/a"),
            ("/a%2Ft%2FTOKEN%2Fx", "/…"),
            ("/t;secret/healthz", "/…/healthz"),
            ("/t:TOKEN", "/…"),
            ("/t\\TOKEN/x", "/…/x"),
            ("/t%c0%afTOKEN/x", "/…/x"),
            ("/%74/secret/x", "/%74/…/x"),
            ("/JWT/buildid/ab/debuginfo", "/…/buildid/ab/debuginfo"),
            ("/a%2Ft/an-opaque-one/x", "/a%2Ft/…/x"),
            ("/t//an-opaque-one/x", "/t//…/x"),
            ("/t/a/../JWT/x", "/t/…/../…/x"),
            ("/eyJ.a.b/eyJ", "/eyJ.a.b/eyJ"),
        ] {
            assert_eq!(hide_tokens(&path.replace("TOKEN", &token).replace("JWT", jwt)), expected, "{path}");
        }
        assert_eq!(hide_tokens("/t/a-session/x"), "/t/…/x");
    }
}
