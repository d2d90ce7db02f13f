//! Code that a process makes while it runs, by the two files in which runtimes tell what it is called.
//!
//! | file | written by | tells |
//! | --- | --- | --- |
//! | `/tmp/perf-PID.map` ([`PerfMap`]) | `node --perf-basic-prof`, Java agents, .NET, … | range and name |
//! | `jit-PID.dump` ([`JitDump`]) | `node --perf-prof`, perf's JVMTI agent, … | range, name, lines, moves |
//!
//! Both grow while the process runs, and their last entry may be half-written: readers take what is complete and say
//! how far they came, so that the next part is read on from there. A compiler uses memory again: of entries that lie
//! over each other the last one written holds. What these files say is the process's own word and proves nothing.

mod dump;
mod functions;
mod perf_map;
mod snapshot;

pub use dump::{JitDump, JitDumpError};
pub use functions::{JitFunction, JitFunctions, JitHit, JitLine};
pub use perf_map::PerfMap;
pub use snapshot::JitSnapshot;

/// Functions of one file that are kept at a time; what comes beyond them is counted and left out.
pub const MAX_FUNCTIONS: usize = 1 << 20;

/// The longest name that is kept, in bytes; longer ones are cut.
pub const MAX_NAME_BYTES: usize = 4096;

/// The text of a name: cut to its bound, and escaped where it is not UTF-8.
fn name_text(name: &[u8]) -> String {
    symseal_module::escape::escape(name.get(..MAX_NAME_BYTES).unwrap_or(name))
}
