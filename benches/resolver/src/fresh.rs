//! The first symbol of a fresh process: the bundle is opened, one address named.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_module::{DebugId, Proof, Rva};
use symseal_resolver::{Options, Resolver, StoredBundle};

use crate::scene::Scene;

/// What makes this program the fresh process.
pub const COMMAND: &str = "--fresh-process";

const PROCESSES: usize = 21;

/// The median over fresh processes, in wall time, with the files in the page cache.
pub fn first_symbol(scene: &Scene) -> Result<Duration> {
    let module = &scene.modules[scene.modules.len() / 2];
    // As a bundle that was pulled has it, the list of its modules is there.
    let bundle = Bundle::open(LayoutDir::open(scene.store("trace"))?, None)?;
    let digest = bundle.digest().context("the bundle has no digest")?;
    StoredBundle::open(LayoutDir::open(scene.store("trace"))?, &digest)?;
    let mut times = Vec::new();
    for _ in 0..PROCESSES {
        let output = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .arg(scene.store("trace"))
            .args([digest.to_string(), module.id.to_string(), module.svmas[0].to_string()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let nanoseconds = text.trim().parse();
        let problem = || format!("a fresh process: {text}{}", String::from_utf8_lossy(&output.stderr));
        times.push(Duration::from_nanos(nanoseconds.with_context(problem)?));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

pub fn child(arguments: &[String]) -> Result<()> {
    let [_, store, digest, id, address] = arguments else { bail!("expected STORE BUNDLE ID ADDRESS") };
    let (digest, id, address): (Digest, DebugId, u64) = (digest.parse()?, id.parse()?, address.parse()?);
    let start = Instant::now();
    let bundle = StoredBundle::open(LayoutDir::open(Path::new(store))?, &digest)?;
    let resolver = Resolver::new(Options::default()).with_store(bundle, Proof::DigestKnown);
    let found = resolver.symbolize(&id, Rva(address));
    let time = start.elapsed().as_nanos();
    if found.frames.is_empty() {
        bail!("{id} has no name for {address:#x}");
    }
    println!("{time}");
    Ok(())
}
