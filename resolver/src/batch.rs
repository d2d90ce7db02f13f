//! Many addresses in one call, on several threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use symseal_module::{Avma, DebugId, ModuleMap, Rva, UnwindMethod};

use crate::{ResolvedFrame, Resolver, Symbolized};

/// Modules whose tables are opened beside each other: they mostly wait for a network or a disk.
const OPENING: usize = 8;

/// Addresses that one thread takes at least: fewer are named faster than a thread is started.
const SHARE: usize = 2048;

/// An address of a module that is in no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleAddress<'a> {
    /// The module.
    pub id: &'a DebugId,
    /// Its file name, where it is known: symbol servers for Windows and macOS are asked by it.
    pub name: Option<&'a str>,
    /// The address relative to the image base; no return address.
    pub rva: Rva,
}

/// A frame of a stack that is to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAddress {
    /// The instruction pointer.
    pub ip: Avma,
    /// Whether it is the instruction that was executing; else it is a return address.
    pub exact: bool,
    /// How the frame was found.
    pub unwind: UnwindMethod,
}

impl Resolver {
    /// Opens what names the modules, several at once, so that their files are fetched and read beside each other. It changes no answer: each address is still
    /// asked for step by step.
    pub fn open_modules(&self, modules: &ModuleMap) {
        // The first question opens the tables.
        one_by_one(modules.modules(), |module| drop(self.resolve(modules, module.start, true, UnwindMethod::Context)));
    }

    /// The same for modules that are in no process: their ids, and their file names as in [`ModuleAddress`].
    pub fn open_modules_by_id(&self, modules: &[(&DebugId, Option<&str>)]) {
        one_by_one(modules, |(id, name)| drop(self.symbolize_named(id, *name, Rva(0))));
    }

    /// Names addresses of any modules, on as many threads as this machine has processors. The answers are in the order of the questions.
    pub fn symbolize_all(&self, addresses: &[ModuleAddress<'_>]) -> Vec<Symbolized> {
        in_shares(addresses, |address| self.symbolize_named(address.id, address.name, address.rva))
    }

    /// Says that these frames of a process will be named and hardly others: see [`Self::expecting`].
    pub fn expecting_frames(self, modules: &ModuleMap, frames: &[FrameAddress]) -> Self {
        let call_site = self.options().call_site;
        let mut expected: BTreeMap<DebugId, BTreeSet<Rva>> = BTreeMap::new();
        for frame in frames {
            let lookup = if frame.exact { Some(frame.ip) } else { call_site.before(frame.ip) };
            let Some(at) = lookup.and_then(|lookup| modules.locate(lookup)) else { continue };
            if let Some(id) = modules.modules().get(at.module).and_then(|module| module.debug_id.as_ref()) {
                expected.entry(id.clone()).or_default().insert(at.rva);
            }
        }
        self.expecting_modules(expected)
    }

    /// Names frames of one process, on as many threads as this machine has processors. The answers are in the order of the questions.
    pub fn resolve_all(&self, modules: &ModuleMap, frames: &[FrameAddress]) -> Vec<ResolvedFrame> {
        in_shares(frames, |frame| self.resolve(modules, frame.ip, frame.exact, frame.unwind))
    }
}

/// Opens each module on some thread.
fn one_by_one<M: Sync>(modules: &[M], open: impl Fn(&M) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(module) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
            open(module);
        }
    };
    thread::scope(|scope| {
        for _ in 1..OPENING.min(modules.len()) {
            // Fewer threads open the same.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

fn in_shares<Q: Sync, A: Send>(questions: &[Q], answer: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    // Asking how many processors there are takes longer than a few names.
    let threads = match questions.len() / SHARE {
        0 | 1 => 1,
        shares => thread::available_parallelism().map_or(1, usize::from).min(shares),
    };
    let mut shares = questions.chunks(questions.len().div_ceil(threads).max(1));
    let own = shares.next().unwrap_or_default();
    let answer = &answer;
    thread::scope(|scope| {
        // A thread that cannot be started is no reason to give no answers.
        let start = |share: &[Q]| -> Vec<A> { share.iter().map(answer).collect() };
        let others: Vec<_> =
            shares.map(|share| (share, thread::Builder::new().spawn_scoped(scope, move || start(share)))).collect();
        let mut answers = Vec::with_capacity(questions.len());
        answers.extend(own.iter().map(answer));
        for (share, started) in others {
            match started.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(share)) => answers.extend(share),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(_) => answers.extend(share.iter().map(answer)),
            }
        }
        answers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_in_the_order_of_the_questions() {
        for count in [0, 1, SHARE - 1, SHARE, 2 * SHARE, 10 * SHARE + 7] {
            let questions: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = questions.iter().map(|number| number * 3).collect();
            assert_eq!(in_shares(&questions, |number| number * 3), expected);
        }
    }
}
