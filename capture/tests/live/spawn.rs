//! Starting the child and talking to it; skipping where the machine does not allow ptrace.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use symseal_capture::{CaptureError, Options, capture};
use symseal_process::ProcessError;
use symseal_trace::Trace;

/// The environment variable that makes the test program a child of this mode.
pub(crate) const MODE: &str = "SYMSEAL_CAPTURE_TEST_CHILD";
/// What the child's own lines start with; the test harness writes others.
pub(crate) const PREFIX: &str = "CHILD ";

/// A running child. Killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a child and waits until it says `ready`; gives it with the lines that it said before.
    pub(crate) fn start(mode: &str) -> (Self, Vec<String>) {
        let mut child = command(mode).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, input, output };
        let mut lines = Vec::new();
        loop {
            match running.line().as_str() {
                "ready" => return (running, lines),
                line => lines.push(line.to_owned()),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's next line.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child ended early");
            // The harness's own words may stand before ours on the line.
            if let Some((_, said)) = line.trim_end().split_once(PREFIX) {
                return said.to_owned();
            }
        }
    }

    /// Tells the child to come to an end, and gives its last line.
    pub(crate) fn finish(mut self) -> String {
        self.input.write_all(b"end\n").unwrap();
        let last = self.line();
        assert!(self.child.wait().unwrap().success());
        last
    }

    pub(crate) fn capture(&self) -> Trace {
        capture(self.pid(), &Options::default()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program, to be started as a child.
pub(crate) fn command(mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_program", "--nocapture", "--test-threads=1"]);
    command.env(MODE, mode).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Whether children may be traced here. Otherwise says so, and the test is over.
pub(crate) fn ptrace_allowed() -> bool {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    // Until it has called exec, it is a copy of this program.
    std::thread::sleep(Duration::from_millis(20));
    let answer = capture(child.id(), &Options::default());
    child.kill().unwrap();
    child.wait().unwrap();
    match answer {
        Err(CaptureError::Process(ProcessError::NotPermitted { .. })) => skip("ptrace", "not permitted"),
        _ => true,
    }
}

/// Says that something is skipped, or fails where it is required. Always false.
pub(crate) fn skip(what: &str, why: &str) -> bool {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == what || name == "all");
    assert!(!is_required, "{what} is required: {why}");
    println!("SKIP {what}: {why}");
    false
}
