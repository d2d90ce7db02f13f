//! Unwinding side by side with framehop: the same snapshots of stacks, the same sections of the same modules, one run.
//!
//! `cargo run --release -p bench-unwind [-- --deep] [--only=ENGINE] [FILE...]` in `benches/`; for each FILE the size of its table and the time
//! that making it takes. Times are of a whole call, from a snapshot to the list of
//! frames. framehop gives addresses; symseal gives addresses, CFA, frame pointer, method and module.

#[path = "../../../unwind/tests/elf/mod.rs"]
mod elf;
mod first;
mod libunwind;
mod workload;

use std::collections::BTreeSet;
use std::time::Instant;

use elf::Binary;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};
use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, Cache, Frame, Module, Modules, StackBytes, Table, Walk, unwind};
use workload::Snapshot;

const _: () = assert!(Cache::DEFAULT_CAPACITY == 8192, "a row is named after it");

/// Distinct stacks, and how often all of them are walked.
const STACKS: u64 = 150;
const ROUNDS: usize = 200;
const MOST_FRAMES: usize = 256;

/// A mapped module with what either unwinder takes of it.
struct Loaded {
    name: String,
    start: u64,
    end: u64,
    bias: u64,
    image_base: Svma,
    binary: Binary,
    table: Vec<u8>,
}

fn loaded() -> Vec<Loaded> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
    let mut modules: Vec<Loaded> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some((start, end)) = fields.next().and_then(|range| range.split_once('-')) else { continue };
        let (start, end) = (hex(start), hex(end));
        let Some(name) = fields.nth(4) else { continue };
        if let Some(known) = modules.iter_mut().find(|module| module.name == name) {
            known.end = end;
            continue;
        }
        let Some(binary) = Binary::read(name).filter(|binary| binary.bytes.starts_with(b"\x7fELF")) else { continue };
        let image_base = binary.parts().image_base;
        let table = binary.compile().bytes;
        let bias = start.wrapping_sub(image_base.0);
        modules.push(Loaded { name: name.to_owned(), start, end, bias, image_base, binary, table });
    }
    modules
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("an address")
}

fn stack_end() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
    let here = &raw const maps as u64;
    let ends = maps.lines().filter_map(|line| line.split_ascii_whitespace().next()?.split_once('-'));
    ends.map(|(start, end)| (hex(start), hex(end)))
        .find(|(start, end)| (*start..*end).contains(&here))
        .expect("a stack")
        .1
}

fn framehop_modules(modules: &[Loaded]) -> UnwinderX86_64<Vec<u8>> {
    let mut unwinder = UnwinderX86_64::new();
    for module in modules {
        let parts = module.binary.parts();
        let range = |section: elf::Section<'_>| section.map(|(start, bytes)| start..start + bytes.len() as u64);
        let bytes = |section: elf::Section<'_>| section.map(|(_, bytes)| bytes.to_vec());
        let text = parts.text.iter().max_by_key(|range| range.end - range.start).cloned();
        let info = ExplicitModuleSectionInfo {
            base_svma: module.image_base.0,
            text_svma: text,
            text: None,
            eh_frame_svma: range(parts.eh_frame),
            eh_frame: bytes(parts.eh_frame),
            eh_frame_hdr_svma: range(parts.eh_frame_hdr),
            eh_frame_hdr: bytes(parts.eh_frame_hdr),
            ..Default::default()
        };
        let name = module.name.clone();
        unwinder.add_module(framehop::Module::new(name, module.start..module.end, module.start, info));
    }
    unwinder
}

fn framehop_walk(
    unwinder: &UnwinderX86_64<Vec<u8>>,
    snapshot: &Snapshot,
    cache: &mut CacheX86_64,
    out: &mut [u64; MOST_FRAMES],
) -> usize {
    let registers = &snapshot.registers;
    let mut registers_now = UnwindRegsX86_64::new(registers.pc, registers.sp, registers.fp);
    let (start, stack) = (snapshot.start.0, snapshot.stack.as_slice());
    let mut read = |address: u64| {
        let offset = usize::try_from(address.wrapping_sub(start)).map_err(|_| ())?;
        let word = stack.get(offset..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
        Ok(u64::from_le_bytes(*word))
    };
    let mut address = FrameAddress::InstructionPointer(registers.pc);
    let mut frames = 0;
    while let Some(slot) = out.get_mut(frames) {
        *slot = address.address();
        frames += 1;
        match unwinder.unwind_frame(address, &mut registers_now, cache, &mut read) {
            Ok(Some(caller)) => match FrameAddress::from_return_address(caller) {
                Some(caller) => address = caller,
                None => break,
            },
            Ok(None) | Err(_) => break,
        }
    }
    frames
}

fn symseal_walk(modules: &Modules<'_>, snapshot: &Snapshot, cache: &mut Cache, out: &mut [Frame; MOST_FRAMES]) -> Walk {
    let stack = StackBytes { start: snapshot.start, bytes: &snapshot.stack };
    unwind(modules, &snapshot.registers, &stack, cache, out)
}

/// Nanoseconds and frames of each call.
type Samples = Vec<(u64, usize)>;

struct Row {
    name: &'static str,
    per_frame: f64,
}

fn report(name: &'static str, samples: &Samples, note: &str) -> Row {
    let mut per_frame: Vec<f64> = samples.iter().map(|(ns, frames)| *ns as f64 / *frames as f64).collect();
    per_frame.sort_by(f64::total_cmp);
    let mut whole: Vec<u64> = samples.iter().map(|(ns, _)| *ns).collect();
    whole.sort_unstable();
    let part = |share: f64| whole[((whole.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let median = per_frame[per_frame.len() / 2];
    let under = whole.iter().filter(|ns| **ns < 5000).count() as f64 / whole.len() as f64;
    println!("| {name} | {median:.1} | {:.2} | {:.2} | {under:.3} | {note} |", part(0.5), part(0.95));
    Row { name, per_frame: median }
}

/// Walks all stacks in a new order each round.
fn shared(snapshots: &[Snapshot], mut walk: impl FnMut(&Snapshot) -> usize) -> Samples {
    let mut samples = Vec::with_capacity(snapshots.len() * ROUNDS);
    let mut order: Vec<usize> = (0..snapshots.len()).collect();
    let mut random = 99u64;
    for round in 0..ROUNDS + 2 {
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        for at in &order {
            // The first rounds warm the caches.
            if round < 2 {
                walk(&snapshots[*at]);
                continue;
            }
            let began = Instant::now();
            let frames = counted(|| walk(&snapshots[*at]));
            let ns = began.elapsed().as_nanos() as u64;
            samples.push((ns, frames));
        }
    }
    samples
}

/// What `--toggle-collect` of callgrind names.
#[inline(never)]
fn counted(work: impl FnOnce() -> usize) -> usize {
    std::hint::black_box(work())
}

/// The shared row of one engine alone, for a tool that counts instructions: how many frames are to share them.
fn only(engine: &str, snapshots: &[Snapshot], theirs: &UnwinderX86_64<Vec<u8>>, modules: &Modules<'_>) {
    let mut addresses = [0; MOST_FRAMES];
    let mut frames = [Frame::EMPTY; MOST_FRAMES];
    let samples = match engine {
        "framehop" => {
            let mut cache = CacheX86_64::new();
            shared(snapshots, |snapshot| framehop_walk(theirs, snapshot, &mut cache, &mut addresses))
        }
        "symseal" => {
            let mut cache = Cache::new();
            shared(snapshots, |snapshot| symseal_walk(modules, snapshot, &mut cache, &mut frames).frames)
        }
        other => panic!("--only={other}: expected framehop or symseal"),
    };
    println!("{engine}, shared cache: {} frames", samples.iter().map(|(_, frames)| frames).sum::<usize>());
}

/// Walks each stack many times in a row: after the first time every look-up is a hit.
fn repeated(snapshots: &[Snapshot], mut walk: impl FnMut(&Snapshot) -> usize) -> Samples {
    let mut samples = Vec::new();
    for snapshot in snapshots {
        for turn in 0..ROUNDS {
            let began = Instant::now();
            let frames = walk(snapshot);
            let ns = began.elapsed().as_nanos() as u64;
            if turn >= 3 {
                samples.push((ns, frames));
            }
        }
    }
    samples
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn main() {
    let (options, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let deep = options.iter().any(|option| option == "--deep");
    let end = stack_end();
    let (least, more) = if deep { (24, 61) } else { (12, 42) };
    let peer = libunwind::Backtrace::open();
    let snapshots: Vec<Snapshot> = (0..STACKS)
        .map(|seed| workload::descend(seed * 77 + 1, least + (seed * 31 % more) as u32, end, peer))
        .collect();
    let loaded = loaded();
    let theirs = framehop_modules(&loaded);
    let modules = Modules::new(
        Arch::X86_64,
        loaded
            .iter()
            .map(|module| Module {
                start: Avma(module.start),
                end: Avma(module.end),
                bias: module.bias,
                image_base: module.image_base,
                table: Some(Table::open(&module.table).expect("our own table")),
                code: None,
            })
            .collect(),
    );

    if let Some(engine) = options.iter().find_map(|option| option.strip_prefix("--only=")) {
        return only(engine, &snapshots, &theirs, &modules);
    }
    let mut addresses = [0; MOST_FRAMES];
    let mut frames = [Frame::EMPTY; MOST_FRAMES];
    let (mut total, mut least, mut most, mut differing, mut incomplete) = (0, usize::MAX, 0, 0, 0);
    let mut distinct = BTreeSet::new();
    for snapshot in &snapshots {
        let count = framehop_walk(&theirs, snapshot, &mut CacheX86_64::new(), &mut addresses);
        let walk = symseal_walk(&modules, snapshot, &mut Cache::with_capacity(0), &mut frames);
        let same = walk.frames == count
            && frames.iter().zip(&addresses).take(count).all(|(frame, address)| frame.pc.0 == *address);
        differing += usize::from(!same);
        incomplete += usize::from(!walk.is_complete());
        total += walk.frames;
        (least, most) = (least.min(walk.frames), most.max(walk.frames));
        distinct.extend(frames.iter().take(walk.frames).map(|frame| frame.pc.0));
    }
    println!("load average before: {}", load_average());
    println!(
        "{STACKS} stacks of {least} to {most} frames, {:.1} on average; {} distinct addresses in {} modules",
        total as f64 / STACKS as f64,
        distinct.len(),
        loaded.len(),
    );
    println!("stacks on which the two differ: {differing}; that symseal did not follow to the end: {incomplete}\n");
    println!("| engine | ns/frame (median) | p50 µs | p95 µs | calls < 5 µs | |");
    println!("| --- | --- | --- | --- | --- | --- |");

    let share =
        |(hits, misses): (u64, u64)| format!("{:.1} % hits", 100.0 * hits as f64 / (hits + misses).max(1) as f64);
    let mut cache = CacheX86_64::new();
    let samples = shared(&snapshots, |snapshot| framehop_walk(&theirs, snapshot, &mut cache, &mut addresses));
    let stats = cache.stats();
    let their_shared = report("framehop, shared cache", &samples, &share((stats.hits(), stats.misses())));
    let mut cache = Cache::new();
    let samples = shared(&snapshots, |snapshot| symseal_walk(&modules, snapshot, &mut cache, &mut frames).frames);
    let our_shared = report("symseal, shared cache of 8192", &samples, &share(cache.statistics()));
    let mut cache = Cache::with_capacity(2048);
    let samples = shared(&snapshots, |snapshot| symseal_walk(&modules, snapshot, &mut cache, &mut frames).frames);
    report("symseal, shared cache of 2048", &samples, &share(cache.statistics()));
    let mut cache = Cache::with_capacity(509);
    let samples = shared(&snapshots, |snapshot| symseal_walk(&modules, snapshot, &mut cache, &mut frames).frames);
    report("symseal, shared cache of 509", &samples, &share(cache.statistics()));
    let mut cache = Cache::with_capacity(0);
    let samples = shared(&snapshots, |snapshot| symseal_walk(&modules, snapshot, &mut cache, &mut frames).frames);
    let our_uncached = report("symseal, no cache", &samples, "");
    let mut cache = CacheX86_64::new();
    let samples = repeated(&snapshots, |snapshot| framehop_walk(&theirs, snapshot, &mut cache, &mut addresses));
    let stats = cache.stats();
    let their_hits = report("framehop, one stack repeated", &samples, &share((stats.hits(), stats.misses())));
    let mut cache = Cache::new();
    let samples = repeated(&snapshots, |snapshot| symseal_walk(&modules, snapshot, &mut cache, &mut frames).frames);
    let our_hits = report("symseal, one stack repeated", &samples, &share(cache.statistics()));
    let samples =
        shared(&snapshots, |snapshot| framehop_walk(&theirs, snapshot, &mut CacheX86_64::new(), &mut addresses));
    let their_cold = report("framehop, new cache each time", &samples, "");

    let samples: Samples = snapshots.iter().flat_map(|snapshot| snapshot.in_process.iter().copied()).collect();
    let in_process = (!samples.is_empty())
        .then(|| report("libunwind, its own stack repeated", &samples, "in the process, addresses alone"));

    println!();
    let mut pairs = vec![(&our_shared, &their_shared), (&our_hits, &their_hits), (&our_uncached, &their_cold)];
    match &in_process {
        Some(row) => pairs.push((&our_hits, row)),
        None => println!("SKIP libunwind: this machine has no libunwind.so.8 (Debian: libunwind8)"),
    }
    for (ours, peer) in pairs {
        println!("{} / {}: {:.2}", ours.name, peer.name, ours.per_frame / peer.per_frame);
    }
    println!("load average after: {}", load_average());

    let names = || loaded.iter().map(|module| module.name.clone()).chain(files.iter().cloned());
    sizes(names().filter_map(Binary::read));
    first::report(names().filter_map(Binary::read));
    println!("load average at the end: {}", load_average());
}

/// Bytes of tables beside those of the sections that they replace, and how long the compiler takes.
fn sizes(binaries: impl Iterator<Item = Binary>) {
    println!("\n| file | .eh_frame + header | rows | rules | unsupported | table | ratio | compile ms |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for binary in binaries {
        let parts = binary.parts();
        let length = |section: elf::Section<'_>| section.map_or(0, |(_, bytes)| bytes.len());
        let sections = length(parts.eh_frame) + length(parts.eh_frame_hdr);
        let began = Instant::now();
        let compiled = binary.compile();
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        let report = &compiled.report;
        println!(
            "| {} | {sections} | {} | {} | {} | {} | {:.3} | {ms:.1} |",
            binary.path.file_name().unwrap_or_default().display(),
            report.rows,
            report.rules,
            report.unsupported_count,
            compiled.bytes.len(),
            compiled.bytes.len() as f64 / sections as f64,
        );
    }
}
