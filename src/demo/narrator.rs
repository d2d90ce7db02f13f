//! Prints the demo's steps with their times and what each proved.

use crate::output::outln;
use std::time::{Duration, Instant};

/// Tells the story on standard output, step by step.
pub(crate) struct Narrator {
    number: u32,
    started: Instant,
    step: Option<(String, Instant)>,
    timings: Vec<(String, Duration)>,
}

impl Narrator {
    pub(crate) fn new() -> Self {
        Self { number: 0, started: Instant::now(), step: None, timings: Vec::new() }
    }

    /// Ends the step before, if any, and begins the next.
    pub(crate) fn step(&mut self, name: &str, aim: &str) {
        self.end_step();
        self.number += 1;
        outln!("\n{} {name}: {aim}", self.number);
        self.step = Some((name.to_owned(), Instant::now()));
    }

    /// Something that was done or found.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        for line in line.as_ref().lines() {
            outln!("    {line}");
        }
    }

    /// Something that was proved, and by what.
    pub(crate) fn proved(&self, line: impl AsRef<str>) {
        outln!("  ✓ {}", line.as_ref());
    }

    /// Something that should have held and did not.
    pub(crate) fn refuted(&self, line: impl AsRef<str>) {
        outln!("  ✗ {}", line.as_ref());
    }

    /// Ends the last step; the time that each took, and all together.
    pub(crate) fn end(mut self) -> (Vec<(String, Duration)>, Duration) {
        self.end_step();
        (self.timings, self.started.elapsed())
    }

    fn end_step(&mut self) {
        if let Some((name, started)) = self.step.take() {
            let took = started.elapsed();
            outln!("    {name} took {}", seconds(took));
            self.timings.push((name, took));
        }
    }
}

/// A duration as people read it: `1.24 s`, `35 ms`, `8.1 µs`.
pub(crate) fn seconds(duration: Duration) -> String {
    let ns = duration.as_nanos();
    match ns {
        0..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}
