//! The lines of a server's log as text: an entry is one line, whatever the names in it are made of.

use symseal_server::visible;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

/// Writes a message and its fields as the library does, and writes out what could end the line, or what nobody sees.
pub(crate) fn visible_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => writer.write_str(&visible(&value)),
            name => write!(writer, "{name}={}", visible(&value)),
        }
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_name_makes_no_line_of_its_own() {
        let lines = Lines::default();
        let made = lines.clone();
        let log = tracing_subscriber::fmt().fmt_fields(visible_fields()).with_writer(move || made.clone()).finish();
        tracing::subscriber::with_default(log, || {
            let name = "a\n2026-01-01 ERROR forged\u{1b}[2J\u{202e}";
            tracing::warn!(file = %name, quoted = name, count = 3, "passed over");
            tracing::warn!("{name}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let shown = "a\\u{a}2026-01-01 ERROR forged\\u{1b}[2J\\u{202e}";
        assert!(text.contains(&format!("passed over file={shown} quoted=\"")), "{text}");
        assert!(text.contains(" count=3") && text.ends_with(&format!("{shown}\n")), "{text}");
    }
}
