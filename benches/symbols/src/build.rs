//! One build in a process of its own: time, and memory at its highest.

use crate::cold::{SYMCACHE, SYMX};
use crate::{peers, subject};
use anyhow::{Context, Result, bail};
use std::num::NonZeroUsize;
use std::time::Instant;
use symseal_symx::Form;

/// What asks for a build.
pub const COMMAND: &str = "--build";

pub fn run(arguments: &[String]) -> Result<()> {
    let (kind, threads, named) = match arguments {
        [_, kind, flag, threads, named] if flag == "--threads" => (kind, threads.parse()?, named),
        [_, kind, named] => (kind, NonZeroUsize::MIN, named),
        _ => bail!("expected symx or symcache, --threads N or nothing, and one subject"),
    };
    let subjects = subject::parse(std::slice::from_ref(named))?;
    let subject = subjects.first().context("a subject")?;
    let file = subject.debug_bytes().len() as u64;
    let before = peak_bytes()?;
    let start = Instant::now();
    let built = match kind.as_str() {
        SYMX => peers::build_symx(subject, threads, Form::default())?,
        SYMCACHE => peers::build_symcache(subject)?,
        other => bail!("{other} builds no table"),
    };
    let wall = start.elapsed();
    println!(
        "{}: {kind} on {threads} threads: {} ms of CPU time (reading {}, writing {}), {} ms of time (the file's digest included), {} bytes of table from a \
         file of {file}, which takes {} kB in memory; {} kB at the highest",
        subject.name,
        (built.times.read + built.times.write) / 1_000_000,
        built.times.read / 1_000_000,
        built.times.write / 1_000_000,
        wall.as_millis(),
        built.bytes.len(),
        before / 1024,
        peak_bytes()? / 1024,
    );
    Ok(())
}

/// The most memory that this process ever had, in bytes. (proc(5), `VmHWM`)
fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
