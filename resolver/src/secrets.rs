//! Texts about servers, such as their addresses and errors that repeat these, without what is secret in them.

/// What a token of a server of symseal begins with, and how many hex digits follow.
const TOKEN: (&str, usize) = ("symseal_", 64);

/// Where an address ends that somebody wrote into a list or a sentence.
const ENDS: [char; 9] = ['*', ';', ',', '"', '\'', '`', ')', '>', '|'];

/// A text for people without the passwords and tokens of the addresses in it: of each word all before its last `@` goes, in an address the query too, what
/// stands in the place of a path token (`/t/TOKEN/…`), and tokens of symseal wherever they are. What may be no address at all is not shown any more of: who
/// mistypes one has a password in the wrong place.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        shown.push_str(&without_secrets_of(word));
        shown.push_str(part.get(word.len()..).unwrap_or_default());
    }
    shown
}

fn without_secrets_of(word: &str) -> String {
    let mut parts = word.split("://");
    let mut shown = without_tokens(&without_user(parts.next().unwrap_or_default()));
    for part in parts {
        shown.push_str("://");
        shown.push_str(&address(part));
    }
    shown
}

/// All before the last `@` may be a user's name and password.
fn without_user(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"))
}

/// An address behind its scheme, with what follows it in the word.
fn address(text: &str) -> String {
    let text = without_user(text);
    let (text, after) = match text.find('?') {
        None => (text.as_str(), ""),
        Some(at) => {
            let (before, query) = text.split_at(at);
            (before, query.find(ENDS).and_then(|end| query.get(end..)).unwrap_or_default())
        }
    };
    let (host, path) = text.find(['/', '#']).map_or((text, ""), |at| text.split_at(at));
    let host = if host.contains('@') || has_port_or_none(host) { host } else { "…" };
    let mut before = "";
    let parts = path.split('/').map(|part| {
        let is_token = before == "t" && !part.is_empty();
        before = part;
        if is_token { "…".to_owned() } else { without_tokens(part) }
    });
    format!("{host}{}{after}", parts.collect::<Vec<_>>().join("/"))
}

/// Whether what stands behind a host's colon can be a port: else it is a password, of an address that was cut off in it.
fn has_port_or_none(host: &str) -> bool {
    let host = host.find(ENDS).and_then(|end| host.get(..end)).unwrap_or(host);
    let behind = match host.rsplit_once(']') {
        Some((_, behind)) => behind.strip_prefix(':').unwrap_or_default(),
        None => host.split_once(':').map_or("", |(_, port)| port),
    };
    behind.trim_end_matches([':', '.']).bytes().all(|byte| byte.is_ascii_digit())
}

/// Without what has the form of a token.
fn without_tokens(text: &str) -> String {
    let (begin, length) = TOKEN;
    let mut parts = text.split(begin);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits >= length {
            shown.push('…');
            shown.push_str(part.get(digits..).unwrap_or_default());
        } else {
            shown.push_str(begin);
            shown.push_str(part);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_of_addresses_are_not_shown() {
        let token = format!("symseal_{}", "0123456789abcdef".repeat(4));
        for (text, expected) in [
            ("https://h.example/debug", "https://h.example/debug"),
            ("http://[::1]:80/x: connection refused", "http://[::1]:80/x: connection refused"),
            ("http://h:8790: expected another", "http://h:8790: expected another"),
            ("http://127.0.0.1:1/symbols/a.txt in 4 ms", "http://127.0.0.1:1/symbols/a.txt in 4 ms"),
            ("https://me:SECRET@h/x", "https://…@h/x"),
            ("https://me:SEC/RET@h/x", "https://…@h/x"),
            ("https://me:SEC@RET@h/x", "https://…@h/x"),
            ("https://me:SECRET@h:port/x", "https://…@h:port/x"),
            ("https://me:SECRET", "https://…"),
            ("me:SECRET@h/x", "…@h/x"),
            ("ftp://me:SECRET@h/", "ftp://…@h/"),
            (
                "srv*c:\\x*http://a:SECRET@one/s*https://b:SECRET@two/t/SECRET/s;",
                "srv*c:\\x*http://…@one/s*https://…@two/t/…/s;",
            ),
            ("https://h/t/SECRET/symbols", "https://h/t/…/symbols"),
            ("https://h/t/SECRET\n\tnext", "https://h/t/…\n\tnext"),
            ("https://h/TOKEN/x", "https://h/…/x"),
            ("a header with TOKEN, twice", "a header with …, twice"),
            ("(http://h/x?key=SECRET&b=1) failed", "(http://h/x) failed"),
            ("invalid type: string \"http://me:SECRET@h\", expected", "invalid type: string \"http://…@h\", expected"),
            ("symseal_tools are no token", "symseal_tools are no token"),
            ("", ""),
        ] {
            let shown = without_secrets(&text.replace("TOKEN", &token));
            assert_eq!(shown, expected, "{text}");
        }
    }
}
