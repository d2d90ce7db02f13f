//! Progress on long work: a bar on a terminal, silence elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A spinner with a message on standard error; hidden when that is no terminal.
pub(crate) fn spinner(message: impl Into<String>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(message.into());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A bar over `total` steps on standard error; hidden when that is no terminal.
pub(crate) fn bar(total: u64, message: impl Into<String>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total).with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// A bar over bytes on standard error, with rate and time left; hidden when that is no terminal.
pub(crate) fn bytes_bar(message: impl Into<String>) -> ProgressBar {
    let bar = bar(0, message);
    if let Ok(style) =
        ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left  {msg:40!}")
    {
        bar.set_style(style);
    }
    bar
}
