//! A running process, as a profiler asks for its stacks: this one, whose code is large.

use std::hint::black_box;

use anyhow::{Context, Result};
use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use symseal_module::{Avma, UnwindMethod};
use symseal_resolver::live::{LiveAddress, LiveLimits, LiveProcess, LiveSymbolizer};
use symseal_resolver::{Options, Resolver};

use crate::cases::measured;
use crate::report::Measured;

/// Frames of a stack, and stacks: 1,000 addresses.
const FRAMES: usize = 50;
const STACKS: usize = 20;

/// How often each thread names all stacks where threads are compared.
const ROUNDS: usize = 50;

pub fn cases(passes: usize, all: &mut Vec<Measured>) -> Result<()> {
    let addresses = addresses()?;
    let stacks: Vec<Vec<LiveAddress>> = addresses
        .chunks(FRAMES)
        .map(|stack| {
            stack.iter().map(|ip| LiveAddress::return_address(Avma(*ip), UnwindMethod::FramePointer)).collect()
        })
        .collect();
    let resolver = Resolver::new(Options { local_files: true, ..Options::default() });
    let symbolizer = LiveSymbolizer::new(resolver, LiveLimits::default());
    let process = symbolizer.process(std::process::id())?;
    let named = stacks.iter().flat_map(|stack| process.resolve(stack)).filter(|frame| !frame.frames.is_empty()).count();

    let builder = Symbolizer::builder().enable_code_info(true).enable_inlined_fns(true);
    let blazesym = builder.enable_demangling(false).enable_auto_reload(false).build();
    let source = Source::Process(Process::new(Pid::Slf));
    let ask = |stack: &[u64]| blazesym.symbolize(&source, Input::AbsAddr(stack));
    let mut peer_named = 0;
    for stack in addresses.chunks(FRAMES) {
        peer_named += ask(stack)?.iter().filter(|found| matches!(found, Symbolized::Sym(_))).count();
    }

    let case = format!("a live process, {STACKS} stacks of {FRAMES} frames, warm");
    let time = measured(passes, || stacks.iter().for_each(|stack| drop(black_box(process.resolve(stack)))));
    all.push(Measured::new(&case, "symseal", time));
    let time = measured(passes, || stacks.iter().for_each(|stack| drop(black_box(process.try_resolve(stack)))));
    all.push(Measured::new(&format!("{case}, without waiting"), "symseal", time));
    let time = measured(passes, || addresses.chunks(FRAMES).for_each(|stack| drop(black_box(ask(stack)))));
    all.push(Measured::new(&case, "blazesym", time));
    for threads in [1, 2, 4] {
        let time = measured(passes, || many_threads(&process, &stacks, threads));
        let case = format!("a live process, {threads} threads, {ROUNDS} times these stacks each");
        all.push(Measured::new(&case, "symseal", time));
    }
    eprintln!(
        "of {} addresses of this process {named} are named by symseal, {peer_named} by blazesym",
        addresses.len()
    );
    Ok(())
}

fn many_threads(process: &LiveProcess, stacks: &[Vec<LiveAddress>], threads: usize) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    stacks.iter().for_each(|stack| drop(black_box(process.resolve(stack))));
                }
            });
        }
    });
}

/// Addresses all over this program's code.
fn addresses() -> Result<Vec<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let own = std::env::current_exe()?;
    let own = own.to_str().context("the path of this program")?;
    let line = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(own));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-')).context("this program's code")?;
    let (start, end) = (u64::from_str_radix(range.0, 16)?, u64::from_str_radix(range.1, 16)?);
    let count = (FRAMES * STACKS) as u64;
    Ok((0..count).map(|number| start + (end - start) / (count + 1) * (number + 1)).collect())
}
