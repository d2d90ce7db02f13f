//! Call frame information written by hand, compiled, and walked with.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;

use symseal_module::{Avma, DebugId, Svma};
use symseal_unwind::compile::{self, Compiled, Input};
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Memory, Module, Modules, Registers, Table, Walk, unwind};

/// Where the code of these tests lies, as stated; it is mapped [`BIAS`] higher.
pub(crate) const TEXT: std::ops::Range<u64> = 0x1000..0x3000;
pub(crate) const BIAS: u64 = 0x7f00_0000_0000;
/// The same for 32-bit processors.
pub(crate) const BIAS_32: u64 = 0x4000_0000;

/// CFA = rsp + 8, return address at CFA - 8: what holds at the entry of any function.
pub(crate) const AT_ENTRY: &[u8] = &[0x0c, 7, 8, 0x90, 1];

/// DW_CFA_def_cfa_offset.
pub(crate) fn cfa_offset(bytes: u8) -> Vec<u8> {
    vec![0x0e, bytes]
}

/// DW_CFA_advance_loc.
pub(crate) fn advance(bytes: u8) -> Vec<u8> {
    vec![0x40 | bytes]
}

/// DW_CFA_offset: `register` at CFA - 8 * `words`.
pub(crate) fn saved(register: u8, words: u8) -> Vec<u8> {
    vec![0x80 | register, words]
}

/// DW_CFA_expression for `register`: breg7 (rsp) + `offset`.
pub(crate) fn at_sp(register: u8, offset: u8) -> Vec<u8> {
    vec![0x10, register, 3, 0x77, 0x80 | (offset & 0x7f), offset >> 7]
}

/// A section under construction.
pub(crate) struct EhFrame {
    arch: Arch,
    pub(crate) bytes: Vec<u8>,
    cie: usize,
}

impl EhFrame {
    /// Starts with a common entry of `instructions`.
    pub(crate) fn new(augmentation: &str, instructions: &[u8]) -> Self {
        Self::on(Arch::X86_64, augmentation, instructions)
    }

    pub(crate) fn on(arch: Arch, augmentation: &str, instructions: &[u8]) -> Self {
        let mut section = Self { arch, bytes: Vec::new(), cie: 0 };
        section.cie(augmentation, instructions);
        section
    }

    fn word(&self, value: u32) -> [u8; 4] {
        if self.arch.is_big_endian() { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn address(&self, value: u64) -> Vec<u8> {
        match self.arch.word_bytes() {
            8 => value.to_le_bytes().to_vec(),
            _ => self.word(value as u32).to_vec(),
        }
    }

    pub(crate) fn cie(&mut self, augmentation: &str, instructions: &[u8]) -> &mut Self {
        self.cie = self.bytes.len();
        let mut body = vec![0, 0, 0, 0, 1];
        body.extend(augmentation.as_bytes());
        // Code alignment 1, data alignment of minus one word, return address column, augmentation: absolute addresses.
        let (bytes, column) = (self.arch.word_bytes(), self.arch.return_address());
        body.extend([0, 1, 0x80 - bytes, column, 1, if bytes == 8 { 0x04 } else { 0x03 }]);
        body.extend(instructions);
        self.entry(body)
    }

    pub(crate) fn fde(&mut self, start: u64, length: u64, instructions: &[Vec<u8>]) -> &mut Self {
        let mut body = self.word((self.bytes.len() + 4 - self.cie) as u32).to_vec();
        body.extend(self.address(start));
        body.extend(self.address(length));
        body.push(0);
        body.extend(instructions.concat());
        self.entry(body)
    }

    pub(crate) fn terminator(&mut self) -> &mut Self {
        self.bytes.extend([0; 4]);
        self
    }

    fn entry(&mut self, mut body: Vec<u8>) -> &mut Self {
        body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
        self.bytes.extend(self.word(body.len() as u32));
        self.bytes.extend(body);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn compile(&self) -> Compiled {
        self.compile_with(&[])
    }

    pub(crate) fn compile_with(&self, code: &[(u64, &[u8])]) -> Compiled {
        let id = debug_id();
        compile::compile(&Input { arch: self.arch, eh_frame: Some((0x9000, &self.bytes)), code, ..empty_input(&id) })
            .expect("a table")
    }
}

pub(crate) fn debug_id() -> DebugId {
    DebugId::from_build_id(&[1, 2, 3]).expect("three bytes")
}

pub(crate) fn empty_input(debug_id: &DebugId) -> Input<'_> {
    Input {
        text: const { &[TEXT] },
        source_sha256: [9; 32],
        producer: "symseal test",
        ..Input::of(Arch::X86_64, debug_id)
    }
}

/// Words of memory by address.
#[derive(Default, Clone)]
pub(crate) struct Words(pub(crate) HashMap<u64, u64>);

impl Words {
    pub(crate) fn with(mut self, words: &[(u64, u64)]) -> Self {
        self.0.extend(words.iter().copied());
        self
    }
}

impl Memory for Words {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.0.get(&address.0).copied()
    }
}

/// The address of `svma` in the process.
pub(crate) fn at(svma: u64) -> u64 {
    BIAS + svma
}

/// A process with one module.
pub(crate) struct Process<'t> {
    pub(crate) modules: Modules<'t>,
    bias: u64,
}

impl<'t> Process<'t> {
    pub(crate) fn new(table: &'t [u8]) -> Self {
        Self::with_code(table, None)
    }

    pub(crate) fn with_code(table: &'t [u8], code: Option<(u64, &'t [u8])>) -> Self {
        let table = Table::open(table).expect("our own table");
        table.verify().expect("our own table");
        let arch = table.arch();
        // An address of a 32-bit processor has no room for the usual one.
        let bias = if arch.word_bytes() == 8 { BIAS } else { BIAS_32 };
        let module = Module {
            start: Avma(bias),
            end: Avma(bias + TEXT.end),
            bias,
            image_base: Svma(0),
            table: Some(table),
            code: code.map(|(start, bytes)| CodeBytes { start: Avma(bias + start), bytes }),
        };
        Self { modules: Modules::new(arch, vec![module]), bias }
    }

    pub(crate) fn walk(&self, registers: &Registers, memory: &impl Memory) -> (Vec<Frame>, Walk) {
        let mut frames = vec![Frame::EMPTY; 64];
        let walk = unwind(&self.modules, registers, memory, &mut Cache::new(), &mut frames);
        frames.truncate(walk.frames);
        // A cache must never change an answer.
        for capacity in [0, 1, 7, 509] {
            let mut again = vec![Frame::EMPTY; 64];
            let mut cache = Cache::with_capacity(capacity);
            for _ in 0..2 {
                assert_eq!(unwind(&self.modules, registers, memory, &mut cache, &mut again), walk);
                assert_eq!(again.get(..walk.frames), Some(frames.as_slice()));
            }
        }
        (frames, walk)
    }

    /// The program counters of a walk, as stated addresses, and why it stopped.
    pub(crate) fn pcs(&self, registers: &Registers, memory: &impl Memory) -> (Vec<u64>, symseal_module::StopReason) {
        let (frames, walk) = self.walk(registers, memory);
        (frames.iter().map(|frame| frame.pc.0.wrapping_sub(self.bias)).collect(), walk.stop)
    }
}
