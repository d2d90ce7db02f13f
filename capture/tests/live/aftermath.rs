//! A captured process goes on as if nothing had happened.

use std::time::{Duration, Instant};

use symseal_capture::{Options, capture};

use crate::spawn::{Running, command, ptrace_allowed};

const CAPTURES: u32 = 20;

#[allow(unsafe_code)]
fn send(pid: u32, signal: libc::c_int) {
    // SAFETY: no memory is passed; the process is our own child, not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
}

fn state(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find(|line| line.starts_with("State:")).unwrap().to_owned()
}

#[test]
fn a_busy_process_survives_twenty_captures_in_a_row() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("busy");
    let mut held = Vec::new();
    let start = Instant::now();
    for _ in 0..CAPTURES {
        held.extend(child.capture().samples.iter().map(|sample| sample.stopped_ns));
    }
    let round = start.elapsed() / CAPTURES;
    assert_eq!(child.finish(), "idle 0 wrong 0");
    held.sort_unstable();
    assert!(held.iter().all(|time| *time > 0));
    let at = |share: usize| Duration::from_nanos(held[(held.len() - 1) * share / 100]);
    println!(
        "hold of {} thread samples: p50 {:?}, p99 {:?}, longest {:?}; a capture takes {round:?}",
        held.len(),
        at(50),
        at(99),
        at(100)
    );
}

#[test]
fn threads_that_come_and_go_do_not_disturb() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("spawning");
    for _ in 0..CAPTURES {
        let trace = child.capture();
        assert!(trace.samples.iter().any(|sample| sample.thread == child.pid()));
    }
    assert_eq!(child.finish(), "end");
}

/// The kernel lets nobody stop it, and the others stand still as long as it is waited for.
#[test]
fn a_thread_that_sleeps_in_the_kernel_is_not_waited_for_long() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("sleeping-in-the-kernel");
    let trace = child.capture();
    assert_eq!(trace.end.lost, 1, "the thread that waits for its child");
    assert!(trace.samples.len() >= 2, "{} threads", trace.samples.len());
    let longest: u64 = child.finish().parse().unwrap();
    println!("the longest that another thread stood still: {longest} ms");
    // Two seconds, if it were waited for like the others. There is no bound below: on a busy machine the other thread
    // may be stopped only when most of the waiting is over.
    assert!(longest < 1500, "{longest} ms");
}

#[test]
fn no_signal_is_lost() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("signals");
    let pid = child.pid();
    let sender = std::thread::spawn(move || {
        for _ in 0..400 {
            // The kernel queues these, and never merges them.
            send(pid, libc::SIGRTMIN());
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let mut captures = 0;
    while !sender.is_finished() {
        child.capture();
        captures += 1;
    }
    sender.join().unwrap();
    assert!(captures > 3, "only {captures} captures while signals were sent");
    assert_eq!(child.finish(), "400");
}

#[test]
fn a_stopped_process_stays_stopped_and_can_be_continued() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    send(child.pid(), libc::SIGSTOP);
    while !state(child.pid()).contains('T') {
        std::thread::sleep(Duration::from_millis(1));
    }
    let trace = child.capture();
    assert_eq!(trace.samples.len(), symseal_process::tasks(child.pid()).unwrap().len());
    std::thread::sleep(Duration::from_millis(20));
    assert!(state(child.pid()).contains("T (stopped)"), "{}", state(child.pid()));
    send(child.pid(), libc::SIGCONT);
    assert_eq!(child.finish(), "end");
}

#[test]
fn nobody_traces_the_process_afterwards() {
    if !ptrace_allowed() {
        return;
    }
    let (child, _) = Running::start("waiting");
    let trace = child.capture();
    for sample in &trace.samples {
        let status = std::fs::read_to_string(format!("/proc/{}/task/{}/status", child.pid(), sample.thread)).unwrap();
        assert!(status.contains("TracerPid:\t0\n"));
    }
}

#[test]
fn a_child_that_is_killed_meanwhile_is_still_our_own_to_wait_for() {
    if !ptrace_allowed() {
        return;
    }
    for delay in [0, 300, 1000, 3000] {
        let mut child = command("busy").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let pid = child.id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            send(pid, libc::SIGKILL);
        });
        // Samples or an error, as it happens, but an end.
        while let Ok(trace) = capture(pid, &Options::default()) {
            assert!(!trace.samples.is_empty());
        }
        killer.join().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
