//! Progress on long work: a bar on a terminal, silence elsewhere.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

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
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec}, {left} left") {
        bar.set_style(style.with_key("left", time_left));
    }
    bar
}

fn time_left(state: &ProgressState, out: &mut dyn Write) {
    let _ = out.write_str(&left(state.pos(), state.len(), state.eta()));
}

/// A bar over bytes on standard error, with rate and time left; hidden when that is no terminal.
pub(crate) fn bytes_bar(message: impl Into<String>) -> ProgressBar {
    let bar = bar(0, message);
    if let Ok(style) =
        ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {left} left  {msg:40!}")
    {
        bar.set_style(style.with_key("left", time_left));
    }
    bar
}

/// The time left for people. Nobody knows it before the first step is done, nor once what is measured is all there and the work goes on.
fn left(done: u64, total: Option<u64>, left: Duration) -> String {
    if done == 0 || total.is_none_or(|total| done >= total) { "?".to_owned() } else { HumanDuration(left).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_where_it_is_known() {
        let second = Duration::from_secs(1);
        assert_eq!(left(0, Some(9), Duration::ZERO), "?");
        assert_eq!(left(9, Some(9), Duration::ZERO), "?");
        assert_eq!(left(1, None, second), "?");
        assert_eq!(left(1, Some(9), second * 40), "40 seconds");
    }
}
