//! Progress on long work: a bar on a terminal; elsewhere, as in a pipeline's log, a line now and then.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle, WeakProgressBar};

use crate::output::visible;

/// How long work goes on before a log hears of it, and from then on between two lines.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A spinner with a message on standard error; lines where that is no terminal.
pub(crate) fn spinner(message: impl Into<String>) -> ProgressBar {
    let message = message.into();
    if !std::io::stderr().is_terminal() {
        return told(ProgressBar::hidden().with_message(message.clone()), move |_| Some(message.clone()));
    }
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A bar over `total` steps on standard error; lines where that is no terminal.
pub(crate) fn bar(total: u64, message: impl Into<String>) -> ProgressBar {
    shown(total, message.into(), "{msg} {wide_bar} {pos}/{len} {per_sec}, {left} left", |count| {
        HumanCount(count).to_string()
    })
}

/// A bar over bytes on standard error, with rate and time left; lines where that is no terminal.
pub(crate) fn bytes_bar(message: impl Into<String>) -> ProgressBar {
    shown(0, message.into(), "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {left} left  {msg:40!}", |bytes| {
        HumanBytes(bytes).to_string()
    })
}

/// A bar in the form of `template`, whose lines count by `unit`.
fn shown(total: u64, message: String, template: &str, unit: fn(u64) -> String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return told(hidden(total).with_message(message), move |bar| line(bar, unit));
    }
    let bar = ProgressBar::new(total).with_message(message);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("left", time_left));
    }
    bar
}

fn hidden(total: u64) -> ProgressBar {
    let bar = ProgressBar::hidden();
    bar.set_length(total);
    bar
}

/// `bar`, of whose work standard error gets a line now and then until it is finished.
fn told(bar: ProgressBar, line: impl Fn(&ProgressBar) -> Option<String> + Send + 'static) -> ProgressBar {
    let watched = bar.downgrade();
    // Without a thread for it, the work itself goes on in silence.
    let _ = std::thread::Builder::new()
        .name("progress".to_owned())
        .spawn(move || tell(&watched, LINE_EVERY, line, |line| eprintln!("{}", visible(line))));
    bar
}

/// Gives a line to `say` every `period`, for as long as the bar is somebody's and is not finished.
fn tell(
    watched: &WeakProgressBar,
    period: Duration,
    line: impl Fn(&ProgressBar) -> Option<String>,
    say: impl Fn(&str),
) {
    loop {
        std::thread::sleep(period);
        let Some(bar) = watched.upgrade().filter(|bar| !bar.is_finished()) else { return };
        if let Some(line) = line(&bar) {
            say(&line);
        }
    }
}

/// How far it is: `liba.so: 1.50 GiB of 4.00 GiB, 40.00 MiB a second, 64 seconds left`. None of what has nothing to do.
fn line(bar: &ProgressBar, unit: fn(u64) -> String) -> Option<String> {
    let (done, total) = (bar.position(), bar.length().filter(|total| *total > 0)?);
    let rate = unit(bar.per_sec() as u64);
    let time = left(done, Some(total), bar.eta());
    Some(format!("{}: {} of {}, {rate} a second, {time} left", bar.message(), unit(done), unit(total)))
}

fn time_left(state: &ProgressState, out: &mut dyn Write) {
    let _ = out.write_str(&left(state.pos(), state.len(), state.eta()));
}

/// The time left for people. Nobody knows it before the first step is done, nor once what is measured is all there and the work goes on.
fn left(done: u64, total: Option<u64>, left: Duration) -> String {
    if done == 0 || total.is_none_or(|total| done >= total) { "?".to_owned() } else { HumanDuration(left).to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_time_left_is_told_where_it_is_known() {
        let second = Duration::from_secs(1);
        assert_eq!(left(0, Some(9), Duration::ZERO), "?");
        assert_eq!(left(9, Some(9), Duration::ZERO), "?");
        assert_eq!(left(1, None, second), "?");
        assert_eq!(left(1, Some(9), second * 40), "40 seconds");
    }

    #[test]
    fn a_log_hears_of_the_work_until_it_is_finished() {
        let bar = hidden(4 << 30).with_message("liba.so");
        bar.set_position(3 << 29);
        let (told, lines) = mpsc::channel();
        let watched = bar.downgrade();
        let telling = std::thread::spawn(move || {
            tell(
                &watched,
                Duration::from_millis(1),
                |bar| line(bar, |bytes| HumanBytes(bytes).to_string()),
                |line| {
                    let _ = told.send(line.to_owned());
                },
            );
        });
        for line in lines.iter().take(2) {
            assert!(line.starts_with("liba.so: 1.50 GiB of 4.00 GiB, "), "{line}");
            assert!(line.ends_with(" left"), "{line}");
        }
        bar.finish_and_clear();
        assert!(telling.join().is_ok());
    }

    #[test]
    fn nothing_is_told_of_what_has_no_length_and_of_what_is_nobodys() {
        assert_eq!(line(&hidden(0), |count| count.to_string()), None);
        let watched = hidden(9).downgrade();
        tell(&watched, Duration::ZERO, |_| Some(String::new()), |_| panic!("a bar that is gone is told"));
    }
}
