//! elfutils sees the same modules, threads and program counters.

use std::collections::BTreeMap;
use std::process::Command;

use symseal_module::Avma;

use crate::spawn::{Running, ptrace_allowed, skip};

/// What a tool prints about a process; `None` where it is not installed.
fn ask(tool: &str, arguments: &[&str], pid: u32) -> Option<String> {
    match Command::new(tool).args(arguments).arg(pid.to_string()).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            skip(tool, "not found");
            None
        }
    }
}

#[test]
fn eu_unstrip_finds_the_same_modules_and_build_ids() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let Some(listing) = ask("eu-unstrip", &["-n", "-p"], child.pid()) else { return };
    // `0x7f…+0x1e2000 93ac61ec…@0x7f… …`
    let parse = |line: &str| {
        let (start, rest) = line.split_once('+')?;
        let (_, rest) = rest.split_once(' ')?;
        let (id, _) = rest.split_once(['@', ' '])?;
        Some((start.parse::<Avma>().ok()?, id.to_owned()))
    };
    let theirs: BTreeMap<Avma, String> = listing.lines().filter_map(parse).collect();
    let trace = child.capture();
    let id = |module: &symseal_trace::TraceModule| module.debug_id.as_ref().unwrap().to_string();
    let ours: BTreeMap<Avma, String> = trace.modules.iter().map(|module| (module.start, id(module))).collect();
    assert!(ours.len() >= 4, "{ours:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn eu_stack_finds_the_same_threads_and_program_counters() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let Some(listing) = ask("eu-stack", &["-n", "1", "-p"], child.pid()) else { return };
    // `TID 123:` and `#0  0x00007f… name`
    let mut theirs = BTreeMap::new();
    let mut thread = None;
    for line in listing.lines() {
        if let Some(id) = line.strip_prefix("TID ") {
            thread = id.trim_end_matches(':').parse::<u32>().ok();
        } else if let (Some(id), Some(frame)) = (thread, line.strip_prefix("#0")) {
            let pc = frame.trim_start().split(' ').next().unwrap();
            theirs.insert(id, pc.parse::<Avma>().unwrap());
        }
    }
    let trace = child.capture();
    let ours: BTreeMap<u32, Avma> =
        trace.samples.iter().map(|sample| (sample.thread, sample.register("rip").unwrap())).collect();
    assert_eq!(ours, theirs);
}
