//! A stopped program, whoever runs it.

use std::io::Error;

/// Why a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// One instruction was run.
    Step,
    /// A signal is about to be delivered, by its number in the protocol of whoever runs the program.
    Signal(u8),
    Exited(u8),
}

pub(crate) trait Stopped {
    /// The registers one after the other, in the order of GDB's packet.
    fn registers(&mut self) -> Result<Vec<u8>, Error>;

    /// The memory from `address` on, as much of `length` bytes as there is.
    fn read(&mut self, address: u64, length: usize) -> Result<Vec<u8>, Error>;

    /// Runs one instruction, delivering `signal` first if there is one.
    fn step(&mut self, signal: Option<u8>) -> Result<Stop, Error>;

    /// Runs up to one of `addresses`.
    fn run_to(&mut self, addresses: &[u64]) -> Result<Stop, Error>;

    /// Where the kernel's own code for processes lies, and the file that it is; `None` where the program has none.
    fn vdso(&mut self) -> Option<(u64, Vec<u8>)> {
        None
    }
}
