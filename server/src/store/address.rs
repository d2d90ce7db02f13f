//! Which database, as the operator writes it. A password in it is never shown.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::http::{is_this_machine, percent_decode};

/// The URL of a PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or with `?host=/DIRECTORY` for its
/// Unix socket. What is not said is taken from PGUSER, PGPASSWORD, PGHOST, PGPORT and PGDATABASE, and from ~/.pgpass.
#[derive(Clone)]
pub struct DatabaseUrl(PgConnectOptions);

/// What may stand behind the `?`, each with its other names. sqlx passes over whatever it does not know, so that TLS would not be asked for by one who wrote
/// `ssl_mode`.
const PARAMETERS: [&[&str]; 12] = [
    &["sslmode", "ssl-mode"],
    &["sslrootcert", "ssl-root-cert", "ssl-ca"],
    &["sslcert", "ssl-cert"],
    &["sslkey", "ssl-key"],
    &["host", "hostaddr"],
    &["port"],
    &["dbname"],
    &["user"],
    &["password"],
    &["application_name"],
    &["statement-cache-capacity"],
    &[OPTIONS],
];
/// Settings of the session; `options[NAME]` is one of them. These add up.
const OPTIONS: &str = "options";
/// The longest name of a parameter that is repeated.
const NAME_LIMIT: usize = 40;

impl DatabaseUrl {
    pub(super) fn options(&self) -> PgConnectOptions {
        self.0.clone()
    }

    /// What a start warns of: everything that is recorded, and the password if the database asks for one, may go over a network in the clear, or to
    /// whoever answers there.
    pub(crate) fn warning(&self) -> Option<String> {
        let mode = match self.0.get_ssl_mode() {
            PgSslMode::Disable => "disable",
            PgSslMode::Allow => "allow",
            PgSslMode::Prefer => "prefer",
            PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => return None,
        };
        let host = self.0.get_host();
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_here = self.0.get_socket().is_some() || host.starts_with('/') || is_loopback || is_this_machine(host);
        (!is_here).then(|| {
            format!(
                "the database at {host} may be spoken to without TLS (sslmode={mode}), the password too: say sslmode=verify-full, or sslmode=require where nothing vouches for its certificate"
            )
        })
    }
}

/// Where it is, without the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0;
        let database = options.get_database().unwrap_or(options.get_username());
        match options.get_socket() {
            Some(socket) => write!(f, "postgres://{}@/{database}?host={}", options.get_username(), socket.display()),
            None => {
                write!(
                    f,
                    "postgres://{}@{}:{}/{database}",
                    options.get_username(),
                    options.get_host(),
                    options.get_port()
                )
            }
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no URL of a database. It is not repeated, as it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE or postgres://USER@/DATABASE?host=/DIRECTORY (escape what URLs reserve, such as %40 for @ in a password), found {0}; leave it out for SQLite in the data directory"
)]
pub struct ParseDatabaseUrlError(String);

impl FromStr for DatabaseUrl {
    type Err = ParseDatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = |what: String| Err(ParseDatabaseUrlError(what));
        if text.trim().is_empty() {
            return found("an empty text".to_owned());
        }
        let Some((scheme, _)) = text.split_once("://") else { return found("another form".to_owned()) };
        if !matches!(scheme, "postgres" | "postgresql") {
            let is_word = scheme.len() <= 20 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
            return found(if is_word { format!("another form ({scheme}://)") } else { "another form".to_owned() });
        }
        // Of a socket, whose place the query names, there is no host: the form that URLs of PostgreSQL's own programs have, and the one that is shown.
        let text = text.replacen("@/", "@localhost/", 1);
        // What is said of a wrong part names the kind of part, and quotes nothing of it.
        let url = Url::parse(&text).map_err(|error| ParseDatabaseUrlError(format!("another form ({error})")))?;
        check_parts(&url).and_then(|()| check_parameters(&url)).map_err(ParseDatabaseUrlError)?;
        text.parse().map(Self).map_err(|_: sqlx::Error| ParseDatabaseUrlError("another form".to_owned()))
    }
}

/// What is wrong with what stands in front of the `?`.
fn check_parts(url: &Url) -> Result<(), String> {
    if url.fragment().is_some() {
        return Err("a # (write %23)".to_owned());
    }
    let parts = [("user", url.username()), ("password", url.password().unwrap_or_default()), ("database", url.path())];
    for (part, text) in parts {
        if percent_decode(text).is_none() {
            return Err(format!("a {part} that is no UTF-8 when its escapes (%) are read (write %25 for % itself)"));
        }
    }
    Ok(())
}

/// What is wrong with what stands behind it.
fn check_parameters(url: &Url) -> Result<(), String> {
    let mut seen = HashSet::new();
    for (key, value) in url.query_pairs() {
        let is_option = key.strip_prefix(OPTIONS).is_some_and(|rest| rest.starts_with('[') && rest.ends_with(']'));
        let known = PARAMETERS.iter().find(|names| names.contains(&&*key));
        let name = match known.and_then(|names| names.first()) {
            Some(name) => *name,
            None if is_option => OPTIONS,
            None => return Err(unknown(&key, url.query().unwrap_or_default())),
        };
        if !seen.insert(name) && name != OPTIONS {
            return Err(match key == name {
                true => format!("the parameter {name} twice"),
                false => format!("the parameter {name} twice, as {key} is another name of it"),
            });
        }
        let wrong = match name {
            "sslmode" if value.parse::<PgSslMode>().is_err() => {
                "disable, allow, prefer, require, verify-ca or verify-full"
            }
            "host" if key == "hostaddr" && value.parse::<IpAddr>().is_err() => "an address",
            "port" if value.parse::<u16>().is_err() => "a number up to 65535",
            "statement-cache-capacity" if value.parse::<usize>().is_err() => "a number",
            _ => continue,
        };
        return Err(format!("the parameter {key} with another value than {wrong}"));
    }
    Ok(())
}

/// What is no name of a parameter may be a part of a password with an & in it.
fn unknown(key: &str, query: &str) -> String {
    let is_name = key.len() <= NAME_LIMIT
        && query.contains(&format!("{key}="))
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']'));
    let names: Vec<&str> = PARAMETERS.iter().filter_map(|names| names.first().copied()).collect();
    let what = if is_name { format!("the unknown parameter {key}") } else { "an unknown parameter".to_owned() };
    format!("{what} (known are {}; write %26 for & in a value)", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "postgres://symseal:hunter2@db.example:6432/symbols",
            "postgresql://symseal:hunter2@db.example:6432/symbols?sslmode=verify-full",
        ] {
            let url: DatabaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), "postgres://symseal@db.example:6432/symbols");
            assert_eq!(format!("{url:?}"), url.to_string());
        }
        let socket: DatabaseUrl = "postgres://symseal:hunter2@localhost/symbols?host=/run/pg".parse().unwrap();
        assert_eq!(socket.to_string(), "postgres://symseal@/symbols?host=/run/pg");
        let as_shown: DatabaseUrl = socket.to_string().parse().unwrap();
        assert_eq!(as_shown.to_string(), socket.to_string());
        for wrong in [
            "hunter2",
            "mysql://symseal:hunter2@db/symbols",
            "hunter2://x",
            "postgres://symseal:hunter2@db:port/symbols",
            "postgres://symseal:hunter2@db/symbols?sslmode=hunter2",
            "postgres://symseal:hun/ter2@db/symbols",
            "postgres://symseal:hunter2%ff@db/symbols",
            "postgres://symseal:hunter2#@db/symbols",
            "postgres://symseal@db/symbols?password=x&hunter2",
            "postgres://symseal@db/symbols?pass=hunter2",
        ] {
            let error = wrong.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(error.contains("expected postgres://") && !error.contains("hun/ter2"), "{error}");
            assert!(wrong == "hunter2://x" || !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_parameter_that_would_be_passed_over_is_refused_by_its_name() {
        let told = |query: &str| {
            let error = format!("postgres://symseal:hunter2@db/symbols{query}").parse::<DatabaseUrl>().unwrap_err();
            error.to_string()
        };
        for (query, expected) in [
            ("?ssl_mode=verify-full", "found the unknown parameter ssl_mode (known are sslmode, "),
            ("?SSLMODE=verify-full", "found the unknown parameter SSLMODE "),
            ("?SSLMODE=", "found the unknown parameter SSLMODE "),
            ("?sslmode=verify-full&bogus=1", "found the unknown parameter bogus "),
            ("?channel_binding=require", "found the unknown parameter channel_binding "),
            ("?options[search_path=x", "found the unknown parameter options[search_path "),
            ("?sslmode=verify_full", "found the parameter sslmode with another value than disable, allow"),
            ("?sslmode=", "found the parameter sslmode with another value than disable, allow"),
            ("?sslmode=verify-full&ssl-mode=disable", "found the parameter sslmode twice"),
            ("?port=x", "found the parameter port with another value than a number up to 65535"),
            ("?hostaddr=db", "found the parameter hostaddr with another value than an address"),
            ("%ff", "found a database that is no UTF-8 "),
            ("#", "found a # (write %23)"),
        ] {
            assert!(told(query).contains(expected), "{query}: {}", told(query));
        }
        let told = |text: &str| text.parse::<DatabaseUrl>().unwrap_err().to_string();
        assert!(told(" ").contains("found an empty text"));
        assert!(told("postgres://u:pass%ff@db/x").contains("found a password that is no UTF-8 "));
        assert!(told("postgres://u@db:70000/x").contains("found another form (invalid port number)"));
        for query in ["?sslmode=VERIFY-FULL&sslrootcert=/a.pem", "?options=-c%20a=b&options[search_path]=x", "?user=a"]
        {
            assert!(format!("postgres://db/symbols{query}").parse::<DatabaseUrl>().is_ok(), "{query}");
        }
    }

    #[test]
    fn a_database_that_may_be_spoken_to_in_the_clear_over_a_network_is_warned_of() {
        let warning = |text: &str| text.parse::<DatabaseUrl>().unwrap().warning();
        for url in [
            "postgres://u:hunter2@db.example/x?sslmode=prefer",
            "postgres://u:hunter2@10.1.2.3/x?sslmode=allow",
            "postgres://u:hunter2@[2001:db8::1]/x?sslmode=disable",
            "postgres://u:hunter2@localhost/x?sslmode=disable&host=db.example",
        ] {
            let told = warning(url).unwrap();
            assert!(told.contains("without TLS (sslmode=") && !told.contains("hunter2"), "{told}");
        }
        for url in [
            "postgres://u:p@db.example/x?sslmode=require",
            "postgres://u:p@db.example/x?sslmode=verify-full",
            "postgres://u:p@127.0.0.1/x?sslmode=prefer",
            "postgres://u:p@[::1]/x?sslmode=prefer",
            "postgres://u:p@db.example/x?sslmode=prefer&hostaddr=::1",
            "postgres://u:p@localhost/x?sslmode=disable",
            "postgres://u@/x?host=/run/pg&sslmode=disable",
        ] {
            assert_eq!(warning(url), None, "{url}");
        }
    }
}
