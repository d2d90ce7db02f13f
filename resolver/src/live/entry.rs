//! What is known of one process, read by one thread at a time and shown to all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symseal_module::{Avma, MissReason, ResolverStep};
use symseal_process::{JitFileState, JitMaps, JitSource, ProcessError, ProcessIdentity, identity_of};

use super::frame::{missed, noted, with_jit};
use super::view::View;
use crate::ResolvedFrame;

/// For so long what was read is new enough for those who do not wait.
const FRESH: Duration = Duration::from_millis(100);

/// What is said where the process has written nothing of its code.
const NEITHER: &str = "the process has neither a perf map nor a jitdump";

#[derive(Debug)]
pub(super) struct Entry {
    pid: u32,
    /// When the process was started: which of those that have had the id.
    started: u64,
    /// Held for as long as nothing is read.
    known: Mutex<Option<Known>>,
    /// Held while the mappings are read.
    reading: Mutex<()>,
    /// Held while JIT files are read.
    jit: Mutex<Jit>,
}

#[derive(Debug, Clone)]
struct Known {
    view: Arc<View>,
    read: Instant,
}

#[derive(Debug)]
struct Jit {
    maps: JitMaps,
    of: Option<ProcessIdentity>,
    read: Option<Instant>,
}

/// How a process is, compared with what is known of it.
enum Now {
    /// It runs this program.
    Runs(ProcessIdentity),
    /// It has ended; another one may have its id.
    Ended,
    Hidden(ProcessError),
}

impl Entry {
    pub(super) fn new(pid: u32, started: u64) -> Self {
        let jit = Jit { maps: JitMaps::new(pid), of: None, read: None };
        Self { pid, started, known: Mutex::default(), reading: Mutex::default(), jit: Mutex::new(jit) }
    }

    /// The view of the program that runs now, which is read where it is not known; of a process that ended the last one.
    pub(super) fn view(&self) -> Result<Arc<View>, ProcessError> {
        match self.known_view() {
            Ok(Some(known)) => Ok(known.view),
            Ok(None) => self.read(),
            Err(error) => Err(error),
        }
    }

    /// The same without reading mappings; `None` where they have to be read.
    pub(super) fn view_without_reading(&self) -> Option<Arc<View>> {
        self.known_view().ok().flatten().map(|known| known.view)
    }

    /// Whether the mappings were read a moment ago.
    pub(super) fn is_fresh(&self) -> bool {
        self.known().as_ref().is_some_and(|known| known.read.elapsed() < FRESH)
    }

    /// Reads the mappings again. Of a process that ended, and where they cannot be read, gives what was known.
    pub(super) fn read(&self) -> Result<Arc<View>, ProcessError> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.known().clone();
        let view = match View::read(self.pid, before.as_ref().map(|known| &known.view)) {
            Ok(view) if view.identity.started == self.started => view,
            Ok(_) => return last(before, ProcessError::NoSuchProcess { pid: self.pid }),
            Err(error) => return last(before, error),
        };
        *self.known() = Some(Known { view: Arc::clone(&view), read: Instant::now() });
        Ok(view)
    }

    /// Reads what the process wrote of its code since the last time.
    pub(super) fn read_jit(&self, view: &View) {
        self.jit.lock().unwrap_or_else(PoisonError::into_inner).read(self.pid, view);
    }

    /// The frame with the name that the process wrote for its address, if it did.
    pub(super) fn with_jit(&self, frame: ResolvedFrame, lookup: Avma) -> ResolvedFrame {
        self.jit.lock().unwrap_or_else(PoisonError::into_inner).name(frame, lookup)
    }

    /// The same without waiting; false where reading could bring another name.
    pub(super) fn try_with_jit(&self, frame: ResolvedFrame, lookup: Avma) -> (ResolvedFrame, bool) {
        match self.jit.try_lock() {
            Ok(jit) => {
                let fresh = jit.read.is_some_and(|read| read.elapsed() < FRESH);
                (jit.name(frame, lookup), fresh)
            }
            Err(_) => (frame, false),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_view(&self) -> Result<Option<Known>, ProcessError> {
        let known = self.known().clone();
        match (self.now(), known) {
            (Now::Runs(identity), known) => Ok(known.filter(|known| known.view.identity == identity)),
            (Now::Ended, known) => known.map(Some).ok_or(ProcessError::NoSuchProcess { pid: self.pid }),
            (Now::Hidden(error), known) => known.map(Some).ok_or(error),
        }
    }

    fn now(&self) -> Now {
        match identity_of(self.pid) {
            Ok(identity) if identity.started == self.started => Now::Runs(identity),
            Ok(_) | Err(ProcessError::NoSuchProcess { .. } | ProcessError::NoMemory { .. }) => Now::Ended,
            Err(error) => Now::Hidden(error),
        }
    }
}

impl Jit {
    fn read(&mut self, pid: u32, view: &View) {
        if self.of != Some(view.identity) {
            // Another program wrote what is there.
            self.maps = JitMaps::new(pid);
            self.of = Some(view.identity);
        }
        self.maps.refresh(&view.mappings);
        self.read = Some(Instant::now());
    }

    fn name(&self, frame: ResolvedFrame, lookup: Avma) -> ResolvedFrame {
        if let Some(found) = self.maps.find(lookup) {
            return with_jit(frame, lookup, found);
        }
        let problems = [JitSource::PerfMap, JitSource::JitDump].map(|source| problem_of(self.maps.state(source)));
        let is_module = frame.module.as_ref().is_some_and(|module| module.debug_id.is_some());
        match problems.into_iter().flatten().next() {
            // A module has its own reasons.
            Some((reason, detail)) if !is_module => missed(frame, ResolverStep::JitMap, reason, detail),
            Some((reason, detail)) => noted(frame, ResolverStep::JitMap, reason, detail),
            None if self.is_absent() => {
                noted(frame, ResolverStep::JitMap, MissReason::FileNotFound, NEITHER.to_owned())
            }
            None => noted(frame, ResolverStep::JitMap, MissReason::NoSymbolAtAddress, String::new()),
        }
    }

    /// Whether the process has written nothing of its code.
    fn is_absent(&self) -> bool {
        let is_absent = |source| matches!(self.maps.state(source), JitFileState::Absent);
        is_absent(JitSource::PerfMap) && is_absent(JitSource::JitDump)
    }
}

/// Why a file of a runtime names nothing, or not all that it would.
fn problem_of(state: &JitFileState) -> Option<(MissReason, String)> {
    match state {
        JitFileState::ForeignOwner { path, owner } => {
            let detail = format!("{}: belongs to user {owner}, and not to the process's", path.display());
            Some((MissReason::NotPermitted, detail))
        }
        JitFileState::Unreadable { path, problem } => {
            Some((MissReason::FileUnreadable, format!("{}: {problem}", path.display())))
        }
        JitFileState::Damaged { path, problem } => {
            Some((MissReason::Malformed, format!("{}: {problem}", path.display())))
        }
        JitFileState::Absent | JitFileState::Read { .. } => None,
    }
}

fn last(before: Option<Known>, error: ProcessError) -> Result<Arc<View>, ProcessError> {
    before.map(|known| known.view).ok_or(error)
}
