//! A program under qemu-user, which runs one instruction at a time: as much of the GDB remote protocol as that takes. (GDB manual,
//! appendix E)

use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stopped::{Stop, Stopped};

/// How long the emulator may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of memory in one packet, which QEMU bounds at 4 KiB in hexadecimal.
const MOST_BYTES: usize = 1024;

/// A stopped program. Killed when dropped.
pub(crate) struct Emulated {
    child: Child,
    stream: UnixStream,
    received: Vec<u8>,
    owes_acknowledgement: bool,
}

impl Emulated {
    /// Starts `program`, stopped at its first instruction; `directory` gets the socket. `None` if there is no such emulator.
    pub(crate) fn start(emulator: &str, options: &[&str], program: &Path, directory: &Path) -> Result<Self, Error> {
        let socket = directory.join(format!("{emulator}.socket"));
        let _ = std::fs::remove_file(&socket);
        let child = Command::new(emulator)
            .arg("-g")
            .arg(&socket)
            .args(options)
            .arg(program)
            .env_clear()
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Self::connect(child, &socket)
    }

    /// Connects to an emulator that was just started, and stands still or runs.
    pub(crate) fn connect(mut child: Child, socket: &Path) -> Result<Self, Error> {
        let began = Instant::now();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > PATIENCE || child.try_wait()?.is_some() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(error);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut emulated = Self { child, stream, received: Vec::new(), owes_acknowledgement: false };
        emulated.request("qSupported:multiprocess-")?;
        Ok(emulated)
    }

    fn request(&mut self, packet: &str) -> Result<String, Error> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        let acknowledged = if std::mem::take(&mut self.owes_acknowledgement) { "+" } else { "" };
        self.stream.write_all(format!("{acknowledged}${packet}#{sum:02x}").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, Error> {
        loop {
            let start = self.received.iter().position(|byte| *byte == b'$');
            let end = self.received.iter().position(|byte| *byte == b'#');
            if let (Some(start), Some(end)) = (start, end)
                && self.received.len() >= end + 3
            {
                let answer = String::from_utf8_lossy(&self.received[start + 1..end]).into_owned();
                self.received.drain(..end + 3);
                // With the next request: what is written by itself wakes the emulator by itself.
                self.owes_acknowledgement = true;
                return Ok(answer);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::other("the emulator closed its socket")),
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                // The test itself was stopped for a while: a read with an end in time is not begun again by the system.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Leaves out what was not asked for: a machine that ran when somebody connected says that it stopped.
    #[allow(dead_code, reason = "programs stand still from the beginning")]
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut buffer = [0; 4096];
        while self.stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
        self.received.clear();
        self.stream.set_read_timeout(Some(PATIENCE))
    }

    /// Runs up to `address` as often as that takes for `is_there`, given the registers; at most `times`.
    #[allow(dead_code, reason = "programs have no tasks")]
    pub(crate) fn run_until(
        &mut self,
        address: u64,
        times: usize,
        mut is_there: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        self.request(&format!("Z0,{address:x},1"))?;
        let mut found = false;
        for _ in 0..times {
            Self::stop(&self.request("c")?)?;
            found = is_there(&self.registers()?);
            if found {
                break;
            }
        }
        self.request(&format!("z0,{address:x},1"))?;
        Ok(found)
    }

    fn stop(answer: &str) -> Result<Stop, Error> {
        let number = answer.get(1..3).and_then(|number| u8::from_str_radix(number, 16).ok());
        match (answer.bytes().next(), number) {
            (Some(b'T' | b'S'), Some(5)) => Ok(Stop::Step),
            (Some(b'T' | b'S'), Some(signal)) => Ok(Stop::Signal(signal)),
            (Some(b'W'), Some(status)) => Ok(Stop::Exited(status)),
            _ => Err(Error::other(format!("the emulator answered {answer:?}"))),
        }
    }
}

impl Stopped for Emulated {
    fn registers(&mut self) -> Result<Vec<u8>, Error> {
        let answer = self.request("g")?;
        bytes_of(&answer).ok_or_else(|| Error::other(format!("registers: {answer}")))
    }

    fn read(&mut self, address: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let want = (length - bytes.len()).min(MOST_BYTES);
            let answer = self.request(&format!("m{:x},{want:x}", address + bytes.len() as u64))?;
            match bytes_of(&answer) {
                Some(part) if !part.is_empty() => bytes.extend(part),
                _ => break,
            }
        }
        Ok(bytes)
    }

    fn step(&mut self, signal: Option<u8>) -> Result<Stop, Error> {
        let answer = match signal {
            // `vCont` alone, for QEMU forgets the signal of `S`.
            Some(signal) => self.request(&format!("vCont;S{signal:02x}"))?,
            None => self.request("s")?,
        };
        Self::stop(&answer)
    }

    fn run_to(&mut self, addresses: &[u64]) -> Result<Stop, Error> {
        for address in addresses {
            self.request(&format!("Z0,{address:x},4"))?;
        }
        let stop = Self::stop(&self.request("c")?)?;
        // One that is at its end has nobody to take them away.
        for address in addresses.iter().filter(|_| !matches!(stop, Stop::Exited(_))) {
            self.request(&format!("z0,{address:x},4"))?;
        }
        Ok(stop)
    }
}

fn bytes_of(hexadecimal: &str) -> Option<Vec<u8>> {
    if !hexadecimal.len().is_multiple_of(2) || hexadecimal.starts_with('E') {
        return None;
    }
    (0..hexadecimal.len() / 2).map(|at| u8::from_str_radix(hexadecimal.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
