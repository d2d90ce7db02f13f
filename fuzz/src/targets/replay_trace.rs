//! Traces as a whole: whatever one holds (modules, registers, stacks, the image of a vDSO), it is unwound and named
//! without a panic, and a second time with the same answer.

use symseal_replay::{BundleTables, coverage, resolve_trace};
use symseal_resolver::{Options, Resolver};
use symseal_trace::{Event, Trace};

pub(super) fn run(data: &[u8]) {
    // Line by line: the digest in `trace.end` would refuse every mutation.
    let mut trace = Trace::default();
    for line in data.split(|byte| *byte == b'\n') {
        match Event::parse(line) {
            Ok(Event::Begin(begin)) => trace.begin = begin,
            Ok(Event::Module(module)) => trace.modules.push(module),
            Ok(Event::Code(code)) => trace.code.push(code),
            Ok(Event::Jit(function)) => trace.jit.push(function),
            Ok(Event::Sample(sample)) => trace.samples.push(sample),
            _ => {}
        }
    }
    let resolver = Resolver::new(Options { demangle: true, ..Options::default() });
    let tables = || BundleTables::for_trace([], &trace).with_code(&trace, &resolver);
    let resolve = || resolve_trace(&trace, &resolver, &tables());
    let (event, threads) = resolve();
    assert_eq!(resolve(), (event, threads.clone()));
    let counted = coverage(&threads, &resolver);
    assert!(counted.all.named <= counted.all.frames);
}
