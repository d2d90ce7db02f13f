//! The first symbol of a fresh process: open, look up one address, read its frames.

use crate::peers::{Addr2line, Peer, Symcache, Symx};
use crate::subject::DwarfSections;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What makes this program the fresh process.
pub const COMMAND: &str = "--fresh-process";
pub const SYMX: &str = "symx";
pub const SYMCACHE: &str = "symcache";
pub const ADDR2LINE: &str = "addr2line";

/// The median over fresh processes, in nanoseconds of wall time, with the file in the page cache.
pub fn first_symbol(kind: &str, path: &Path, address: u64, processes: usize) -> Result<u64> {
    let program = std::env::current_exe()?;
    let mut times = Vec::new();
    for _ in 0..processes {
        let output = Command::new(&program).arg(COMMAND).arg(kind).arg(path).arg(address.to_string()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let time = text
            .trim()
            .parse()
            .with_context(|| format!("{kind} in a fresh process: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        times.push(time);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Prints the nanoseconds that one symbol took in this process.
pub fn child(arguments: &[String]) -> Result<()> {
    let [_, kind, path, address] = arguments else { bail!("expected KIND PATH ADDRESS") };
    let address = address.parse()?;
    let start = Instant::now();
    let sum = match kind.as_str() {
        SYMX => Symx::open(&crate::map(path.as_ref())?)?.all(&[address]),
        SYMCACHE => Symcache::open(&crate::map(path.as_ref())?)?.all(&[address]),
        ADDR2LINE => {
            let file = crate::map(path.as_ref())?;
            Addr2line::open(&DwarfSections::read(&file)?)?.all(&[address])
        }
        other => bail!("{other} is none of the peers"),
    };
    let time = start.elapsed().as_nanos();
    if sum.hits != 1 {
        bail!("{kind} does not know {address:#x}");
    }
    println!("{time}");
    Ok(())
}
