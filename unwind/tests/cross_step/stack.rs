//! The memory of the stopped program as the unwinder gets it.

use std::cell::RefCell;
use std::collections::HashMap;

use symseal_module::Avma;
use symseal_unwind::{Arch, Memory};

use crate::stopped::Stopped;

/// How far above a stack pointer its stack may reach.
const STACK_SPAN: u64 = 1 << 20;
/// Memory is read in pieces of this size.
const PIECE: u64 = 1024;

/// The memory of the stopped program, from the stack pointers on, as a snapshot has it.
pub(crate) struct Stack<'e> {
    emulated: RefCell<&'e mut dyn Stopped>,
    starts: Vec<u64>,
    is_everything: bool,
    pieces: RefCell<HashMap<u64, Vec<u8>>>,
}

impl<'e> Stack<'e> {
    /// The unwinder may read from each of `starts` on.
    pub(crate) fn new(emulated: &'e mut dyn Stopped, starts: Vec<u64>) -> Self {
        Self { emulated: RefCell::new(emulated), starts, is_everything: false, pieces: RefCell::default() }
    }

    /// All of the program's memory, as a debugger has it.
    pub(crate) fn everything(emulated: &'e mut dyn Stopped) -> Self {
        Self { is_everything: true, ..Self::new(emulated, Vec::new()) }
    }

    fn byte(&self, address: u64) -> Option<u8> {
        let piece = address / PIECE * PIECE;
        let mut pieces = self.pieces.borrow_mut();
        let bytes = pieces.entry(piece).or_insert_with(|| {
            self.emulated.borrow_mut().read(piece, PIECE as usize).expect("an answer of the emulator")
        });
        bytes.get((address - piece) as usize).copied()
    }

    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (at, byte) in (0..).zip(&mut bytes) {
            *byte = self.byte(address.checked_add(at)?)?;
        }
        Some(bytes)
    }

    fn is_captured(&self, address: u64) -> bool {
        self.is_everything || self.starts.iter().any(|start| (*start..start + STACK_SPAN).contains(&address))
    }

    /// A word of the program, wherever it is.
    pub(crate) fn word(&self, arch: Arch, address: u64) -> u64 {
        match (arch.word_bytes(), arch.is_big_endian()) {
            (8, _) => self.bytes(address).map_or(0, u64::from_le_bytes),
            (_, true) => self.bytes(address).map_or(0, |bytes| u32::from_be_bytes(bytes).into()),
            (_, false) => self.bytes(address).map_or(0, |bytes| u32::from_le_bytes(bytes).into()),
        }
    }

    /// Four bytes of code, as their processor reads them.
    pub(crate) fn instruction(&self, arch: Arch, pc: u64) -> u32 {
        let bytes = self.bytes(pc).unwrap_or_default();
        if arch.is_big_endian() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

impl Memory for Stack<'_> {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.is_captured(address.0).then(|| self.bytes(address.0).map(u64::from_le_bytes)).flatten()
    }

    fn read_u32(&self, address: Avma) -> Option<u32> {
        self.is_captured(address.0).then(|| self.bytes(address.0).map(u32::from_le_bytes)).flatten()
    }
}
