//! Names of addresses of running processes.
//!
//! [`LiveSymbolizer`] holds what processes share: the chain's sources, the tables of modules, the kernel's symbols, a few
//! threads and the caches. [`LiveProcess`] is one process of it.
//!
//! Each address is given the best that is known, and never an error:
//!
//! | where the address lies | name |
//! | --- | --- |
//! | a module | the chain of [`Resolver`]; files are those that are mapped, also deleted or replaced ones, read through the process's own root directory |
//! | the vDSO | its symbols, out of the process's memory |
//! | code that the process made | its jitdump, else its perf map: the process's own word, without proof |
//! | the kernel | a bundle with the running kernel's build-id, else `/proc/kallsyms` where the system shows it |
//! | another mapping | its name and the place in it |
//! | nothing | the bare address, with the reason |
//!
//! A process's mappings are read where they are older than a tenth of a second, where an address falls outside of what is known, and where the process
//! runs another program. [`LiveProcess::try_resolve`] reads none, and does not notice what replaces a mapping at the same addresses: [`LiveProcess::refresh`]. When
//! a process ends, what was known last still names what was sampled before; a later process of the same id never
//! gets any of it.
//!
//! What was found is found again without a lock, by any number of threads: mappings, tables, the kernel's symbols and those of a runtime are each
//! replaced as a whole, and the caches count and forget without holding anybody up.
//!
//! A profiler calls [`LiveProcess::try_resolve`], which reads no file of the process but two small ones of `/proc` and waits
//! for nobody: what is not known yet is found by the threads of the symbolizer. Each module is read by one thread, once for
//! all processes.
//!
//! ```no_run
//! use symseal_module::Avma;
//! use symseal_resolver::live::{LiveAddress, LiveProcess};
//! use symseal_resolver::{Options, Resolver};
//!
//! let resolver = Resolver::new(Options { local_files: true, demangle: true, ..Options::default() });
//! let process = LiveProcess::attach(1234, resolver)?;
//! for frame in process.resolve(&[LiveAddress::instruction(Avma(0x7f00_0000_1234))]) {
//!     println!("{:?}", frame.stack_frames());
//! }
//! # Ok::<(), symseal_process::ProcessError>(())
//! ```

mod entry;
mod files;
mod frame;
mod kernel;
mod modules;
mod named;
mod pool;
mod process;
mod shelf;
mod tally;
mod view;

use std::sync::Arc;

use symseal_module::{Avma, UnwindMethod};
use symseal_process::{identity_of, process_of};

use crate::{CallSite, ResolvedFrame, Resolver};
use entry::Entry;
use kernel::Kernel;
use modules::Modules;
use named::NamedAddresses;
use pool::Pool;
use shelf::Shelf;

pub use process::{LiveProcess, Resolving};
pub use shelf::CacheStatistics;
pub use symseal_process::ProcessError;

/// An address of a process that is to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveAddress {
    /// The instruction pointer.
    pub ip: Avma,
    /// Whether it is the instruction that was executing; else it is a return address, and the byte before it is looked up.
    pub exact: bool,
    /// How the frame was found.
    pub unwind: UnwindMethod,
}

impl LiveAddress {
    /// The instruction that a thread was executing.
    pub fn instruction(ip: Avma) -> Self {
        Self { ip, exact: true, unwind: UnwindMethod::Context }
    }

    /// A return address that was found on the stack.
    pub fn return_address(ip: Avma, unwind: UnwindMethod) -> Self {
        Self { ip, exact: false, unwind }
    }

    /// The address that is looked up.
    fn lookup(&self) -> Avma {
        if self.exact { self.ip } else { CallSite::of_host().before(self.ip).unwrap_or(self.ip) }
    }
}

/// Bounds of what a symbolizer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveLimits {
    /// Processes whose mappings are kept.
    pub processes: usize,
    /// Bytes of the tables of modules; the one that was read last is kept even if it is larger alone.
    pub module_bytes: u64,
    /// Addresses whose frames are kept.
    pub addresses: usize,
    /// Threads that read files.
    pub threads: usize,
}

impl Default for LiveLimits {
    fn default() -> Self {
        Self { processes: 256, module_bytes: 512 << 20, addresses: crate::DEFAULT_ADDRESS_CACHE, threads: 2 }
    }
}

/// What the caches of a symbolizer hold and how often they helped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveStatistics {
    /// What is known by process; a hit is a question of a process that was known.
    pub processes: CacheStatistics,
    /// Tables by module.
    pub modules: CacheStatistics,
    /// Frames by module and address; what a runtime or the kernel names is not among them.
    pub addresses: CacheStatistics,
}

/// Names addresses of any number of processes. See the [module documentation](self). Clones are the same one.
#[derive(Debug, Clone)]
pub struct LiveSymbolizer {
    shared: Arc<Shared>,
}

/// A process by its id and when it was started.
type ProcessKey = (u32, u64);

#[derive(Debug)]
struct Shared {
    base: Resolver,
    pool: Pool,
    kernel: Kernel,
    modules: Modules,
    processes: Shelf<ProcessKey, Entry>,
    addresses: NamedAddresses,
}

impl LiveSymbolizer {
    /// A symbolizer that asks the bundles of `resolver`, under its options. Without
    /// [`local_files`](crate::Options::local_files) the files of modules are not read.
    pub fn new(resolver: Resolver, limits: LiveLimits) -> Self {
        let base = resolver.with_cold_cache(0).with_call_site(CallSite::of_host());
        let shared = Shared {
            modules: Modules::new(base.with_cold_cache(0), limits.module_bytes),
            base,
            pool: Pool::new(limits.threads),
            kernel: Kernel::default(),
            processes: Shelf::new(limits.processes.max(1), u64::MAX),
            addresses: NamedAddresses::new(limits.addresses),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The process that has this id now, or a thread of which has it.
    ///
    /// # Errors
    /// Where there is none, or it cannot be looked at.
    pub fn process(&self, id: u32) -> Result<LiveProcess, ProcessError> {
        let pid = process_of(id)?;
        Ok(LiveProcess::new(Arc::clone(&self.shared), pid, identity_of(pid)?.started))
    }

    /// Frames of a process that [`Self::process`] gave this error for: bare addresses with the reason, and the kernel's functions, which are the same for all.
    pub fn without_process(&self, addresses: &[LiveAddress], error: &ProcessError) -> Vec<ResolvedFrame> {
        addresses.iter().map(|address| self.shared.without_view(*address, error)).collect()
    }

    /// What is held, and how often it helped.
    pub fn statistics(&self) -> LiveStatistics {
        LiveStatistics {
            processes: self.shared.processes.statistics(),
            modules: self.shared.modules.statistics(),
            addresses: self.shared.addresses.statistics(),
        }
    }
}
