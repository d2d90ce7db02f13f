//! The peers: each looks up all addresses and reads every frame's function name, file path and line.

mod addr2line;
mod symcache;
mod symx;

pub use self::addr2line::Addr2line;
pub use symcache::{Symcache, SymcachePaths, build_symcache};
pub use symx::{Symx, SymxLines, build_symx};

/// What was read, so that nothing is optimised away and peers can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Addresses with an answer.
    pub hits: u64,
    /// Frames of all answers.
    pub frames: u64,
    /// Lines of all frames, added up.
    pub lines: u64,
    /// Bytes of all names and paths.
    pub text: u64,
}

impl Sum {
    #[inline]
    fn frame(&mut self, function: &str, file: &str, line: u32) {
        self.frames += 1;
        self.lines += u64::from(line);
        self.text += (std::hint::black_box(function).len() + std::hint::black_box(file).len()) as u64;
    }
}

/// One way to answer.
pub trait Peer {
    fn name(&self) -> &'static str;
    /// Looks up stated addresses.
    fn all(&self, addresses: &[u64]) -> Sum;
}

/// A table as built, and what that took.
pub struct Built {
    pub bytes: Vec<u8>,
    pub times: BuildTimes,
}

/// CPU nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct BuildTimes {
    /// Reading the debug information.
    pub read: u64,
    /// Writing the table.
    pub write: u64,
}

impl BuildTimes {
    /// Those of the build that took less time in all.
    pub fn least(self, other: Self) -> Self {
        if other.read + other.write < self.read + self.write { other } else { self }
    }
}
