//! Step 4: a child at real work in several threads, captured by ptrace.

use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use symseal_capture::Options;
use symseal_trace::{Event, Trace};

use super::build::BuiltBundle;
use super::narrator::{Narrator, seconds};
use super::scene::Scene;
use super::seal::SealedBundle;
use crate::commands::trace::capture::{summary, write};
use crate::workload::report::{self, ThreadReport};

/// A trace, and what the threads said of themselves.
pub(super) struct Captured {
    pub(super) trace: Trace,
    pub(super) reports: Vec<ThreadReport>,
}

pub(super) fn run(scene: &Scene, story: &mut Narrator, sealed: &SealedBundle, built: &BuiltBundle) -> Result<Captured> {
    story.step("Capture", "a child that sorts, parses, recurses and sits in a signal handler");
    let mut workload = Workload::start()?;
    let reports = workload.wait_until_ready()?;
    let mut trace = symseal_capture::capture(workload.0.id(), &Options::default())?;
    drop(workload);
    for sample in &trace.samples {
        story.say(format!(
            "thread {:<16} stopped {:>9}, {} bytes of stack",
            sample.thread_name,
            seconds(Duration::from_nanos(sample.stopped_ns)),
            sample.stacks.iter().map(|stack| stack.bytes.len()).sum::<usize>()
        ));
    }
    let mut summary = summary(&trace, Some(built.built.digest));
    summary.dsse_ref.clone_from(&sealed.dsse_ref);
    trace.after.push(Event::Capture(summary));
    write(&trace, &scene.trace())?;
    // What is resolved is what was written: the file, not the memory of it.
    let trace = crate::commands::trace::resolve::read_trace(&scene.trace())?;
    story.proved(format!(
        "{} threads, {} modules with debug ids, the vDSO among them, {} lost; {}",
        trace.samples.len(),
        trace.modules.iter().filter(|module| module.debug_id.is_some()).count(),
        trace.end.lost,
        trace.end.digest
    ));
    Ok(Captured { trace, reports })
}

/// The child; it ends with this value.
struct Workload(Child);

impl Workload {
    fn start() -> Result<Self> {
        let executable = std::env::current_exe().context("the running executable cannot be found")?;
        let child = Command::new(executable)
            .arg("workload")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the child to be captured cannot be started")?;
        Ok(Self(child))
    }

    fn wait_until_ready(&mut self) -> Result<Vec<ThreadReport>> {
        let output = self.0.stdout.take().context("the child has no standard output")?;
        report::read(&mut BufReader::new(output))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
