//! What goes into a walk and what comes out.

use symseal_module::{Avma, FrameEdge, StopReason, UnwindMethod};

/// The registers of one thread at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Program counter, an actual address.
    pub pc: u64,
    /// Stack pointer. On aarch64 its top byte may be a tag: memory is read at addresses without.
    pub sp: u64,
    /// Frame pointer register (rbp, x29, $30, ebp, s0, r11), with its tag if it has one, whether or not the code uses it as one. 0 stands for an unknown one, unless
    /// `general` has it too.
    pub fp: u64,
    /// General registers by DWARF number (x86_64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8–r15; aarch64: x0–x30; MIPS: $0–$31;
    /// IA-32: eax, ecx, edx, ebx, esp, ebp, esi, edi; RISC-V: x0–x31; ARM: r0–r14);
    /// `None` where unknown. Where calls do not push the return address, the link register is needed; else a few
    /// rules need some, above all those that calls keep. `fp` and `sp` above are used for the numbers of those two.
    pub general: [Option<u64>; Registers::GENERAL],
}

impl Registers {
    /// Room for the general registers of every architecture.
    pub const GENERAL: usize = 32;

    /// Whether `fp` is a value: who does not know it leaves it 0, and so does who knows that it is 0 and says so in `general`.
    pub(crate) fn knows_frame_pointer(&self, number: u8) -> bool {
        self.fp != 0 || self.general.get(usize::from(number)).is_some_and(Option::is_some)
    }
}

/// One frame of a walk, the innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The program counter: of the snapshot, of an interrupted frame, or a return address. An address alone: without a signature, and
    /// without the bit that marks MIPS16, microMIPS and Thumb.
    pub pc: Avma,
    /// True where `pc` is the next instruction to run; false where it is a return address, so that the call lies
    /// at `pc - 1` and everything is to be looked up there.
    pub exact: bool,
    /// The canonical frame address: the stack pointer of the caller. Of a signal frame: the interrupted stack pointer. 0 if
    /// unknown: in the last frame, and where a frame pointer led on that does not tell it (aarch64). Of a frame that is on no stack
    /// ([`UnwindMethod::AsyncParent`]): the address of what is kept of it: its asynchronous context, the header of its task, or the frame of its coroutine.
    pub cfa: Avma,
    /// The value of the frame pointer register in this frame, with its tag if it has one (aarch64); 0 if a rule lost it.
    pub fp: u64,
    /// How this frame was found from its callee.
    pub method: UnwindMethod,
    /// The index, as given to [`Modules::new`](crate::Modules::new), of the module that holds [`lookup_pc`](Self::lookup_pc).
    pub module: Option<u32>,
}

impl Frame {
    /// A frame of nothing, to fill buffers with.
    pub const EMPTY: Self =
        Self { pc: Avma(0), exact: false, cfa: Avma(0), fp: 0, method: UnwindMethod::Context, module: None };

    /// The address to look rules and symbols up at: the instruction itself, or the last byte of the call.
    pub fn lookup_pc(&self) -> Avma {
        Avma(self.pc.0.wrapping_sub(u64::from(!self.exact)))
    }

    /// What leads to this frame from its callee, or from the frame that it waits for.
    pub fn edge(&self, callee: &Self) -> FrameEdge {
        // Where addresses have 64 bits, those of kernels are the upper half.
        let is_kernel = |frame: &Self| frame.pc.0 >> 63 != 0;
        if let Some(edge) = self.method.logical_edge() {
            return edge;
        }
        match self.method {
            UnwindMethod::SignalContext if is_kernel(callee) && !is_kernel(self) => FrameEdge::KernelEntry,
            UnwindMethod::SignalContext => FrameEdge::Interrupt,
            _ => FrameEdge::Call,
        }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// How far a walk came and why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// How many frames were written to the front of the buffer.
    pub frames: usize,
    /// Why there are no more on the stack.
    pub stop: StopReason,
    /// The frames at the end that are on no stack, if there are any.
    pub continuation: Option<Continuation>,
}

/// The frames behind a complete stack that wait for one of its asynchronous functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// The index of the frame that the first of them waits for. Each other one waits for the one before it.
    pub awaited: usize,
    /// How many there are.
    pub frames: usize,
}

impl Walk {
    /// How many frames are those of the stack itself.
    pub fn physical(&self) -> usize {
        self.frames - self.continuation.map_or(0, |continuation| continuation.frames)
    }

    /// True where the stack was followed to its very end.
    pub fn is_complete(&self) -> bool {
        self.stop.is_complete()
    }
}
