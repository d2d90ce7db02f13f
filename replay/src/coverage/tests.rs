use std::sync::Arc;

use symseal_module::{Proof, Quality, ResolverStep, Svma};
use symseal_resolver::{Answer, ModuleRef, Options, SourceFrame};

use super::*;

/// A frame of `module` whose functions have these lines, the innermost first; without any, it has no name.
fn frame(module: Option<&str>, rva: u64, lines: &[Option<u32>], proof: Proof) -> ResolvedFrame {
    let source = |(at, line): (usize, &Option<u32>)| SourceFrame {
        function: Some(format!("f{at}").into()),
        file: line.map(|_| "a.c".into()),
        line: *line,
        inlined: at + 1 < lines.len(),
        ..SourceFrame::default()
    };
    let frames: Vec<_> = lines.iter().enumerate().map(source).collect();
    let quality = match frames.first() {
        Some(first) if first.line.is_some() => Quality::Full,
        Some(_) => Quality::Function,
        None => Quality::ModuleOffset,
    };
    ResolvedFrame {
        ip: Avma(0x7f00_0000_0000 + rva),
        module: module.map(|path| ModuleRef { path: path.into(), debug_id: None, rva: Rva(rva), svma: Svma(rva) }),
        unwind: UnwindMethod::CfiEhFrame,
        symbol_offset: None,
        answer: Arc::new(Answer {
            resolver: if frames.is_empty() { ResolverStep::ModuleOffset } else { ResolverStep::LocalBundle },
            quality,
            proof,
            approximate: false,
            folded: false,
            aliases: Default::default(),
            reason: frames.is_empty().then_some(MissReason::NotInBundle),
            frames,
            start: None,
            tried: Arc::default(),
            digests: Arc::default(),
        }),
    }
}

fn thread(frames: Vec<ResolvedFrame>, stop: StopReason) -> ResolvedThread {
    ResolvedThread { thread: 1, thread_name: String::new(), sample: 0, frames, places: Vec::new(), stop, awaited: None }
}

/// Frames, named, proved.
fn numbers(count: CoverageCount) -> (u64, u64, u64) {
    (count.frames, count.named, count.proved)
}

fn counted(threads: &[ResolvedThread]) -> Coverage {
    coverage(threads, &Resolver::new(Options::default()))
}

#[test]
fn deep_stacks_weigh_more_by_frames_than_by_stacks() {
    let named = || frame(Some("/a"), 0x10, &[Some(1)], Proof::Sealed);
    let nameless = || frame(Some("/b"), 0x20, &[], Proof::None);
    let deep = thread(vec![named(), named(), named(), named()], StopReason::EndOfStack);
    let flat = thread(vec![nameless()], StopReason::EndOfStack);
    let coverage = counted(&[deep, flat]);
    assert_eq!((coverage.all.pct, coverage.all.proved_pct), (80.0, 80.0));
    assert_eq!(coverage.by_stack, StackCoverage { stacks: 2, named: 1, proved: 1, pct: 50.0, proved_pct: 50.0 });
    assert_eq!((numbers(coverage.unique), coverage.unique.pct), ((2, 1, 1), 50.0));
}

#[test]
fn an_incomplete_stack_misses_a_frame_of_no_kind() {
    let frames = || vec![frame(Some("/a"), 0x10, &[Some(1)], Proof::DigestKnown)];
    let coverage = counted(&[thread(frames(), StopReason::TruncatedStack)]);
    assert_eq!(numbers(coverage.all), (2, 1, 0));
    assert_eq!(numbers(coverage.with_line), (2, 1, 0));
    assert_eq!((coverage.by_stack.named, coverage.by_stack.pct), (0, 50.0));
    assert_eq!(coverage.by_kind.values().map(|count| count.frames).sum::<u64>(), 1);
    assert_eq!(coverage.incomplete.len(), 1);
}

#[test]
fn every_frame_is_of_one_kind() {
    let mut jit = frame(None, 0x1, &[None], Proof::None);
    Arc::make_mut(&mut jit.answer).resolver = ResolverStep::JitMap;
    let kernel = ResolvedFrame { ip: Avma(0xffff_ffff_8100_0000), ..frame(None, 0x2, &[], Proof::None) };
    let frames = vec![
        frame(Some("/a"), 0x10, &[Some(1)], Proof::None),
        frame(Some("[vdso]"), 0x10, &[None], Proof::None),
        frame(None, 0x3, &[], Proof::None),
        jit,
        kernel,
    ];
    let coverage = counted(&[thread(frames, StopReason::EndOfStack)]);
    let kinds: Vec<_> = coverage.by_kind.iter().map(|(kind, count)| (*kind, numbers(*count))).collect();
    assert_eq!(
        kinds,
        [
            (FrameKind::Other, (1, 1, 0)),
            (FrameKind::Vdso, (1, 1, 0)),
            (FrameKind::Jit, (1, 1, 0)),
            (FrameKind::Kernel, (1, 0, 0)),
            (FrameKind::Unmapped, (1, 0, 0)),
        ]
    );
    assert_eq!((numbers(coverage.all), numbers(coverage.with_line)), ((5, 3, 0), (5, 1, 0)));
}

#[test]
fn an_inlined_call_needs_a_name_and_the_line_of_the_call() {
    // Innermost: two calls inlined, the outer one where the compiler kept no line.
    let inlined = frame(Some("/a"), 0x10, &[Some(1), Some(2), None], Proof::Sealed);
    let mut guessed = frame(Some("/a"), 0x20, &[Some(1), Some(2)], Proof::Sealed);
    guessed.unwind = UnwindMethod::Scan;
    let coverage = counted(&[thread(vec![inlined, guessed], StopReason::EndOfStack)]);
    assert_eq!(numbers(coverage.inlined), (2, 1, 1));
    assert_eq!(numbers(coverage.all), (2, 1, 1), "a guess counts as no name");
}

#[test]
fn an_address_is_named_only_where_it_is_named_every_time() {
    let named = || frame(Some("/a"), 0x10, &[Some(1)], Proof::Sealed);
    let guessed = ResolvedFrame { unwind: UnwindMethod::Scan, ..named() };
    let coverage = counted(&[thread(vec![named(), guessed], StopReason::EndOfStack)]);
    assert_eq!(numbers(coverage.unique), (1, 0, 0));
    // The same address of another module is another one.
    let other = frame(Some("/b"), 0x10, &[Some(1)], Proof::Sealed);
    assert_eq!(numbers(counted(&[thread(vec![named(), other], StopReason::EndOfStack)]).unique), (2, 2, 2));
}
