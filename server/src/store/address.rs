//! Which database, as the operator writes it. A password in it is never shown.

use std::fmt;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// The URL of a PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or with `?host=/DIRECTORY` for its
/// Unix socket. What is not said is taken from PGUSER, PGPASSWORD, PGHOST, PGPORT and PGDATABASE, and from ~/.pgpass.
#[derive(Clone)]
pub struct DatabaseUrl(PgConnectOptions);

impl DatabaseUrl {
    pub(super) fn options(&self) -> PgConnectOptions {
        self.0.clone()
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
    "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE or postgres://USER@/DATABASE?host=/DIRECTORY (escape what URLs reserve, such as %40 for @ in a password), found another form{0}; leave it out for SQLite in the data directory"
)]
pub struct ParseDatabaseUrlError(String);

impl FromStr for DatabaseUrl {
    type Err = ParseDatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((scheme, _)) = text.split_once("://") else { return Err(ParseDatabaseUrlError(String::new())) };
        if !matches!(scheme, "postgres" | "postgresql") {
            let is_word = scheme.len() <= 20 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
            return Err(ParseDatabaseUrlError(if is_word { format!(" ({scheme}://)") } else { String::new() }));
        }
        // Of a socket, whose place the query names, there is no host: the form that URLs of PostgreSQL's own programs have, and the one that is shown.
        let text = text.replacen("@/", "@localhost/", 1);
        // What it says of a wrong part names the kind of part, and could quote it.
        text.parse().map(Self).map_err(|_: sqlx::Error| ParseDatabaseUrlError(String::new()))
    }
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
        ] {
            let error = wrong.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(error.contains("expected postgres://") && !error.contains("hun/ter2"), "{error}");
            assert!(wrong == "hunter2://x" || !error.contains("hunter2"), "{error}");
        }
    }
}
