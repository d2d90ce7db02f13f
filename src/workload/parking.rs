//! Where threads wait, and what they note before.

use std::backtrace::Backtrace;
use std::cell::{Cell, UnsafeCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{io, thread};

use symseal_module::Avma;

use super::chain::{Chain, Frame, MAX_FRAMES, record};
use super::report::ThreadReport;

thread_local! {
    /// The slot of this thread. Constant at start and without a destructor, so that a signal handler may look.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

/// One thread's notes.
pub(super) struct Slot {
    name: &'static str,
    /// Whether names may be asked for, which allocates and locks.
    with_names: bool,
    thread: AtomicU32,
    parked: AtomicBool,
    chain: UnsafeCell<Chain>,
    functions: OnceLock<Vec<String>>,
}

// SAFETY: `chain` is written by the slot's own thread only, before it sets `parked` (release), and read by others only
// after they saw `parked` (acquire).
#[allow(unsafe_code)]
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot for the calling thread.
    pub(super) fn for_this_thread(name: &'static str, with_names: bool) -> &'static Self {
        let slot = Self::new(name, with_names);
        slot.adopt();
        slot
    }

    fn new(name: &'static str, with_names: bool) -> &'static Self {
        Box::leak(Box::new(Self {
            name,
            with_names,
            thread: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            chain: UnsafeCell::new(Chain { frames: [Frame::default(); MAX_FRAMES], count: 0 }),
            functions: OnceLock::new(),
        }))
    }

    /// A new thread that does `work`, which parks somewhere on its way.
    pub(super) fn spawn(
        name: &'static str,
        with_names: bool,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<(&'static Self, thread::JoinHandle<()>)> {
        let slot = Self::new(name, with_names);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            slot.adopt();
            work();
        })?;
        Ok((slot, thread))
    }

    /// Makes it the calling thread's slot.
    #[allow(unsafe_code)]
    fn adopt(&'static self) {
        // SAFETY: no arguments, no memory touched.
        let thread = unsafe { libc::gettid() };
        self.thread.store(u32::try_from(thread).unwrap_or_default(), Ordering::Relaxed);
        SLOT.set(Some(self));
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// What the thread noted. To be asked for once it is parked; empty before.
    #[allow(unsafe_code)]
    pub(super) fn report(&self) -> ThreadReport {
        let mut report = ThreadReport {
            thread: self.thread.load(Ordering::Relaxed),
            name: self.name.to_owned(),
            ..ThreadReport::default()
        };
        if self.is_parked() {
            // SAFETY: parked: its thread does not write any more, and what it wrote is visible.
            let chain = unsafe { &*self.chain.get() };
            let frames = chain.frames.get(..chain.count).unwrap_or_default();
            report.pcs = frames.iter().map(|frame| Avma(frame.pc)).collect();
            report.sps = frames.iter().map(|frame| Avma(frame.sp)).collect();
            report.functions = self.functions.get().cloned().unwrap_or_default();
        }
        report
    }
}

/// Notes the calling thread's chain, says so, and does `wait`. A thread without a slot, or one that has been here, just
/// goes on.
#[inline(never)]
#[allow(unsafe_code)]
pub(super) fn park(wait: impl FnOnce()) {
    let Some(slot) = SLOT.get().filter(|slot| !slot.is_parked()) else { return };
    // SAFETY: not parked yet, so that no other thread reads, and only this thread, whose slot it is, writes.
    record(unsafe { &mut *slot.chain.get() });
    if slot.with_names {
        let _ = slot.functions.set(functions());
    }
    slot.parked.store(true, Ordering::Release);
    wait();
}

/// The names of the frames above [`park`], inlined ones included, as the standard library sees them.
#[inline(never)]
fn functions() -> Vec<String> {
    let text = Backtrace::force_capture().to_string();
    // `  12: name`, each followed by a line `at file:line`.
    let names = text.lines().filter_map(|line| {
        let (number, name) = line.split_once(": ")?;
        number.trim().parse::<u32>().ok().map(|_| name.to_owned())
    });
    names.skip_while(|name| !is_park(name)).skip(1).collect()
}

/// Whether `name` is that of [`park`], with or without its path and its generic arguments.
fn is_park(name: &str) -> bool {
    let path = name.split('<').next().unwrap_or_default().trim_end_matches("::");
    path.rsplit("::").next() == Some("park")
}
