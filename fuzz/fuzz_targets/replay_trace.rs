//! Traces as a whole: whatever one holds (modules, registers, stacks, the image of a vDSO), it is unwound and named
//! without a panic, and a second time with the same answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_replay::{BundleTables, coverage, resolve_trace};
use symseal_resolver::{Options, Resolver};
use symseal_trace::{Limits, Trace};

fuzz_target!(|data: &[u8]| {
    let limits = Limits { line_bytes: 1 << 20, total_bytes: 4 << 20, unknown_bytes: 1 << 20, ..Limits::default() };
    let Ok(trace) = Trace::read_named(data, "input", limits) else { return };
    let resolver = Resolver::new(Options { demangle: true, ..Options::default() });
    let resolve = || resolve_trace(&trace, &resolver, &BundleTables::for_trace([], &trace));
    let (event, threads) = resolve();
    assert_eq!(resolve(), (event, threads.clone()));
    let counted = coverage(&threads, &resolver);
    assert!(counted.all.named <= counted.all.frames);
});
