//! A set of modules that many threads read while one exchanges it for another.
//!
//! Readers count themselves in and out, and never wait. A writer publishes the new set first, and lets go of the old
//! one when everybody who was there then has left: the scheme of sleepable RCU, with two counters so that those who come later
//! cannot keep it waiting.
#![allow(unsafe_code, reason = "a set that is freed when its last reader has left")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use symseal_module::Avma;
use symseal_unwind::{Arch, Modules};

use crate::module::Module;
use crate::status::dwunw_status as S;

/// The processor that runs this.
const HOST: Arch = if cfg!(target_arch = "aarch64") {
    Arch::Aarch64
} else if cfg!(all(target_arch = "mips", target_endian = "big")) {
    Arch::Mips32
} else if cfg!(target_arch = "mips") {
    Arch::Mips32Little
} else if cfg!(target_arch = "x86") {
    Arch::I686
} else if cfg!(target_arch = "riscv64") {
    Arch::Riscv64
} else if cfg!(target_arch = "arm") {
    Arch::Arm
} else {
    Arch::X86_64
};

/// The modules at one time. Immutable.
pub(crate) struct Snapshot {
    /// For the engine, in the order of `modules`. Before them, so that it is dropped first.
    pub(crate) engine: Modules<'static>,
    /// By rising number.
    pub(crate) modules: Vec<Arc<Module>>,
}

impl Snapshot {
    /// A set for `arch`; if that is not given, for the processor of the modules' files, and without any, for the one that runs this.
    pub(crate) fn new(arch: Option<Arch>, modules: Vec<Arc<Module>>) -> Result<Box<Self>, S> {
        let arch = arch.or_else(|| modules.iter().find_map(|module| module.arch())).unwrap_or(HOST);
        let mut views = Vec::new();
        views.try_reserve_exact(modules.len()).map_err(|_| S::OutOfMemory)?;
        views.extend(modules.iter().map(|module| module.view()));
        Ok(Box::new(Self { engine: Modules::new(arch, views), modules }))
    }

    /// The module with this number.
    pub(crate) fn module(&self, number: u32) -> Option<&Module> {
        let at = self.modules.binary_search_by_key(&number, |module| module.number).ok()?;
        self.modules.get(at).map(|module| &**module)
    }

    /// The processor that a module's file is for.
    pub(crate) fn arch_of_files(&self) -> Option<Arch> {
        self.modules.iter().find_map(|module| module.arch())
    }

    /// The module that holds an actual address, by the engine's word: names and frames go by the same one.
    pub(crate) fn module_at(&self, address: u64) -> Option<&Module> {
        self.modules.get(self.engine.holder(Avma(address))?).map(|module| &**module)
    }
}

/// Counters are apart, so that threads do not wait for each other's cache lines.
const STRIPES: usize = 8;

/// Readers of one stripe by the period in which they came.
#[repr(align(128))]
#[derive(Default)]
struct Stripe([AtomicUsize; 2]);

impl Stripe {
    fn counter(&self, period: usize) -> &AtomicUsize {
        let [even, odd] = &self.0;
        if period & 1 == 0 { even } else { odd }
    }
}

/// What a child of `fork` has as zeros.
struct Wiped {
    /// Counters of readers: of the threads that read, the child has none.
    stripes: [Stripe; STRIPES],
    /// The number of the process, once that is known.
    process: AtomicU32,
}

/// Memory for that. (madvise(2), `MADV_WIPEONFORK`, from Linux 4.14 on; before, a child waits for readers in vain)
struct Readers(NonNull<Wiped>);

/// In place of its number, for every process whose children would have that of their parent.
const ANY_PROCESS: u32 = 1;

impl Readers {
    fn new() -> Result<Self, S> {
        let size = size_of::<Wiped>();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: memory of its own, wherever there is room; of whole pages, aligned as they are.
        let memory = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(S::OutOfMemory);
        }
        // SAFETY: the same memory.
        let is_wiped = unsafe { libc::madvise(memory, size, libc::MADV_WIPEONFORK) } == 0;
        let readers = NonNull::new(memory.cast()).map(Self).ok_or(S::OutOfMemory)?;
        if !is_wiped {
            readers.process.store(ANY_PROCESS, Ordering::Relaxed);
        }
        Ok(readers)
    }
}

impl Deref for Readers {
    type Target = Wiped;

    fn deref(&self) -> &Wiped {
        // SAFETY: mapped until this is dropped, and zeros are counters of nobody and no process.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Wiped>()) };
    }
}

/// The current set, and who reads it.
pub(crate) struct Published {
    current: AtomicPtr<Snapshot>,
    period: AtomicUsize,
    readers: Readers,
}

/// A reader's hold on the set that was current when it came.
pub(crate) struct Reading<'p> {
    counter: &'p AtomicUsize,
    snapshot: &'p Snapshot,
}

impl Deref for Reading<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        self.snapshot
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Release);
    }
}

impl Published {
    pub(crate) fn new(first: Box<Snapshot>) -> Result<Self, S> {
        let readers = Readers::new()?;
        Ok(Self { current: AtomicPtr::new(Box::into_raw(first)), period: AtomicUsize::new(0), readers })
    }

    /// The current set. Waits for nobody. `spread` decides which counter is used: threads do best with different ones.
    pub(crate) fn read(&self, spread: usize) -> Reading<'_> {
        // Scratch memories lie pages apart.
        let stripe = (spread >> 6) ^ (spread >> 12);
        let [first, ..] = &self.readers.stripes;
        let stripe = self.readers.stripes.get(stripe % STRIPES).unwrap_or(first);
        let counter = stripe.counter(self.period.load(Ordering::SeqCst));
        counter.fetch_add(1, Ordering::SeqCst);
        // Only now: a writer that did not see the count has published its set before.
        let current = self.current.load(Ordering::SeqCst);
        // SAFETY: a writer lets go of a set when it is not current any more and every counter was seen at zero since; ours is not.
        Reading { counter, snapshot: unsafe { &*current } }
    }

    /// What tells this process from the one that it is a child of; never 0. The system is asked once.
    pub(crate) fn process(&self) -> u32 {
        let known = &self.readers.process;
        match known.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: takes nothing.
                let own = unsafe { libc::getpid() }.unsigned_abs();
                known.store(own, Ordering::Relaxed);
                own
            }
            own => own,
        }
    }

    /// The current set, for the one writer.
    ///
    /// # Safety
    /// The caller holds the writers' lock while it uses the answer.
    pub(crate) unsafe fn for_writer(&self) -> &Snapshot {
        // SAFETY: only a writer frees it.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Makes `next` the current set, waits until nobody reads the one before, and gives that.
    ///
    /// # Safety
    /// The caller holds the writers' lock, and reads no set itself.
    pub(crate) unsafe fn exchange(&self, next: Box<Snapshot>) -> Box<Snapshot> {
        let before = self.current.swap(Box::into_raw(next), Ordering::SeqCst);
        for _ in 0..2 {
            let period = self.period.fetch_add(1, Ordering::SeqCst);
            for stripe in &self.readers.stripes {
                let mut waited = 0u32;
                while stripe.counter(period).load(Ordering::SeqCst) != 0 {
                    pause(&mut waited);
                }
            }
        }
        // SAFETY: from Box::into_raw, not current any more, and whoever read it has left.
        unsafe { Box::from_raw(before) }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let current = core::mem::replace(self.current.get_mut(), null_mut());
        // SAFETY: from Box::into_raw; nobody has a reference to self, so nobody reads.
        drop(unsafe { Box::from_raw(current) });
    }
}

/// Of `waited`: from here on `pause` gives the processor to others.
pub(crate) const SPINS: u32 = 64;

/// A walk takes microseconds; one that reads a stopped process may take longer.
pub(crate) fn pause(waited: &mut u32) {
    *waited = waited.saturating_add(1);
    match *waited {
        0..=64 => core::hint::spin_loop(),
        // SAFETY: takes nothing.
        65..=256 => drop(unsafe { libc::sched_yield() }),
        _ => {
            let mut time: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            time.tv_nsec = 50_000;
            // SAFETY: a valid time; the rest of it is not wanted.
            unsafe { libc::nanosleep(&raw const time, null_mut()) };
        }
    }
}
