//! What a replay is compared with, and where that comes from.

use serde::{Deserialize, Serialize};
use symseal_module::Avma;

use crate::walk::ThreadStack;

/// A call chain that the workload itself reported for one of its threads: the tail of its stack, the innermost frame
/// first, without gaps and out to the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedChain {
    /// The thread's id.
    pub thread: u32,
    /// Return addresses, and the interrupted address where a signal handler was called.
    pub pcs: Vec<Avma>,
    /// The stack pointer at each of them, which is the frame address of the frame below. Empty where it was not reported.
    pub sps: Vec<Avma>,
}

/// Where the expected values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoldenTier {
    /// The workload reported its call chain itself, and the recorded stacks are held to it.
    SelfReported,
    /// Our own recording alone: it shows that answers are stable, not that they are right.
    OwnRecording,
}

impl ReportedChain {
    /// The index of the first reported frame, from the root inwards, that the stack does not have; `None` where it
    /// has all, and at least one frame below them.
    pub fn first_difference(&self, stack: &ThreadStack) -> Option<usize> {
        // What waits for the stack is not on it, and no chain that a thread reports of itself.
        let frames = stack.frames.split(|frame| frame.method.is_logical()).next().unwrap_or_default();
        let Some(below) = frames.len().checked_sub(self.pcs.len()).filter(|below| *below > 0) else {
            return Some(0);
        };
        let inner = frames.get(below - 1..).unwrap_or_default();
        let same = |at: usize, pc: &Avma| {
            let (Some(frame), Some(callee)) = (inner.get(at + 1), inner.get(at)) else { return false };
            let sp = self.sps.get(at);
            frame.pc == *pc && sp.is_none_or(|sp| *sp == callee.cfa)
        };
        self.pcs.iter().enumerate().rev().find(|(at, pc)| !same(*at, pc)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_module::StopReason;
    use symseal_unwind::Frame;

    fn stack(frames: &[(u64, u64)]) -> ThreadStack {
        let frame = |(pc, cfa): &(u64, u64)| Frame { pc: Avma(*pc), cfa: Avma(*cfa), ..Frame::EMPTY };
        ThreadStack {
            thread: 1,
            thread_name: String::new(),
            sample: 0,
            frames: frames.iter().map(frame).collect(),
            stop: StopReason::EndOfStack,
            awaited: None,
        }
    }

    #[track_caller]
    fn check(pcs: &[u64], sps: &[u64], expected: Option<usize>) {
        let avmas = |values: &[u64]| values.iter().map(|value| Avma(*value)).collect();
        let chain = ReportedChain { thread: 1, pcs: avmas(pcs), sps: avmas(sps) };
        assert_eq!(chain.first_difference(&stack(&[(1, 10), (2, 20), (3, 30), (4, 0)])), expected);
    }

    #[test]
    fn a_stack_must_end_with_the_reported_chain() {
        check(&[3, 4], &[], None);
        check(&[3, 4], &[20, 30], None);
        check(&[2, 3, 4], &[10, 20, 30], None);
        check(&[3, 5], &[], Some(1));
        check(&[9, 4], &[], Some(0));
        check(&[3, 4], &[21, 30], Some(0));
        check(&[2, 3], &[], Some(1));
        check(&[1, 2, 3, 4], &[], Some(0));
    }
}
