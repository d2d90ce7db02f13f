//! What the workload says about its own call chains, and how a captured stack is held to it.

use std::io::{BufRead, Read};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use symseal_module::Avma;

/// No report comes near this length.
const MAX_LINE_BYTES: u64 = 1 << 20;
const MAX_THREADS: usize = 1024;

/// One line of the workload's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// One thread, standing at its place.
    Thread(ThreadReport),
    /// All threads have reported.
    Ready {
        /// True.
        ready: bool,
    },
}

/// One thread's own account of its call chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// The thread's id.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// The chain above the function that waits, innermost first: return addresses, and the interrupted address
    /// where a signal handler was called. What the waiting function itself calls while it waits is not in it.
    pub pcs: Vec<Avma>,
    /// For each of them the value of the stack pointer there: the canonical frame address of the frame below.
    pub sps: Vec<Avma>,
    /// The names of the same chain, inlined functions included; empty where names could not be asked for
    /// (in a signal handler).
    pub functions: Vec<String>,
}

/// Reads the workload's output up to and including its last line.
pub fn read(input: &mut impl BufRead) -> anyhow::Result<Vec<ThreadReport>> {
    let mut threads = Vec::new();
    loop {
        let mut line = Vec::new();
        // Through the reference: `take` would keep the input.
        let mut bounded = Read::take(&mut *input, MAX_LINE_BYTES);
        bounded.read_until(b'\n', &mut line).context("cannot read the workload's report")?;
        if line.is_empty() {
            bail!("the workload ended after {} threads, before it was ready", threads.len());
        }
        match serde_json::from_slice(&line).context("the workload wrote a line that is no report")? {
            Line::Ready { .. } => return Ok(threads),
            Line::Thread(thread) => threads.push(thread),
        }
        if threads.len() > MAX_THREADS {
            bail!("the workload reports more than {MAX_THREADS} threads");
        }
    }
}

/// Where a captured stack differs from what its thread reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The frame, counted from the outermost one, which is 0.
    pub from_root: usize,
    /// What the thread reported.
    pub reported: Avma,
    /// What was captured; `None` where the captured stack is shorter.
    pub captured: Option<Avma>,
}

/// Holds the addresses of a captured stack (innermost first) to a thread's report.
///
/// A captured stack is right when it ends with the reported chain. The number of frames before that, those in
/// the wait itself and never none, is the answer; otherwise every difference.
pub fn compare(reported: &[Avma], captured: &[Avma]) -> Result<usize, Vec<Mismatch>> {
    let mut mismatches = Vec::new();
    let mut outwards = captured.iter().rev();
    for (from_root, reported) in reported.iter().rev().enumerate() {
        let captured = outwards.next().copied();
        if captured != Some(*reported) {
            mismatches.push(Mismatch { from_root, reported: *reported, captured });
        }
    }
    let waiting = outwards.len();
    if mismatches.is_empty() && waiting == 0 {
        // The function that waits must be on the stack too.
        let reported = reported.first().copied().unwrap_or_default();
        mismatches.push(Mismatch { from_root: captured.len(), reported, captured: None });
    }
    if mismatches.is_empty() { Ok(waiting) } else { Err(mismatches) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avmas(values: &[u64]) -> Vec<Avma> {
        values.iter().map(|value| Avma(*value)).collect()
    }

    #[test]
    fn a_stack_that_ends_with_the_reported_chain_is_right() {
        assert_eq!(compare(&avmas(&[3, 4, 5]), &avmas(&[1, 2, 3, 4, 5])), Ok(2));
    }

    #[test]
    fn every_other_frame_is_told() {
        let wrong = compare(&avmas(&[3, 4, 5]), &avmas(&[1, 3, 9, 5])).unwrap_err();
        assert_eq!(wrong, [Mismatch { from_root: 1, reported: Avma(4), captured: Some(Avma(9)) }]);
    }

    #[test]
    fn a_stack_that_is_too_short_is_wrong() {
        let wrong = compare(&avmas(&[3, 4, 5]), &avmas(&[4, 5])).unwrap_err();
        assert_eq!(wrong, [Mismatch { from_root: 2, reported: Avma(3), captured: None }]);
        assert!(compare(&avmas(&[4, 5]), &avmas(&[4, 5])).is_err(), "the waiting function is missing");
        assert!(compare(&[], &[]).is_err());
    }

    #[test]
    fn reports_read_what_the_workload_writes() {
        let report = ThreadReport { thread: 7, name: "sort".into(), pcs: avmas(&[0x1000]), ..ThreadReport::default() };
        let mut text = serde_json::to_string(&Line::Thread(report.clone())).unwrap();
        text.push_str("\n{\"ready\":true}\n");
        assert_eq!(read(&mut text.as_bytes()).unwrap(), [report]);
        assert!(read(&mut &b"{\"ready\":1}\n"[..]).is_err());
        assert!(read(&mut &b""[..]).is_err());
    }
}
