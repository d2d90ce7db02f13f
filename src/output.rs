//! Standard output of the commands. One that cannot be written to ends the program: with status 0 where the reader
//! went away (`symseal … | head`), and otherwise with status 2 and the reason. `println!` would panic.

use std::fmt;
use std::io::{self, Write};

/// Writes to standard output; does not come back when it cannot.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("error: standard output: {error}; what the command did is done, but could not be told");
        std::process::exit(2);
    }
}

/// A text from outside for a terminal, as pages and logs have it too.
pub(crate) fn visible(text: &str) -> String {
    symseal_server::visible(text).into_owned()
}

/// The same of a text of several lines, which stay lines.
pub(crate) fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(visible).collect();
    lines.join("\n")
}

/// A count and what is counted: `1 module`, `2 modules`.
pub(crate) fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Like `print!`.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// Like `println!`.
macro_rules! outln {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {out, outln};
