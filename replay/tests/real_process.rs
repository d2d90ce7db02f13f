//! A real process: built by a compiler, captured, unwound, named, replayed; gdb has the second opinion.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::stage::{Stage, functions, skip};
use symseal_module::{Proof, Quality, ResolverStep, StopReason, UnwindMethod};
use symseal_replay::{
    BundleEvidence, BundleTables, Class, CoverageCount, Evidence, FrameKind, Gate, GateCode, ReportedChain,
    TraceEvidence, replay, replay_with_goldens, resolve_trace, unwind_trace,
};
use symseal_resolver::{Options, Resolver};
use symseal_trace::Trace;

fn compile(dir: &Path, compiler: &str, source: &str) -> Option<PathBuf> {
    let source = &format!("{}/tests/{source}", env!("CARGO_MANIFEST_DIR"));
    let executable = dir.join("workload");
    let run = Command::new(compiler)
        .args(["-O2", "-g", "-fomit-frame-pointer", "-Wl,--build-id", "-pthread", source, "-o"])
        .arg(&executable)
        .status();
    match run {
        Ok(status) => assert!(status.success(), "{compiler} cannot compile {source}"),
        Err(_) => return None,
    }
    Some(executable)
}

fn stage() -> Option<Stage> {
    stage_of("workload.c")
}

/// The program of a source, running.
fn stage_of(source: &str) -> Option<Stage> {
    stage_called(source, "workload")
}

/// The same, in a file of this name.
fn stage_called(source: &str, name: &str) -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let compiled = compile(dir.path(), "clang", source).or_else(|| compile(dir.path(), "gcc", source));
    if compiled.is_none() {
        skip("clang", "not found, nor gcc");
    }
    let executable = dir.path().join(name);
    std::fs::rename(compiled?, &executable).unwrap();
    Stage::of(dir, executable)
}

#[test]
fn every_stack_is_complete_and_named_with_its_inlined_calls() {
    let Some(stage) = stage() else { return };
    let threads = stage.threads();
    for thread in &threads {
        assert_eq!(thread.stop, StopReason::EndOfStack, "{:?}", functions(thread));
    }
    let holds = |calls: &[&str]| {
        threads.iter().any(|thread| functions(thread).windows(calls.len()).any(|window| window == calls))
    };
    assert!(holds(&["stand", "innermost", "middle", "outer", "recurse", "recurse"]));
    assert!(holds(&["stand", "innermost", "middle", "outer", "main"]));
    assert!(holds(&["stand", "on_signal"]));
    let in_order = |calls: &[&str]| {
        threads.iter().any(|thread| {
            let mut functions = functions(thread).into_iter();
            calls.iter().all(|call| functions.any(|function| function == *call))
        })
    };
    assert!(in_order(&["stand", "compare", "sorting"]), "through libc's qsort");
    assert!(in_order(&["stand", "on_signal", "interrupted", "signalled"]), "off the alternate stack");
    let frames = threads.iter().flat_map(|thread| &thread.frames);
    let signal = frames.clone().filter(|frame| frame.unwind == UnwindMethod::SignalContext).count();
    assert_eq!(signal, 1);
    let mut of_program = frames
        .filter(|frame| {
            frame.module.as_ref().is_some_and(|module| Path::new(&module.path) == stage.executable.as_path())
        })
        .peekable();
    assert!(of_program.peek().is_some());
    for frame in of_program {
        if frame.function().and_then(|function| function.function.as_deref()) == Some("_start") {
            continue; // assembler of the C runtime, without line tables
        }
        assert_eq!((frame.quality, frame.proof), (Quality::Full, Proof::Sealed), "{frame:?}");
        let source = &frame.frames[0];
        assert!(source.file.as_deref().is_some_and(|file| file.ends_with("workload.c")), "{source:?}");
    }
}

#[test]
fn the_lines_of_inlined_calls_belong_to_their_own_frames() {
    let Some(stage) = stage() else { return };
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workload.c")).unwrap();
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).unwrap() as u32 + 1;
    let threads = stage.threads();
    let frame = threads
        .iter()
        .flat_map(|thread| &thread.frames)
        .find(|frame| frame.frames.len() == 3 && frame.frames[2].function.as_deref() == Some("outer"))
        .expect("a frame of outer with two inlined calls");
    let told: Vec<_> = frame.frames.iter().map(|source| (source.function.as_deref().unwrap(), source.line)).collect();
    assert_eq!(
        told,
        [
            ("innermost", Some(line_of("return stand(seed + 1)"))),
            ("middle", Some(line_of("return innermost(seed * 3)"))),
            ("outer", Some(line_of("return middle(local["))),
        ]
    );
    assert_eq!(frame.frames.iter().map(|source| source.inlined).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn coverage_counts_what_is_named_and_proved() {
    let Some(stage) = stage() else { return };
    let coverage = stage.coverage();
    assert!(coverage.release.frames > 20, "{coverage:?}");
    assert!(coverage.release.pct >= 90.0, "{coverage:?}");
    assert_eq!(coverage.release.named, coverage.release.proved);
    assert!(coverage.incomplete.is_empty());
    assert!(coverage.all.frames >= coverage.release.frames);
    let nameless: u64 = coverage.nameless_by_reason.values().sum();
    assert_eq!(nameless as usize, coverage.nameless.len());
    // The kinds are parts of the whole.
    let kinds = |of: fn(&CoverageCount) -> u64| coverage.by_kind.values().map(of).sum::<u64>();
    assert_eq!((kinds(|it| it.frames), kinds(|it| it.named)), (coverage.all.frames, coverage.all.named));
    assert_eq!(coverage.by_kind[&FrameKind::Release].frames, coverage.release.frames);
    assert!(coverage.unique.frames < coverage.all.frames, "threads share their outermost frames: {coverage:?}");
    assert!(coverage.inlined.named > 0 && coverage.inlined.named == coverage.inlined.frames, "{coverage:?}");
    assert_eq!(coverage.by_stack.stacks, coverage.stacks);
    // Without a verified seal nothing is proved.
    let unsealed = Resolver::new(Options::default()).with_bundle(stage.bundle.clone(), Proof::DigestKnown);
    let (_, threads) = resolve_trace(&stage.trace, &unsealed, &stage.tables());
    let unproved = symseal_replay::coverage(&threads, &unsealed);
    assert_eq!((unproved.release.named, unproved.release.proved), (coverage.release.named, 0));
}

#[test]
fn a_replay_gives_the_same_answer_and_notices_what_is_wrong() {
    let Some(stage) = stage() else { return };
    let (resolver, tables) = (stage.resolver(), stage.tables());
    let started = std::time::Instant::now();
    let report = replay(&stage.trace, &resolver, &tables, &[1, 2, 3, 4, 5]).unwrap();
    eprintln!("5 seeds of {} stacks took {:?}", report.manifest.stacks, started.elapsed());
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert_eq!(report.manifest.units, report.manifest.stacks * 5 * Class::ALL.len() as u64);
    assert_eq!(report.classes.iter().map(|class| class.units).sum::<u64>(), report.manifest.units);
    assert!(report.controls_hold(), "{:#?}", report.controls);
    let mutation = report.controls.mutation;
    assert!(mutation.total > 30 && mutation.ratio >= 0.98, "{:#?}", report.controls);
    let text = serde_json::to_string(&report).unwrap();
    let again = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(text, serde_json::to_string(&again).unwrap(), "the same input gives the same bytes");
    assert_eq!(serde_json::from_str::<symseal_replay::ReplayReport>(&text).unwrap(), report);
}

#[test]
fn a_reported_chain_is_what_the_headline_counts() {
    let Some(stage) = stage() else { return };
    let (resolver, tables) = (stage.resolver(), stage.tables());
    let stacks = unwind_trace(&stage.trace, &tables);
    let stack = stacks.iter().max_by_key(|stack| stack.frames.len()).unwrap();
    let mut chain = ReportedChain {
        thread: stack.thread,
        pcs: stack.frames[3..].iter().map(|frame| frame.pc).collect(),
        sps: stack.frames[2..stack.frames.len() - 1].iter().map(|frame| frame.cfa).collect(),
    };
    let run = |chain: &ReportedChain| {
        replay_with_goldens(&stage.trace, &resolver, &tables, &[7], std::slice::from_ref(chain)).unwrap()
    };
    let report = run(&chain);
    assert_eq!((report.golden.self_reported, report.golden.agreeing), (1, 1));
    assert_eq!((report.replay_success_ratio, report.classes[0].units), (1.0, 1));
    let last = chain.pcs.len() - 1;
    chain.pcs.swap(0, last);
    let report = run(&chain);
    assert_eq!((report.replay_success_ratio, report.replay_stability_ratio), (0.0, 1.0));
    assert_eq!(report.golden.disagreeing.len(), 1);
}

#[test]
fn the_gate_names_everything_that_is_missing() {
    let Some(stage) = stage() else { return };
    let mut evidence = Evidence::new(TraceEvidence::of(&stage.trace), stage.coverage());
    let codes = |evidence: &Evidence| -> Vec<GateCode> {
        Gate::default().judge(evidence).reasons.iter().map(|reason| reason.code).collect()
    };
    assert_eq!(codes(&evidence), [GateCode::NoReplay, GateCode::NoSeal]);
    evidence.replay = Some(replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1]).unwrap());
    evidence.seal = Some(symseal_replay::SealEvidence { verdict: "verified".into(), ..Default::default() });
    assert_eq!(codes(&evidence), []);
    evidence.bundle = Some(BundleEvidence::of(&stage.bundle, None));
    evidence.gate = Some(Gate::default().judge(&evidence));
    evidence.timings_ms.insert("replay".into(), 12);
    check_schema(&evidence);
    evidence.coverage.release.pct = 89.9;
    evidence.seal = Some(symseal_replay::SealEvidence { verdict: "refused".into(), ..Default::default() });
    assert_eq!(codes(&evidence), [GateCode::Coverage, GateCode::Seal]);
}

/// Holds a card to the published schema, and what is read back to what was written.
fn check_schema(evidence: &Evidence) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats/schemas/evidence.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let card = serde_json::to_value(evidence).unwrap();
    let errors: Vec<String> =
        schema.iter_errors(&card).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(&serde_json::from_value::<Evidence>(card.clone()).unwrap(), evidence);
    // The schema is no empty promise.
    let mut wrong = card;
    wrong["coverage"]["all"]["pct"] = 101.into();
    assert!(!schema.is_valid(&wrong));
}

/// The functions of each thread as gdb sees them, the innermost first; frames without a name are left out.
fn gdb_backtraces(pid: u32) -> Option<Vec<Vec<String>>> {
    let run = Command::new("gdb")
        .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off"])
        .args(["-ex", "set backtrace past-main on", "-ex", "thread apply all bt", "-p", &pid.to_string()])
        .output()
        .ok()?;
    let mut threads: Vec<Vec<String>> = Vec::new();
    for line in String::from_utf8_lossy(&run.stdout).lines() {
        if line.starts_with("Thread ") {
            threads.push(Vec::new());
        }
        let (Some(thread), Some(frame)) = (threads.last_mut(), line.strip_prefix('#')) else { continue };
        let rest = frame.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let rest =
            rest.split_once(" in ").filter(|(address, _)| address.starts_with("0x")).map_or(rest, |(_, name)| name);
        thread.push(rest.split([' ', '(']).next().unwrap_or_default().to_string());
    }
    Some(threads)
}

#[test]
fn gdb_sees_the_same_functions_of_the_program() {
    let Some(stage) = stage() else { return };
    let Some(mut theirs) = gdb_backtraces(stage.child.id()) else { return skip("gdb", "not found") };
    if theirs.is_empty() {
        return skip("ptrace", "gdb cannot attach");
    }
    // Names in libc are policy (aliases); those of the program are facts.
    let program = [
        "stand",
        "innermost",
        "middle",
        "outer",
        "recurse",
        "inlined",
        "compare",
        "sorting",
        "on_signal",
        "interrupted",
        "signalled",
        "main",
    ];
    let of_program = |name: &str| program.contains(&name);
    for thread in &mut theirs {
        thread.retain(|name| of_program(name));
    }
    let threads = stage.threads();
    let mut ours: Vec<Vec<String>> = threads
        .iter()
        .map(|thread| functions(thread).into_iter().filter(|name| of_program(name)).map(str::to_string).collect())
        .collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
}

#[test]
fn frames_on_end_of_code_that_the_process_made_are_followed_by_their_frame_pointers() {
    let Some(stage) = stage_of("jit_frames.c") else { return };
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", stage.child.id()));
    let threads = stage.threads();
    let names = functions(&threads[0]);
    let expected = ["at_the_bottom", "JS:innermost", "JS:between", "JS:outermost", "calls_made_code", "main"];
    assert!(names.windows(expected.len()).any(|names| names == expected), "{names:?}");
    assert_eq!(threads[0].stop, StopReason::EndOfStack);
    let made: Vec<_> = threads[0].frames.iter().filter(|frame| frame.resolver == ResolverStep::JitMap).collect();
    assert!(made.iter().all(|frame| frame.module.is_none()), "{made:#?}");
    // Only what CFI leads to is told by CFI.
    let methods: Vec<_> = made.iter().map(|frame| frame.unwind).collect();
    assert_eq!(methods, [UnwindMethod::CfiEhFrame, UnwindMethod::FramePointer, UnwindMethod::FramePointer]);
    let report = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2, 3]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
}

#[test]
fn frame_pointers_lead_through_code_that_nobody_told_of() {
    let Some(mut stage) = stage_called("jit_frames.c", "silent") else { return };
    assert!(stage.trace.jit.is_empty());
    let mut written = Vec::new();
    stage.trace.write(&mut written).unwrap();
    stage.trace = Trace::read(written.as_slice()).unwrap();
    let threads = stage.threads();
    let thread = &threads[0];
    assert_eq!(thread.stop, StopReason::EndOfStack, "{thread:#?}");
    let names: Vec<_> =
        thread.frames.iter().map(|frame| frame.frames.first().and_then(|it| it.function.as_deref())).collect();
    let expected = [Some("at_the_bottom"), None, None, None, Some("calls_made_code"), Some("main")];
    assert!(names.windows(expected.len()).any(|names| names == expected), "{names:?}");
    let report = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2, 3]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
}

#[test]
fn code_that_the_process_made_is_named_from_the_trace_alone() {
    let Some(mut stage) = stage_of("jit.c") else { return };
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", stage.child.id()));
    let told: Vec<_> = stage.trace.jit.iter().map(|it| (it.name.as_str(), it.size, it.overlapped)).collect();
    assert!(told.contains(&("JS:*made /tmp/a.js:1:13", 8, false)), "{told:?}");
    // A word of the stack may lead to what lies around it, and none to what nobody calls.
    let others: Vec<_> = told.iter().filter(|(name, ..)| !name.starts_with("JS:")).collect();
    assert!(others.iter().all(|other| **other == ("Old:gone", 256, true)), "{told:?}");
    // What is written is what is read back, and what is not known to a reader of an older version stays.
    let mut written = Vec::new();
    stage.trace.write(&mut written).unwrap();
    stage.trace = Trace::read(written.as_slice()).unwrap();

    let threads = stage.threads();
    let names = functions(&threads[0]);
    let at = names.iter().position(|name| name.starts_with("JS:")).unwrap_or_else(|| panic!("{threads:#?}"));
    assert_eq!((names[at - 1], names[at + 1], names[at + 2]), ("at_the_bottom", "calls_made_code", "main"));
    let frame = threads[0].frames.iter().find(|frame| frame.resolver == ResolverStep::JitMap).unwrap();
    assert_eq!((frame.quality, frame.proof, frame.unwind), (Quality::Function, Proof::None, UnwindMethod::CfiEhFrame));
    let steps: Vec<_> = frame.tried.iter().map(|tried| tried.step).collect();
    assert_eq!(steps, [ResolverStep::JitMap]);
    assert_eq!(threads[0].stop, StopReason::EndOfStack);

    let coverage = stage.coverage();
    let jit = coverage.by_kind[&FrameKind::Jit];
    assert_eq!((jit.frames, jit.named, jit.proved), (1, 1, 0));
    let report = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
}

/// Two traces of one process, between which other code came to the same address: each has what was there in its time, whenever it is read.
#[test]
fn t13_code_that_is_made_again_at_an_address_is_that_of_its_own_time() {
    let Some(stage) = stage_of("jit_again.c") else { return };
    let pid = stage.child.id();
    assert!(Command::new("kill").args(["-USR1", &pid.to_string()]).status().unwrap().success());
    let until = Instant::now() + Duration::from_secs(10);
    let second = loop {
        let trace = symseal_capture::capture(pid, &symseal_capture::Options::default()).unwrap();
        // Up to then the one is being left for the other.
        if trace.jit.iter().any(|it| it.name == "JS:second" && !it.overlapped) {
            break trace;
        }
        assert!(Instant::now() < until, "{:?}", trace.jit);
    };
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let starts =
        |trace: &Trace| trace.jit.iter().map(|it| (it.start, it.name.clone(), it.overlapped)).collect::<Vec<_>>();
    let (first_told, second_told) = (starts(&stage.trace), starts(&second));
    assert_eq!(first_told.len(), 1, "{first_told:?}");
    assert_eq!(second_told, [(first_told[0].0, "JS:second".to_owned(), false)], "at the same address");
    let tables = BundleTables::for_trace([&stage.bundle], &second);
    for (trace, tables, name) in [
        (&stage.trace, stage.tables(), "JS:first"),
        (&second, tables, "JS:second"),
        (&stage.trace, stage.tables(), "JS:first"),
    ] {
        let threads = resolve_trace(trace, &stage.resolver(), &tables).1;
        let names = functions(&threads[0]);
        let expected = ["at_the_bottom", name, "calls_made_code", "main"];
        assert!(names.windows(expected.len()).any(|names| names == expected), "{names:?}");
        assert_eq!(threads[0].stop, StopReason::EndOfStack);
    }
}
