//! Address to symbol through a strict chain of steps, and a record of how each one went.
//!
//! The caller provides addresses with the modules of their process, and bundles with what was verified of
//! them. The crate gives, for every address, functions (inlined ones first), file and line, the step that
//! answered, the steps that did not and why, and what the name rests on.
//!
//! | step | asked |
//! | --- | --- |
//! | `debuginfod`, `symbol-server` | with [`Options::online`]; whoever implements [`SymbolServers`], as the feature `online` does |
//! | `local-bundle` | always; the `.symx` table of the module, by debug id |
//! | `debug-file` | with [`Options::local_files`]; a separate debug file where debuggers look for one, with the module's debug id |
//! | `binary-debug-info`, `binary-symbols` | with [`Options::local_files`]; the file must have the module's debug id. An image that the trace carries (vDSO) is always asked |
//! | `jit-map`, `kallsyms` | of a running process, by [`live`] |
//! | `module-offset` | always: the module and the address in it |
//! | `raw` | for addresses outside of every module |
//!
//! What it refuses to do: it fetches nothing that it was not told to fetch, it never answers with the nearest symbol when the
//! address lies beyond that symbol's size, and timing or caches never change an answer.
//!
//! Everything is synchronous, and a [`Resolver`] can be shared between threads. [`live`] names addresses of running
//! processes, with threads of its own for those who must not wait.
//!
//! ```
//! use symseal_module::{Avma, ModuleMap, ResolverStep, UnwindMethod};
//! use symseal_resolver::{Options, Resolver};
//!
//! let resolver = Resolver::new(Options::default());
//! let frame = resolver.resolve(&ModuleMap::default(), Avma(0x1234), true, UnwindMethod::Context);
//! assert_eq!(frame.resolver, ResolverStep::Raw);
//! ```

mod answer;
mod answers;
mod batch;
mod bundles;
mod cache;
mod call_site;
mod code;
mod demangle;
mod file_bytes;
mod files;
mod flights;
mod jit;
pub mod live;
mod local;
mod naming;
#[cfg(feature = "online")]
pub mod online;
mod options;
mod remote;
mod resolver;
mod secrets;
mod servers;
mod slots;
mod table;
mod text;
mod trail;
mod vdso;

pub use answer::{
    Answer, DigestOf, DigestRef, FrameLine, ModuleRef, Outcome, ResolvedFrame, SourceFrame, SourceLocation, StackFrame,
    SymbolizeLine, Symbolized, Tried,
};
pub use batch::{FrameAddress, ModuleAddress};
pub use bundles::{Access, StoredBundle, miss_reason};
pub use call_site::CallSite;
pub use code::ModuleCode;
pub use demangle::{Demangling, MAX_DEMANGLED_BYTES, demangle};
pub use file_bytes::FileBytes;
pub use files::{ModuleFiles, ThisMachine};
pub use jit::JitNames;
pub use options::{DEFAULT_ADDRESS_CACHE, Options};
pub use resolver::Resolver;
pub use secrets::without_secrets;
pub use servers::{CheckFile, FetchedFile, NO_SERVERS, NotFetched, SymbolServers, WantedFile, WantedKind};
pub use symseal_process::{JitFunction, JitLine};
pub use text::Text;
pub use vdso::{MAX_IMAGE_BYTES, VdsoError, VdsoModule, VdsoUnwind, vdso_module};
