//! What a replay is compared with, and where that comes from.

use serde::{Deserialize, Serialize};
use symseal_module::Avma;
use symseal_resolver::ResolvedFrame;

use crate::resolve::ResolvedThread;

/// A call chain that somebody else than the unwinder reported for a thread, the innermost call first. Frames
/// between two of its calls (of libraries, for example) may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedChain {
    /// The thread's id.
    pub thread: u32,
    /// Its calls.
    pub calls: Vec<ReportedCall>,
}

/// One call of a reported chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedCall {
    /// A frame with just this instruction pointer (for a caller: its return address).
    Pc(Avma),
    /// A frame of the function that begins at this address.
    FunctionStart(Avma),
    /// A frame in a function of this name, which may be inlined: its source name or raw symbol, or a name of which
    /// this is the part after the last `::`.
    Function(String),
}

/// Where the expected values come from: the tiers of the reference on unwinding oracles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoldenTier {
    /// The workload reported its call chain itself, and the recorded stacks agree with it.
    SelfReported,
    /// Our own recording alone: it shows that answers are stable, not that they are right.
    OwnRecording,
}

impl ReportedChain {
    /// The index of the first reported call that the stack lacks, in order; `None` where it has all.
    pub fn first_missing(&self, thread: &ResolvedThread) -> Option<usize> {
        let mut frames = thread.frames.iter();
        // The same frame may hold several calls: inlined ones.
        let mut current: Option<(&ResolvedFrame, usize)> = None;
        for (index, call) in self.calls.iter().enumerate() {
            if let (Some((frame, after)), ReportedCall::Function(name)) = (current, call)
                && let Some(at) = named_at(frame, name, after)
            {
                current = Some((frame, at + 1));
                continue;
            }
            current = None;
            for frame in frames.by_ref() {
                if let Some(after) = call.matches(frame) {
                    current = Some((frame, after));
                    break;
                }
            }
            if current.is_none() {
                return Some(index);
            }
        }
        None
    }
}

impl ReportedCall {
    /// Whether the frame is this call; then the inline depth from which further calls may be in the same frame.
    fn matches(&self, frame: &ResolvedFrame) -> Option<usize> {
        match self {
            Self::Pc(pc) => (frame.ip == *pc).then_some(frame.frames.len()),
            Self::FunctionStart(start) => {
                let offset = frame.frames.last()?.symbol_offset?;
                (frame.ip.0.checked_sub(offset)? == start.0).then_some(frame.frames.len())
            }
            Self::Function(name) => named_at(frame, name, 0).map(|at| at + 1),
        }
    }
}

/// The inline depth, at least `from`, of the function called `name`.
fn named_at(frame: &ResolvedFrame, name: &str, from: usize) -> Option<usize> {
    let is = |text: &Option<String>| {
        text.as_deref()
            .is_some_and(|text| text == name || text.strip_suffix(name).is_some_and(|before| before.ends_with("::")))
    };
    let mut sources = frame.frames.iter().enumerate().skip(from);
    sources.find(|(_, source)| is(&source.function) || is(&source.symbol)).map(|(at, _)| at)
}
