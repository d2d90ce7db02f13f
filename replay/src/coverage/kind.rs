//! Where the code of a frame is.

use serde::{Deserialize, Serialize};
use symseal_module::ResolverStep;
use symseal_resolver::ResolvedFrame;

/// Where the code of a frame is. Every frame is of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// In a module of which the bundle has line tables.
    Release,
    /// In any other module that is a file.
    Other,
    /// In the image that the kernel maps into processes.
    Vdso,
    /// In code that a compiler made while the program ran, as far as its runtime named it; the rest is in no module.
    Jit,
    /// In the kernel: the upper half of a 64-bit address space.
    Kernel,
    /// In no module that the trace knows.
    Unmapped,
}

impl FrameKind {
    /// Every kind, in the order of tables.
    pub const ALL: [Self; 6] = [Self::Release, Self::Other, Self::Vdso, Self::Jit, Self::Kernel, Self::Unmapped];

    pub(super) fn of(frame: &ResolvedFrame, release: bool) -> Self {
        let path = frame.module.as_ref().map(|module| module.path.as_str());
        match (frame.resolver, path) {
            (ResolverStep::JitMap, _) => Self::Jit,
            (ResolverStep::Kallsyms, _) => Self::Kernel,
            _ if frame.ip.0 >> 63 == 1 => Self::Kernel,
            (_, Some("[vdso]")) => Self::Vdso,
            (_, Some(_)) if release => Self::Release,
            (_, Some(_)) => Self::Other,
            (_, None) => Self::Unmapped,
        }
    }

    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Release => "release modules",
            Self::Other => "other modules",
            Self::Vdso => "vDSO",
            Self::Jit => "JIT code that has names",
            Self::Kernel => "kernel",
            Self::Unmapped => "in no module",
        }
    }
}
