//! What cannot be captured is refused with a reason.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use symseal_capture::{CaptureError, Options, capture};
use symseal_process::ProcessError;

use crate::spawn::{Running, skip};

fn refusal(pid: u32) -> CaptureError {
    capture(pid, &Options::default()).unwrap_err()
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    for pid in [u32::MAX, 4_000_000] {
        let error = refusal(pid);
        assert!(matches!(error, CaptureError::Process(ProcessError::NoSuchProcess { .. })), "{error}");
        assert!(error.to_string().contains(&pid.to_string()));
    }
}

#[test]
fn a_process_that_has_ended_is_told_from_one_that_runs() {
    let mut child = Command::new("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let zombie = refusal(child.id());
    assert!(matches!(zombie, CaptureError::Process(ProcessError::NoMemory { .. })), "{zombie}");
    child.wait().unwrap();
    let gone = refusal(child.id());
    assert!(matches!(gone, CaptureError::Process(ProcessError::NoSuchProcess { .. })), "{gone}");
}

#[test]
fn a_process_does_not_capture_itself() {
    assert!(matches!(refusal(std::process::id()), CaptureError::Itself { .. }));
}

#[test]
fn a_threads_id_is_told_from_a_processs() {
    let (child, lines) = Running::start("registers");
    let thread: u32 = lines[0].split(' ').next().unwrap().parse().unwrap();
    match refusal(thread) {
        CaptureError::Process(ProcessError::NotAProcess { process, .. }) => assert_eq!(process, child.pid()),
        other => panic!("{other}"),
    }
}

#[test]
#[allow(unsafe_code)]
fn a_process_under_another_tracer_is_left_alone() {
    let (mut child, lines) = Running::start("traced");
    let answer = refusal(child.pid());
    child.child.kill().unwrap();
    // We are the tracer: the traced thread stays until we have been told of its end.
    let thread = lines[0].parse().unwrap();
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
    match answer {
        CaptureError::AlreadyTraced { tracer, .. } => assert_eq!(tracer, std::process::id()),
        CaptureError::Process(ProcessError::NotPermitted { .. }) => drop(skip("ptrace", "not permitted")),
        other => panic!("{other}"),
    }
}

#[test]
fn a_copy_of_no_bytes_or_of_too_many_is_refused() {
    for bytes in [0, u64::MAX] {
        let options = Options { stack_copy_bytes: bytes, ..Options::default() };
        let error = capture(1, &options).unwrap_err();
        assert!(matches!(error, CaptureError::StackCopy { .. }), "{error}");
    }
}

/// Started as another user by the test below; a normal test run has nothing to do here.
#[test]
fn someone_else_asks() {
    if let Some(pid) = std::env::var("SYMSEAL_CAPTURE_TEST_TARGET").ok().and_then(|pid| pid.parse().ok()) {
        println!("REFUSED {}", refusal(pid));
    }
}

#[test]
fn a_process_of_another_user_is_refused_with_advice() {
    let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
    // A place where every user may start it.
    let program = std::env::temp_dir().join(format!("symseal-capture-asks-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut asks = Command::new(&program);
    asks.args(["--exact", "refusals::someone_else_asks", "--nocapture"]).uid(65534).gid(65534).current_dir("/");
    let answer = asks.env("SYMSEAL_CAPTURE_TEST_TARGET", sleep.id().to_string()).output();
    std::fs::remove_file(&program).unwrap();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    let Ok(answer) = answer else {
        skip("root", "only root can become another user");
        return;
    };
    let said = String::from_utf8_lossy(&answer.stdout);
    assert!(said.contains("REFUSED not permitted to"), "{said}");
    assert!(said.contains("CAP_SYS_PTRACE"), "{said}");
}
