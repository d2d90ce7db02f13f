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
