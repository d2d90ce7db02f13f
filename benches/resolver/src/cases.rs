//! What is measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use symseal_module::Rva;
use symseal_resolver::{DEFAULT_ADDRESS_CACHE, ModuleAddress};

use crate::peers::{Addr2line, Blazesym};
use crate::report::Measured;
use crate::scene::Scene;
use crate::{fresh, live, report};

/// Rounds of the trace that each thread does where threads are compared.
const ROUNDS: usize = 20;

/// Cases that can be run alone.
const CASES: &str = "trace, trace-uncached, trace-blazesym, libc, libc-uncached, libc-blazesym, libc-addr2line or live";

/// The fastest of the passes.
#[inline(never)]
pub fn measured(passes: usize, mut work: impl FnMut()) -> Duration {
    let times = (0..passes).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

pub fn all(scene: &Scene, passes: usize) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    // Memory first, before the peers have theirs.
    let before = report::anonymous_bytes()?;
    let resolver = scene.resolver("trace", DEFAULT_ADDRESS_CACHE)?;
    let opened = report::anonymous_bytes()? - before;
    let cold = measured(1, || drop(black_box(resolver.resolve_all(&scene.map, &scene.frames))));
    let held = report::anonymous_bytes()? - before;
    all.push(Measured::new("trace, cold: tables opened and checked", "symseal", cold));
    let named = resolver.resolve_all(&scene.map, &scene.frames).iter().filter(|frame| !frame.frames.is_empty()).count();
    all.push(Measured::new("trace, warm", "symseal", measured(passes, || one_thread(&resolver, scene))));
    let uncached = scene.resolver("trace", 0)?;
    one_thread(&uncached, scene);
    let time = measured(passes, || one_thread(&uncached, scene));
    all.push(Measured::new("trace, warm, no address cached", "symseal", time));

    let blazesym = Blazesym::new();
    let peer_named = blazesym.trace(scene)?;
    let time = measured(passes, || drop(black_box(blazesym.trace(scene))));
    all.push(Measured::new("trace, warm, no address cached", "blazesym", time));
    let lines = blazesym.lines(&scene.libc)?;
    let module = measured(passes, || drop(black_box(blazesym.module(&scene.libc))));

    let libc = scene.resolver("libc", DEFAULT_ADDRESS_CACHE)?;
    let plain = scene.resolver("libc", 0)?;
    let addresses = libc_addresses(scene);
    for (case, resolver) in
        [("100 addresses of libc, warm", &libc), ("100 addresses of libc, no address cached", &plain)]
    {
        let found = resolver.symbolize_all(&addresses);
        assert!(found.iter().filter(|found| found.frames[0].line.is_some()).count() > 90);
        let time = measured(passes, || drop(black_box(resolver.symbolize_all(&addresses))));
        all.push(Measured::new(case, "symseal", time));
    }
    all.push(Measured::new("100 addresses of libc, no address cached", "blazesym", module));
    let addr2line = Addr2line::open(&scene.libc)?;
    drop(black_box(addr2line.names(&scene.libc.svmas)));
    let time = measured(passes, || drop(black_box(addr2line.names(&scene.libc.svmas))));
    all.push(Measured::new("100 addresses of libc, no address cached", "addr2line", time));

    for threads in [1, 2, 4] {
        let time = measured(3, || many_threads(&resolver, scene, threads));
        all.push(Measured::new(&format!("{threads} threads, {ROUNDS} traces each, warm"), "symseal", time));
    }
    live::cases(passes, &mut all)?;
    all.push(Measured::new("first symbol of a fresh process", "symseal", fresh::first_symbol(scene)?));

    eprintln!(
        "{} frames of {} libraries; {named} named by symseal, {peer_named} by blazesym",
        scene.frames.len(),
        scene.modules.len()
    );
    eprintln!("of {} addresses of libc blazesym has a line for {lines}", scene.libc.svmas.len());
    eprintln!(
        "memory of our own (anonymous): {opened} bytes opened, {held} with all answers cached; tables of {} bytes",
        scene.table_bytes()?
    );
    Ok(all)
}

/// One case alone, for instruction counts.
pub fn one(scene: &Scene, case: &str, passes: usize) -> Result<()> {
    if case == "live" {
        let mut measured = Vec::new();
        live::cases(passes, &mut measured)?;
        report::table(&measured);
        return Ok(());
    }
    let capacity = |is_cached| if is_cached { DEFAULT_ADDRESS_CACHE } else { 0 };
    let time = match case {
        "trace" | "trace-uncached" => {
            let resolver = scene.resolver("trace", capacity(case == "trace"))?;
            one_thread(&resolver, scene);
            measured(passes, || one_thread(&resolver, scene))
        }
        "trace-blazesym" => {
            let blazesym = Blazesym::new();
            blazesym.trace(scene)?;
            measured(passes, || drop(black_box(blazesym.trace(scene))))
        }
        "libc" | "libc-uncached" => {
            let resolver = scene.resolver("libc", capacity(case == "libc"))?;
            let addresses = libc_addresses(scene);
            drop(black_box(resolver.symbolize_all(&addresses)));
            measured(passes, || drop(black_box(resolver.symbolize_all(&addresses))))
        }
        "libc-blazesym" => {
            let blazesym = Blazesym::new();
            blazesym.lines(&scene.libc)?;
            measured(passes, || drop(black_box(blazesym.module(&scene.libc))))
        }
        "libc-addr2line" => {
            let addr2line = Addr2line::open(&scene.libc)?;
            drop(black_box(addr2line.names(&scene.libc.svmas)));
            measured(passes, || drop(black_box(addr2line.names(&scene.libc.svmas))))
        }
        other => bail!("{other}: expected {CASES}"),
    };
    let addresses = if case.starts_with("libc") { scene.libc.svmas.len() } else { scene.frames.len() };
    println!("{case}: {time:?} for {addresses} addresses, {passes} passes");
    Ok(())
}

fn libc_addresses(scene: &Scene) -> Vec<ModuleAddress<'_>> {
    scene.libc.svmas.iter().map(|svma| ModuleAddress { id: &scene.libc.id, name: None, rva: Rva(*svma) }).collect()
}

fn one_thread(resolver: &symseal_resolver::Resolver, scene: &Scene) {
    for frame in &scene.frames {
        drop(black_box(resolver.resolve(&scene.map, frame.ip, frame.exact, frame.unwind)));
    }
}

fn many_threads(resolver: &symseal_resolver::Resolver, scene: &Scene, threads: usize) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..ROUNDS).for_each(|_| one_thread(resolver, scene)));
        }
    });
}
