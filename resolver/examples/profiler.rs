//! Where the threads of a running program wait, as a profiler would show it: it samples, and names what it sampled
//! without ever waiting for a file.
//!
//!     cargo run --release -p symseal-resolver --example profiler -- PID [SECONDS]
//!
//! A thread's instruction pointer is read from `/proc/PID/task/TID/syscall`, which tells it of threads that wait in the
//! kernel, without stopping anybody; threads that run are counted as running. A profiler that samples by perf events or
//! ptrace would hand over its addresses in the same way.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use symseal_module::Avma;
use symseal_process::tasks;
use symseal_resolver::live::{LiveAddress, LiveLimits, LiveProcess, LiveSymbolizer};
use symseal_resolver::{Options, Resolver};

const INTERVAL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().and_then(|pid| pid.parse::<u32>().ok());
    let seconds = arguments.next().map_or(Some(2.0), |seconds| seconds.parse::<f64>().ok());
    let (Some(pid), Some(seconds)) = (pid, seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    else {
        eprintln!("usage: profiler PID [SECONDS]");
        return ExitCode::from(2);
    };
    let resolver = Resolver::new(Options { local_files: true, demangle: true, ..Options::default() });
    let symbolizer = LiveSymbolizer::new(resolver, LiveLimits::default());
    match symbolizer.process(pid) {
        Ok(process) => profile(&process, seconds),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    }
    let statistics = symbolizer.statistics();
    for (name, cache) in
        [("processes", statistics.processes), ("modules", statistics.modules), ("addresses", statistics.addresses)]
    {
        println!(
            "{name}: {} hits, {} misses, {} entries, {} bytes",
            cache.hits, cache.misses, cache.entries, cache.bytes
        );
    }
    ExitCode::SUCCESS
}

fn profile(process: &LiveProcess, seconds: Duration) {
    let (mut waits, mut running) = (BTreeMap::<Avma, u64>::new(), 0u64);
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    while begin.elapsed() < seconds {
        // A process that ends leaves what was sampled so far.
        let Ok(threads) = tasks(process.pid()) else { break };
        let mut sample = Vec::new();
        for thread in threads {
            match waiting_at(process.pid(), thread) {
                Some(ip) => sample.push(ip),
                None => running = running.saturating_add(1),
            }
        }
        for ip in &sample {
            let count = waits.entry(*ip).or_default();
            *count = count.saturating_add(1);
        }
        // Names are asked for while it samples, so that they are there in the end; this never waits.
        let addresses: Vec<LiveAddress> = sample.into_iter().map(LiveAddress::instruction).collect();
        let asked = Instant::now();
        let _known_so_far = process.try_resolve(&addresses);
        longest = longest.max(asked.elapsed());
        std::thread::sleep(INTERVAL);
    }

    let addresses: Vec<LiveAddress> = waits.keys().copied().map(LiveAddress::instruction).collect();
    let mut table: BTreeMap<String, u64> = BTreeMap::new();
    for (frame, count) in process.resolve(&addresses).iter().zip(waits.values()) {
        let shown = frame.stack_frames().into_iter().next();
        let place = shown.as_ref().and_then(|shown| shown.source_location.as_ref());
        let place = place.map(|place| format!(" at {}:{}", place.file, place.line.unwrap_or_default()));
        let name = shown.and_then(|shown| shown.symbol.or(shown.module)).unwrap_or_else(|| frame.ip.to_string());
        let total = table.entry(format!("{name}{}  [{}]", place.unwrap_or_default(), frame.resolver)).or_default();
        *total = total.saturating_add(*count);
    }
    let mut rows: Vec<(String, u64)> = table.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("{:>8}  where", "samples");
    for (name, count) in rows {
        println!("{count:>8}  {name}");
    }
    println!("{running:>8}  (running)");
    println!("longest question for names: {longest:?}");
}

/// Where a thread waits in the kernel for: `nr a0 a1 a2 a3 a4 a5 sp pc`; `None` for one that runs, or has ended.
fn waiting_at(pid: u32, thread: u32) -> Option<Avma> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
    text.split_whitespace().last()?.parse().ok().filter(|_| !text.starts_with("running"))
}
