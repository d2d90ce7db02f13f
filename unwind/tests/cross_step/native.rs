//! A program for IA-32 on a processor and kernel of x86_64, which run it as they are: with a vDSO, which no emulator gives it.

use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::stopped::{Stop, Stopped};
use crate::tracee::{self, Tracee};

pub(crate) struct Native(Tracee);

impl Native {
    /// Starts `program`, stopped at its first instruction.
    pub(crate) fn start(program: &Path) -> Result<Self, Error> {
        Tracee::start(program, "one").map(Self)
    }
}

impl Stopped for Native {
    fn registers(&mut self) -> Result<Vec<u8>, Error> {
        let it = self.0.registers()?;
        let registers = [it.rax, it.rcx, it.rdx, it.rbx, it.rsp, it.rbp, it.rsi, it.rdi, it.rip, it.eflags];
        Ok(registers.into_iter().flat_map(|register| (register as u32).to_le_bytes()).collect())
    }

    fn read(&mut self, address: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; length];
        let read = self.0.read(address, &mut bytes);
        bytes.truncate(read);
        Ok(bytes)
    }

    fn step(&mut self, signal: Option<u8>) -> Result<Stop, Error> {
        Ok(match self.0.step(signal.unwrap_or(0).into())? {
            tracee::Stop::Step => Stop::Step,
            tracee::Stop::Signal(number) => Stop::Signal(number as u8),
            tracee::Stop::Exited(status) => Stop::Exited(status as u8),
        })
    }

    fn run_to(&mut self, _: &[u64]) -> Result<Stop, Error> {
        Err(Error::new(ErrorKind::Unsupported, "no instruction of IA-32 needs it"))
    }

    fn vdso(&mut self) -> Option<(u64, Vec<u8>)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.pid())).ok()?;
        let (start, end) = maps.lines().find(|line| line.ends_with("[vdso]"))?.split_once(' ')?.0.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        Some((start, self.read(start, (end - start) as usize).ok()?))
    }
}
