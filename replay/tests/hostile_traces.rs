//! Traces that nobody captured: random modules, registers and stacks, damaged images. Whatever they hold, every walk ends,
//! nothing panics, and the same input gives the same report.

use std::collections::BTreeMap;

use symseal_module::{Avma, Svma};
use symseal_replay::{BundleTables, replay, resolve_trace, unwind_trace};
use symseal_resolver::{Options, Resolver};
use symseal_trace::{StackSegment, Trace, TraceBegin, TraceModule, TraceSample};

/// Reproducible noise.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// Edges of the address space, small numbers, plausible and arbitrary addresses.
    fn address(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(3).wrapping_sub(1),
            1 => u64::MAX - self.below(32),
            2 => self.below(1 << 20),
            3 => 0x7fff_0000_0000 + self.below(1 << 14) * 8,
            4 => 0x5555_0000_0000 + self.below(1 << 16),
            _ => self.next(),
        }
    }
}

fn trace(seed: u64, image: Option<&[u8]>) -> Trace {
    let mut noise = Noise(seed);
    let mut modules = Vec::new();
    for number in 0..noise.below(6) {
        let start = noise.address();
        modules.push(TraceModule {
            path: format!("/lib/{number}"),
            debug_id: format!("{:04x}", number + 1).parse().ok().filter(|_| number != 2),
            start: Avma(start),
            end: Avma(start.wrapping_add(noise.below(1 << 17))),
            bias: noise.address(),
            image_base: Svma(noise.address()),
            ..TraceModule::default()
        });
    }
    if let Some(image) = image {
        let mut bytes = image.to_vec();
        let id = symseal_resolver::vdso_module(image).ok().map(|module| module.debug_id);
        for _ in 0..noise.below(3) {
            let at = noise.below(bytes.len() as u64) as usize;
            bytes[at] = noise.next() as u8;
        }
        let start = 0x5555_0000_0000;
        modules.push(TraceModule {
            path: "[vdso]".into(),
            debug_id: id,
            start: Avma(start),
            end: Avma(start + bytes.len() as u64),
            bias: start,
            bytes: Some(bytes),
            ..TraceModule::default()
        });
    }
    let samples = (0..1 + noise.below(4)).map(|thread| {
        let mut registers = BTreeMap::new();
        for name in ["rip", "rsp", "rbp", "rbx", "r12"] {
            if noise.below(8) > 0 {
                registers.insert(name.to_string(), Avma(noise.address()));
            }
        }
        let mut stacks = Vec::new();
        for _ in 0..noise.below(3) {
            let start = noise.address();
            let words = noise.below(64);
            let mut bytes: Vec<u8> = (0..words).flat_map(|_| noise.address().to_le_bytes()).collect();
            bytes.truncate(bytes.len().saturating_sub(noise.below(4) as usize));
            let mut segment = StackSegment::new(Avma(start), bytes);
            if noise.below(2) == 0 {
                segment.mapping_start = Avma(noise.address());
                segment.mapping_end = Avma(noise.address());
            }
            stacks.push(segment);
            if noise.below(2) == 0 {
                registers.insert("rsp".to_string(), Avma(start));
            }
        }
        TraceSample { thread: thread as u32, registers, stacks, ..TraceSample::default() }
    });
    let samples = samples.collect();
    let begin = TraceBegin { arch: "x86_64".into(), platform: "linux".into(), ..TraceBegin::default() };
    Trace { begin, modules, samples, ..Trace::default() }
}

fn check(seed: u64, image: Option<&[u8]>) {
    let trace = trace(seed, image);
    let tables = BundleTables::for_trace([], &trace);
    let resolver = Resolver::new(Options::default());
    let stacks = unwind_trace(&trace, &tables);
    assert_eq!(stacks.len(), trace.samples.len());
    assert!(stacks.iter().all(|stack| !stack.frames.is_empty()));
    let (resolved, threads) = resolve_trace(&trace, &resolver, &tables);
    assert!(resolved.frames.iter().enumerate().all(|(at, row)| row.frame_index == at as u64));
    let report = replay(&trace, &resolver, &tables, &[seed]).unwrap();
    for mismatch in &report.mismatches {
        assert_ne!(mismatch.found, "the run did not finish", "seed {seed}");
    }
    assert_eq!(report, replay(&trace, &resolver, &tables, &[seed]).unwrap(), "seed {seed}");
    assert!(report.controls.seed_reuse.noticed == report.controls.seed_reuse.total);
    let coverage = symseal_replay::coverage(&threads, &resolver);
    assert!(coverage.all.pct <= 100.0 && coverage.all.proved == 0);
}

#[test]
fn no_trace_makes_a_walk_or_a_replay_fail() {
    for seed in 0..400 {
        check(seed, None);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn no_image_in_a_trace_makes_a_replay_fail() {
    // This process's own, from its memory.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else { return };
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    use std::os::unix::fs::FileExt;
    let mut image = vec![0; (end - start) as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    for seed in 0..200 {
        check(seed, Some(&image));
    }
}

#[test]
fn a_replay_of_nothing_is_refused() {
    let empty = Trace { begin: TraceBegin { arch: "x86_64".into(), ..TraceBegin::default() }, ..Trace::default() };
    let resolver = Resolver::new(Options::default());
    let run = |trace: &Trace, seeds: &[u64]| {
        replay(trace, &resolver, &BundleTables::default(), seeds).map(|_| ()).unwrap_err().to_string()
    };
    assert!(run(&empty, &[1]).contains("no samples"));
    let mut sample = trace(1, None);
    assert!(run(&sample, &[]).contains("no seeds"));
    assert!(run(&sample, &[1 << 53]).contains("above 2^53 - 1"));
    sample.begin.arch = "riscv64".into();
    assert!(run(&sample, &[1]).contains("riscv64"));
}
