//! What a capture says is what the child says of itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use symseal_capture::{Options, capture};
use symseal_module::{Avma, DebugId};
use symseal_trace::{IdentifiedBy, StackSegment, Trace};

use crate::child::{FULL_OF, PATTERN_WORDS};
use crate::spawn::{Running, ptrace_allowed, skip};

/// `thread number 0xaddress`
fn report(line: &str) -> (u32, u64, Avma) {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap();
    (word().parse().unwrap(), word().parse().unwrap(), word().parse().unwrap())
}

fn check_pattern(trace: &Trace, thread: u32, number: u64, address: Avma) {
    let sample = trace.samples.iter().find(|sample| sample.thread == thread).unwrap();
    for at in 0..PATTERN_WORDS {
        assert_eq!(sample.read_u64(Avma(address.0 + 8 * at)), Some(number << 32 | at));
    }
}

#[test]
fn registers_stacks_and_names_are_those_of_the_threads() {
    if !ptrace_allowed() {
        return;
    }
    let (child, lines) = Running::start("registers");
    let trace = child.capture();
    assert_eq!(lines.len(), 3);
    for (thread, number, address) in lines.iter().map(|line| report(line)) {
        let sample = trace.samples.iter().find(|sample| sample.thread == thread).unwrap();
        assert_eq!(sample.thread_name, format!("number {number}"));
        let register = |name| sample.register(name).unwrap().0;
        assert_eq!([register("r12"), register("r13"), register("r14")], [12, 13, 14].map(|low| number << 8 | low));
        assert_eq!(register("r15"), u64::MAX - number);
        let sp = Avma(register("rsp"));
        assert!(sp <= address, "the pattern is above the stack pointer");
        let segment = &sample.stacks[0];
        assert_eq!(segment.start, Avma(sp.0 - 128), "the red zone is copied too");
        assert!(segment.mapping_start <= segment.start && segment.end() <= segment.mapping_end);
        check_pattern(&trace, thread, number, address);
        let map = trace.module_map();
        let module = &map.modules()[map.find(Avma(register("rip"))).unwrap()];
        assert_eq!(Some(module.path.as_str()), std::env::current_exe().unwrap().to_str());
    }
}

#[test]
fn every_thread_is_in_the_trace_and_what_is_in_memory_is_what_is_written() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let tasks = symseal_process::tasks(child.pid()).unwrap();
    let trace = child.capture();
    let threads: Vec<u32> = trace.samples.iter().map(|sample| sample.thread).collect();
    assert_eq!(threads, tasks);
    assert_eq!(trace.end.lost, 0);
    assert_eq!(trace.begin.executable.as_deref(), std::env::current_exe().unwrap().to_str());
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    assert_eq!(Trace::read(bytes.as_slice()).unwrap(), trace);
    assert_eq!(trace.capture_summary().frames.len(), threads.len());
}

#[test]
fn the_vdso_comes_with_its_bytes_and_its_build_id() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let trace = child.capture();
    let Some(vdso) = trace.modules.iter().find(|module| module.path == "[vdso]") else {
        println!("SKIP vdso: this kernel maps none");
        return;
    };
    assert!(vdso.bytes.as_ref().unwrap().starts_with(b"\x7fELF"));
    assert_eq!(vdso.identified_by, IdentifiedBy::MemoryNote);
    assert!(vdso.debug_id.is_some());
}

#[test]
fn the_stack_that_a_signal_interrupted_is_captured_beside_the_handlers() {
    if !ptrace_allowed() {
        return;
    }
    let (child, lines) = Running::start("alternate-stack");
    let trace = child.capture();
    let (thread, number, address) = report(&lines[0]);
    let sample = trace.samples.iter().find(|sample| sample.thread == thread).unwrap();
    assert_eq!(sample.stacks.len(), 2);
    assert!(sample.stacks[0].end() <= address || address < sample.stacks[0].start);
    check_pattern(&trace, thread, number, address);
}

#[test]
fn a_stack_that_overflowed_is_captured_from_where_it_begins() {
    if !ptrace_allowed() {
        return;
    }
    let (child, lines) = Running::start("overflow");
    let trace = child.capture();
    let thread: u32 = lines[0].parse().unwrap();
    let sample = trace.samples.iter().find(|sample| sample.thread == thread).unwrap();
    let words =
        |segment: &StackSegment| segment.bytes.chunks_exact(8).filter(|word| **word == FULL_OF.to_le_bytes()).count();
    let overflowed = sample.stacks.iter().max_by_key(|segment| words(segment)).unwrap();
    assert_eq!(overflowed.start, overflowed.mapping_start);
    assert!(words(overflowed) > 7000 && overflowed.bytes.len() == 1 << 16, "{}", words(overflowed));
}

#[test]
fn a_process_whose_first_thread_has_ended_is_captured() {
    if !ptrace_allowed() {
        return;
    }
    let (child, lines) = Running::start("first-thread-ended");
    let process: u32 = lines[0].parse().unwrap();
    assert_ne!(process, child.pid());
    let trace = capture(process, &Options::default()).unwrap();
    let (thread, number, address) = report(&lines[1]);
    let threads: Vec<u32> = trace.samples.iter().map(|sample| sample.thread).collect();
    assert_eq!((threads, trace.end.lost), (vec![thread], 0));
    check_pattern(&trace, thread, number, address);
    let own = std::env::current_exe().unwrap();
    assert_eq!(trace.begin.executable.as_deref(), own.to_str());
    assert!(trace.begin.build_id.is_some() && trace.modules.iter().any(|module| module.path == "[vdso]"));
    let identity = symseal_process::identity_of(process).unwrap();
    assert!(identity.started != 0 && identity.stack != 0, "{identity:?}");
    let modules = symseal_process::modules_of(process).unwrap();
    assert!(modules.iter().all(|module| module.is_vdso() || symseal_process::open_module(process, module).is_ok()));
}

#[test]
fn a_short_copy_says_that_the_stack_goes_on() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let options = Options { stack_copy_bytes: 256, ..Options::default() };
    let trace = capture(child.pid(), &options).unwrap();
    assert!(trace.samples.iter().all(|sample| sample.stacks[0].bytes.len() == 128 + 256));
    assert!(trace.samples.iter().all(|sample| sample.stacks[0].is_truncated()));
}

#[test]
fn a_replaced_executable_keeps_the_identity_that_runs() {
    if !ptrace_allowed() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("symseal-capture-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("two  words (deleted)");
    std::fs::copy("/bin/sleep", &path).unwrap();
    let mut sleep = Command::new(&path).arg("60").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = capture(sleep.id(), &Options::default()).unwrap();
    // As a package upgrade does it: another file takes the name.
    std::fs::copy("/bin/cat", folder.join("new")).unwrap();
    std::fs::rename(folder.join("new"), &path).unwrap();
    let after = capture(sleep.id(), &Options::default()).unwrap();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let ids = |trace: &Trace| trace.modules.iter().map(|module| module.debug_id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&before), ids(&after));
    let main = after.modules.iter().find(|module| module.path.contains("two  words")).unwrap();
    assert!(main.deleted);
    assert_eq!(main.debug_id, after.begin.build_id);
    assert!(main.debug_id.is_some());
}

#[test]
fn a_module_without_a_build_id_has_the_one_that_its_file_is_given() {
    if !ptrace_allowed() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("symseal-capture-no-id-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, path) = (folder.join("waits.c"), folder.join("waits"));
    std::fs::write(&source, "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n").unwrap();
    let built = Command::new("cc").arg("-Wl,--build-id=none").arg("-o").args([&path, &source]).status();
    if !built.is_ok_and(|status| status.success()) {
        skip("cc", "no C compiler");
        return;
    }
    let mut waits = Command::new(&path).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // As the length of the file tells.
    let of_length: fn(File) -> Option<DebugId> =
        |file| DebugId::from_build_id(&file.metadata().ok()?.len().to_be_bytes()).ok();
    let expected = of_length(File::open(&path).unwrap());
    let with = Options { identify: Some(of_length), ..Options::default() };
    let traces = [Options::default(), with].map(|options| capture(waits.id(), &options).unwrap());
    waits.kill().unwrap();
    waits.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let told = traces.map(|trace| {
        let own = trace.modules.iter().find(|module| module.path.ends_with("/waits")).unwrap();
        let others = trace.modules.iter().filter(|module| module.path.contains("libc.so"));
        assert!(others.into_iter().all(|module| module.identified_by == IdentifiedBy::MemoryNote));
        assert_eq!(trace.begin.build_id, own.debug_id);
        (own.debug_id.clone(), own.identified_by.clone())
    });
    assert!(expected.is_some());
    assert_eq!(told, [(None, IdentifiedBy::None), (expected, IdentifiedBy::FileCode)]);
}

#[test]
fn what_is_written_holds_to_the_published_schema() {
    if !ptrace_allowed() {
        return;
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats/schemas/trace_event.schema.json");
    let schema = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let (child, _) = Running::start("alternate-stack");
    let mut trace = child.capture();
    trace.after.push(symseal_trace::Event::Capture(trace.capture_summary()));
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = serde_json::from_slice(line).unwrap();
        assert!(schema.is_valid(&line), "{line}");
    }
}
