//! What the emulator writes: the stack before every instruction.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::image::Image;

pub(crate) const STACK_TOP: u64 = 0x7fff_0000_0000;
pub(crate) const STACK_BYTES: usize = 0x40_0000;
/// More instructions than a program of the tests runs.
const LIMIT: usize = 400_000;

/// A frame above another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Above {
    pub(crate) pc: u64,
    /// The CFA of the frame below.
    pub(crate) cfa: u64,
    pub(crate) fp: u64,
    pub(crate) exact: bool,
}

/// One instruction that is about to run.
pub(crate) struct Instant<'t> {
    pub(crate) pc: u64,
    pub(crate) general: Vec<u64>,
    /// The registers at the call that led to the running function.
    pub(crate) at_call: Vec<u64>,
    /// The whole stack.
    pub(crate) stack: &'t [u8],
    /// Innermost first. The last has no address: it tells the CFA of the outermost frame.
    pub(crate) above: Vec<Above>,
}

/// A Python that has the emulator's module.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", "import unicorn"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Runs the image; none without an emulator.
pub(crate) fn record(image: &Image<'_>, directory: &Path) -> Option<PathBuf> {
    let python = python()?;
    let mut plan = format!("arch {}\nentry {:x}\nlimit {LIMIT:x}\n", image.arch, image.entry);
    let fault = image.exports.iter().find(|(name, _)| name == "on_fault").map_or(0, |(_, address)| *address);
    plan += &format!("fault {fault:x}\n");
    for (at, ((address, size), (_, bytes))) in image.ranges.iter().zip(&image.loaded).enumerate() {
        let path = directory.join(format!("part{at}"));
        std::fs::write(&path, bytes).expect("a part");
        plan += &format!("part {address:x} {size:x} {}\n", path.display());
    }
    let (plan_path, trace) = (directory.join("plan"), directory.join("trace"));
    std::fs::write(&plan_path, plan).expect("a plan");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image_step/emulate.py");
    let output = Command::new(python).arg(script).arg(&plan_path).arg(&trace).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(trace)
}

/// Calls `visit` for each instruction of a trace.
pub(crate) fn replay(trace: &Path, registers: usize, mut visit: impl FnMut(&Instant<'_>)) {
    let bytes = std::fs::read(trace).expect("a trace");
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut stack = vec![0; STACK_BYTES];
    let bottom = STACK_TOP - STACK_BYTES as u64;
    while let Some(writes) = words.next() {
        let mut next = || words.next().expect("a whole record");
        let frames = next();
        let pc = next();
        let general = (0..registers).map(|_| next()).collect();
        let at_call = (0..registers).map(|_| next()).collect();
        for _ in 0..writes {
            let (address, size, value) = (next(), next(), next());
            // Other writes go to the program's data.
            let Some(at) = address.checked_sub(bottom).filter(|_| address < STACK_TOP) else { continue };
            for (byte, to) in
                value.to_le_bytes().into_iter().take(size as usize).zip(stack.iter_mut().skip(at as usize))
            {
                *to = byte;
            }
        }
        let above = (0..frames).map(|_| Above { pc: next(), cfa: next(), fp: next(), exact: next() != 0 }).collect();
        visit(&Instant { pc, general, at_call, stack: &stack, above });
    }
}
