//! The closed sets of codes, the same in JSON, SQL and C. `docs/formats/reasons.md` lists them; a
//! test holds the page to this file.
//!
//! A number, once given, is never reused.

use core::fmt;
use core::str::FromStr;

/// A text that is no code of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownCode {
    /// The set's name.
    pub set: &'static str,
}

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a code of the set {}", self.set)
    }
}

impl core::error::Error for UnknownCode {}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $code:literal, $meaning:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $meaning] $(#[$vdoc])* $variant = $number,)*
        }

        impl $name {
            /// Every code, by rising number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable text.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The stable number.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// One sentence for people.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// The code with this number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.code())
            }
        }

        impl FromStr for $name {
            type Err = UnknownCode;

            fn from_str(text: &str) -> Result<Self, UnknownCode> {
                match text { $($code => Ok(Self::$variant),)* _ => Err(UnknownCode { set: stringify!($name) }) }
            }
        }
    };
}

codes! {
    /// How a frame was found from its callee.
    UnwindMethod {
        Context = 0, "context", "The registers of the capture itself: the innermost frame.";
        CfiEhFrame = 1, "cfi-eh-frame", "Call frame information of .eh_frame.";
        CfiDebugFrame = 2, "cfi-debug-frame", "Call frame information of .debug_frame.";
        SignalContext = 3, "signal-context", "Registers that a signal frame saved.";
        Plt = 4, "plt", "The rule of a procedure linkage table entry.";
        FramePointer = 5, "frame-pointer", "The frame pointer chain, where no rule covered the address.";
        Leaf = 6, "leaf", "A leaf without a rule: the return address was still where the call put it.";
        NullCall = 7, "null-call", "A call through a null pointer: the return address was where the call put it.";
        Scan = 8, "scan", "A guess from scanning the stack; never counts as coverage.";
        JitRule = 9, "jit-rule", "Call frame information that a JIT compiler supplied.";
        Prologue = 10, "prologue", "What the function's own instructions do to its frame, held against what its format records of the body.";
        Pdata = 11, "pdata", "The exception directory of a Windows module (.pdata), or its convention for a leaf.";
        CompactUnwind = 12, "compact-unwind", "Compact unwind information of a Mach-O module.";
        GoroutineSwitch = 13, "goroutine-switch", "Where the goroutine stopped for which a thread runs on its own stack: no call leads there.";
        Exidx = 14, "exidx", "The index table of an ARM module (.ARM.exidx).";
        GoPclntab = 15, "go-pclntab", "The table of functions of a Go program (.gopclntab).";
        AsyncParent = 16, "async-parent", "Where a task goes on that waits for the asynchronous function which the stack runs: it is on no stack.";
        Orc = 17, "orc", "ORC tables of a kernel (.orc_unwind).";
    }
}

codes! {
    /// What leads from a frame to the next one out.
    FrameEdge {
        Call = 0, "call", "A call: the outer frame goes on when the inner one returns.";
        Interrupt = 1, "interrupt", "An interrupt or signal: the outer frame did not call, and goes on where it was.";
        KernelEntry = 2, "kernel-entry", "The boundary of the kernel: the outer frame is that of the process which entered it.";
        GoroutineSwitch = 3, "goroutine-switch", "A change of stacks: the outer frame is that of the goroutine for which the inner one runs.";
        AsyncParent = 4, "async-parent", "A continuation: the outer frame waits for the asynchronous function that the stack runs, or for the parent before it, and is on no stack.";
    }
}

impl FrameEdge {
    /// Whether both frames are on one stack, or on two that the processor changed: what counts as physical depth.
    pub const fn is_physical(self) -> bool {
        matches!(self, Self::Call | Self::Interrupt | Self::KernelEntry)
    }
}

impl UnwindMethod {
    /// Whether a frame that was found so is on no stack: it waits for one that is, and counts as none.
    pub const fn is_logical(self) -> bool {
        matches!(self, Self::AsyncParent)
    }

    /// What leads to a frame that was found so, if that is nothing physical.
    pub const fn logical_edge(self) -> Option<FrameEdge> {
        match self {
            Self::GoroutineSwitch => Some(FrameEdge::GoroutineSwitch),
            Self::AsyncParent => Some(FrameEdge::AsyncParent),
            _ => None,
        }
    }
}

impl StopReason {
    /// Whether the walk came to the very end of the stack.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::EndOfStack | Self::RootFramePointer)
    }
}

codes! {
    /// Why a walk over a stack ended.
    StopReason {
        EndOfStack = 0, "end-of-stack", "The rule says that there is no caller: the stack is complete.";
        RootFramePointer = 1, "root-frame-pointer", "A zero frame pointer or return address ended a frame pointer chain: complete as far as it tells.";
        TruncatedStack = 2, "truncated-stack", "The next word lies beyond the captured stack bytes.";
        NoModule = 3, "no-module", "The address lies in no mapped module, and no frame pointer led on; or that to which the frame pointer leads lies in none.";
        NoRule = 4, "no-rule", "The module's unwind table has no rule for the address, and no frame pointer led on.";
        NoTable = 5, "no-table", "There is no unwind table for the module, and no frame pointer led on.";
        UnsupportedRule = 6, "unsupported-rule", "The rule is one that the engine does not evaluate; it does not guess.";
        StackNotRising = 7, "stack-not-rising", "The caller's frame would not lie above the callee's.";
        Misaligned = 8, "misaligned", "The computed frame address is not aligned to a word.";
        MaxFrames = 9, "max-frames", "The walk reached the caller's bound of frames.";
        Ambiguous = 10, "ambiguous", "Several return addresses were equally likely; the engine does not choose.";
        RegisterUnknown = 11, "register-unknown", "The rule needs a register that the callee's rule did not restore.";
        LeafCalled = 12, "leaf-called", "The rule is that of a leaf, and the function called: no rule describes it, and no frame pointer led on.";
    }
}

codes! {
    /// A step of the resolver chain.
    ResolverStep {
        Debuginfod = 0, "debuginfod", "A debuginfod server, asked only when online.";
        LocalBundle = 1, "local-bundle", "The symbol table of a bundle, by debug id.";
        BinaryDebugInfo = 2, "binary-debug-info", "The binary's own debug information.";
        BinarySymbols = 3, "binary-symbols", "The binary's own symbol tables.";
        ModuleOffset = 4, "module-offset", "The module's name and the address in it.";
        Raw = 5, "raw", "The bare address.";
        DebugFile = 6, "debug-file", "A separate debug file on this machine, of the module's debug id.";
        JitMap = 7, "jit-map", "What a JIT compiler wrote of its code; the process alone says so.";
        Kallsyms = 8, "kallsyms", "The running kernel's own list of symbols.";
        SymbolServer = 9, "symbol-server", "A symbol server for Windows or macOS, asked only when online.";
    }
}

codes! {
    /// Why a step of the resolver chain gave no name.
    MissReason {
        Offline = 0, "offline", "Skipped: the run is offline.";
        NotAllowed = 1, "not-allowed", "Skipped: the call did not ask for it, or its lock file does not allow it.";
        NoModule = 2, "no-module", "The address lies in no mapped module: in code that the process made and told nothing of, or nowhere.";
        NoDebugId = 3, "no-debug-id", "The module has no debug id to look up.";
        NotInBundle = 4, "not-in-bundle", "The bundle has no module with this debug id.";
        NoSymbolTable = 5, "no-symbol-table", "The bundle has the module, but no symbol table of it.";
        NoSymbolAtAddress = 6, "no-symbol-at-address", "The table has no function at this address.";
        FileNotFound = 7, "file-not-found", "A file is not where it should be: the module's, where the process named it; a table, in its bundle.";
        FileUnreadable = 8, "file-unreadable", "A file cannot be read: the module's, or one in which a runtime names its code.";
        DebugIdMismatch = 9, "debug-id-mismatch", "The file has another debug id than the module.";
        DigestMismatch = 10, "digest-mismatch", "The bytes are not those that the bundle, or the lock file, names.";
        Malformed = 11, "malformed", "The file or table breaks its format.";
        Unsupported = 12, "unsupported", "This build, or this call, has no way to read it.";
        NoDebugInfo = 13, "no-debug-info", "The file has no debug information.";
        ServerMiss = 14, "server-miss", "The server does not have it.";
        ServerError = 15, "server-error", "The server could not be reached or failed.";
        NoDebugFile = 16, "no-debug-file", "No separate debug file is where debuggers look for one.";
        ChecksumMismatch = 17, "checksum-mismatch", "The debug file has another checksum than the binary's link names.";
        NotPermitted = 18, "not-permitted", "The system does not let this user read it.";
        NoBundle = 19, "no-bundle", "Skipped: no bundle was given.";
    }
}

codes! {
    /// How much a resolved frame tells, best first.
    Quality {
        Full = 0, "full", "Function, file and line.";
        Function = 1, "function", "Function without a line.";
        ModuleOffset = 2, "module-offset", "Module and the address in it.";
        Raw = 3, "raw", "The bare address.";
    }
}

codes! {
    /// What a name rests on, best first.
    Proof {
        Sealed = 0, "sealed", "A bundle whose seal was verified in this run.";
        DigestKnown = 1, "digest-known", "A bundle whose digests were checked, without a verified seal.";
        None = 2, "none", "Nothing that can be checked.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    macro_rules! check_set {
        ($name:ident) => {
            for (at, code) in $name::ALL.iter().enumerate() {
                assert_eq!(usize::from(code.number()), at);
                assert_eq!($name::from_number(code.number()), Some(*code));
                assert_eq!(code.to_string().parse(), Ok(*code));
            }
            assert!("no such code".parse::<$name>().is_err());
        };
    }

    #[test]
    fn edges_that_methods_stand_for_are_not_physical() {
        let logical: Vec<_> = UnwindMethod::ALL.iter().filter_map(|method| method.logical_edge()).collect();
        assert_eq!(logical, [FrameEdge::GoroutineSwitch, FrameEdge::AsyncParent]);
        assert!(logical.iter().all(|edge| !edge.is_physical()));
        // What a goroutine runs is on a stack, if on another one.
        assert!(UnwindMethod::AsyncParent.is_logical() && !UnwindMethod::GoroutineSwitch.is_logical());
    }

    #[test]
    fn numbers_and_texts_lead_back_to_their_codes() {
        check_set!(UnwindMethod);
        check_set!(FrameEdge);
        check_set!(StopReason);
        check_set!(ResolverStep);
        check_set!(MissReason);
        check_set!(Quality);
        check_set!(Proof);
    }
}
