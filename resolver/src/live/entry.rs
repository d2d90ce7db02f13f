//! What is known of one process, read by one thread at a time and shown to all without a lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use symseal_module::{Avma, MissReason, ResolverStep};
use symseal_process::{JitFileState, JitMaps, JitSnapshot, JitSource, ProcessError, ProcessIdentity, identity_of};

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
    known: ArcSwapOption<Known>,
    /// Held while the mappings are read.
    reading: Mutex<()>,
    /// Held while JIT files are read.
    jit: Mutex<Jit>,
    /// What they told last.
    told: ArcSwap<Told>,
}

#[derive(Debug)]
struct Known {
    view: Arc<View>,
    read: Instant,
}

#[derive(Debug)]
struct Jit {
    maps: JitMaps,
    of: Option<ProcessIdentity>,
}

/// What runtimes tell, and when it was read.
#[derive(Debug)]
struct Told {
    names: JitSnapshot,
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
        let jit = Jit { maps: JitMaps::new(pid), of: None };
        let told = ArcSwap::from_pointee(Told { names: jit.maps.snapshot(), read: None });
        Self { pid, started, known: ArcSwapOption::empty(), reading: Mutex::default(), jit: Mutex::new(jit), told }
    }

    /// The view of the program that runs now, which is read where it is not known; of a process that ended the last one.
    pub(super) fn view(&self) -> Result<Arc<View>, ProcessError> {
        match self.known_view() {
            Ok(Some(known)) => Ok(Arc::clone(&known.view)),
            Ok(None) => self.read(),
            Err(error) => Err(error),
        }
    }

    /// The same without reading mappings; `None` where they have to be read.
    pub(super) fn view_without_reading(&self) -> Option<Arc<View>> {
        self.known_view().ok().flatten().map(|known| Arc::clone(&known.view))
    }

    /// Whether the mappings were read a moment ago.
    pub(super) fn is_fresh(&self) -> bool {
        self.known.load().as_ref().is_some_and(|known| known.read.elapsed() < FRESH)
    }

    /// Reads the mappings again. Of a process that ended, and where they cannot be read, gives what was known.
    pub(super) fn read(&self) -> Result<Arc<View>, ProcessError> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.known.load_full();
        let view = match View::read(self.pid, before.as_ref().map(|known| &known.view)) {
            Ok(view) if view.identity.started == self.started => view,
            Ok(_) => return last(before, ProcessError::NoSuchProcess { pid: self.pid }),
            Err(error) => return last(before, error),
        };
        self.known.store(Some(Arc::new(Known { view: Arc::clone(&view), read: Instant::now() })));
        Ok(view)
    }

    /// Reads what the process wrote of its code since the last time.
    pub(super) fn read_jit(&self, view: &View) {
        let mut jit = self.jit.lock().unwrap_or_else(PoisonError::into_inner);
        jit.read(self.pid, view);
        self.told.store(Arc::new(Told { names: jit.maps.snapshot(), read: Some(Instant::now()) }));
    }

    /// The same where that was not a moment ago.
    pub(super) fn refresh_jit(&self, view: &View) {
        if !self.has_fresh_jit() {
            self.read_jit(view);
        }
    }

    /// Whether what runtimes tell was read ever.
    pub(super) fn has_read_jit(&self) -> bool {
        self.told.load().read.is_some()
    }

    /// The frame with the name that the process wrote for its address, if it did.
    pub(super) fn with_jit(&self, frame: ResolvedFrame, lookup: Avma) -> ResolvedFrame {
        self.told.load().name(frame, lookup)
    }

    /// Whether what runtimes tell was read a moment ago.
    pub(super) fn has_fresh_jit(&self) -> bool {
        self.told.load().read.is_some_and(|read| read.elapsed() < FRESH)
    }

    fn known_view(&self) -> Result<Option<Arc<Known>>, ProcessError> {
        let known = self.known.load_full();
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
    }
}

impl Told {
    fn name(&self, frame: ResolvedFrame, lookup: Avma) -> ResolvedFrame {
        if let Some(found) = self.names.find(lookup) {
            return with_jit(frame, lookup, found);
        }
        let problems = [JitSource::PerfMap, JitSource::JitDump].map(|source| problem_of(self.names.state(source)));
        let is_module = frame.module.as_ref().is_some_and(|module| module.debug_id.is_some());
        match problems.into_iter().flatten().next() {
            // A module has its own reasons.
            Some((reason, detail)) if !is_module => missed(frame, ResolverStep::JitMap, reason, detail),
            Some((reason, detail)) => noted(frame, ResolverStep::JitMap, reason, detail),
            None if self.is_absent() => {
                noted(frame, ResolverStep::JitMap, MissReason::FileNotFound, NEITHER.to_owned())
            }
            None => noted(frame, ResolverStep::JitMap, MissReason::NoSymbolAtAddress, self.passed_over()),
        }
    }

    /// What was not understood of files that name other code, for people.
    fn passed_over(&self) -> String {
        let told = [JitSource::PerfMap, JitSource::JitDump].map(|source| match self.names.state(source) {
            JitFileState::Read { path, passed_over, .. } if *passed_over > 0 => {
                format!("{}: {passed_over} of its entries were not understood", path.display())
            }
            _ => String::new(),
        });
        told.into_iter().filter(|told| !told.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Whether the process has written nothing of its code.
    fn is_absent(&self) -> bool {
        let is_absent = |source| matches!(self.names.state(source), JitFileState::Absent);
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
        JitFileState::Read { path, functions: 0, passed_over } if *passed_over > 0 => {
            let detail = format!("{}: none of its {passed_over} entries was understood", path.display());
            Some((MissReason::Malformed, detail))
        }
        JitFileState::Absent | JitFileState::Read { .. } => None,
    }
}

fn last(before: Option<Arc<Known>>, error: ProcessError) -> Result<Arc<View>, ProcessError> {
    before.map(|known| Arc::clone(&known.view)).ok_or(error)
}
