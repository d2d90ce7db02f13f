//! The program that the demo captures: real work in several threads, each of which stops at a known place.
//!
//! Every thread notes its own call chain by another mechanism than ours (libgcc's `_Unwind_Backtrace`) right
//! before it waits, and the program prints these chains. So there is a truth that captured and
//! unwound stacks can be held to ([`report::compare`]).
//!
//! Standard output is one JSON line per thread and a last line `{"ready":true}`; then the program
//! waits until its standard input closes, at most two minutes.

mod chain;
mod parking;
mod parser;
mod pool;
pub mod report;
mod signal;
mod sorting;
mod waiting;

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::exit::Answer;
use parking::{Slot, park};
use report::Line;

/// Longer than any machine takes to get all threads to their places.
const SETTLE: Duration = Duration::from_secs(30);
/// How long the program stays if nobody closes its input.
const STAY: Duration = Duration::from_secs(120);

/// Works, reports to standard output, and stays until standard input closes.
pub fn run() -> anyhow::Result<Answer> {
    let mut slots = vec![
        sorting::start().context("cannot start the sorting thread")?,
        parser::start().context("cannot start the parsing thread")?,
        signal::start().context("cannot start the thread that takes a signal")?,
    ];
    slots.extend(pool::start().context("cannot start the thread pool")?);
    slots.extend(waiting::start().context("cannot start the waiting threads")?);
    settle(&slots)?;

    let own: &'static Slot = Slot::for_this_thread("main", true);
    let mut outcome = Ok(());
    park(|| {
        slots.push(own);
        outcome = report_all(&slots).context("cannot write to standard output");
        waiting::until_input_closes(STAY);
    });
    outcome.map(|()| Answer::Yes)
}

/// Waits until every thread stands at its place.
fn settle(slots: &[&'static Slot]) -> anyhow::Result<()> {
    let deadline = Instant::now() + SETTLE;
    while let Some(slot) = slots.iter().find(|slot| !slot.is_parked()) {
        if Instant::now() > deadline {
            bail!("thread {:?} did not come to its place within {SETTLE:?}", slot.name());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn report_all(slots: &[&'static Slot]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for slot in slots {
        write_line(&mut output, &Line::Thread(slot.report()))?;
    }
    write_line(&mut output, &Line::Ready { ready: true })?;
    output.flush()
}

fn write_line(output: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}
