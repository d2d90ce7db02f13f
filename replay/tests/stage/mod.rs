//! A program that stands still: captured, and a bundle built of its binaries.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_module::Proof;
use symseal_replay::{BundleTables, Coverage, ResolvedThread, coverage, resolve_trace};
use symseal_resolver::{Options, Resolver};
use symseal_trace::Trace;

/// The workload, running until it is dropped, its trace, and the bundle that was built from its binaries.
pub(crate) struct Stage {
    pub(crate) child: Child,
    pub(crate) executable: PathBuf,
    /// What it said before it was ready.
    pub(crate) said: Vec<String>,
    pub(crate) trace: Trace,
    pub(crate) bundle: Bundle,
    _dir: tempfile::TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that a test is skipped for want of `tool`, or fails where the tool is required.
pub(crate) fn skip(tool: &str, why: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool), "{tool}: {why}, and it is required");
    eprintln!("SKIP {tool}: {why}");
}

impl Stage {
    /// Runs an executable in `dir` until it says that it is ready. `None` where the machine forbids ptrace.
    pub(crate) fn of(dir: tempfile::TempDir, executable: PathBuf) -> Option<Self> {
        Self::with(dir, executable, true)
    }

    /// The same, saying whether the bundle has the executables too.
    pub(crate) fn with(dir: tempfile::TempDir, executable: PathBuf, executables: bool) -> Option<Self> {
        let command = Command::new(&executable);
        Self::running(dir, executable, command, executables)
    }

    /// The same of a command that runs `executable`.
    pub(crate) fn running(
        dir: tempfile::TempDir,
        executable: PathBuf,
        mut command: Command,
        executables: bool,
    ) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said: Vec<String> = lines.take_while(|line| line != "ready").collect();
        // The main thread has yet to go to its own place.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let stack_copy_bytes = symseal_capture::MAX_STACK_COPY_BYTES;
        let options = symseal_capture::Options { stack_copy_bytes, ..symseal_capture::Options::default() };
        let trace = match symseal_capture::capture(child.id(), &options) {
            Ok(trace) => trace,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                skip("ptrace", &error.to_string());
                return None;
            }
        };
        let libraries = trace.modules.iter().map(|module| PathBuf::from(&module.path)).filter(|path| path.is_file());
        let options = BuildOptions { name: "workload".into(), version: "1".into(), progress: None };
        let mut builder = SymbolBundleBuilder::new(options).executables(executables);
        for path in libraries {
            builder = builder.add_path(path);
        }
        let layout = LayoutDir::create(dir.path().join("bundle")).unwrap();
        let built = builder.build(&layout).unwrap();
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        Some(Self { child, executable, said, trace, bundle, _dir: dir })
    }

    pub(crate) fn tables(&self) -> BundleTables {
        BundleTables::for_trace([&self.bundle], &self.trace)
    }

    pub(crate) fn resolver(&self) -> Resolver {
        Resolver::new(Options::default()).with_stored_bundle(self.bundle.clone(), Proof::Sealed)
    }

    pub(crate) fn threads(&self) -> Vec<ResolvedThread> {
        resolve_trace(&self.trace, &self.resolver(), &self.tables()).1
    }

    pub(crate) fn coverage(&self) -> Coverage {
        coverage(&self.threads(), &self.resolver())
    }
}

/// The functions of a stack, inlined ones included.
pub(crate) fn functions(thread: &ResolvedThread) -> Vec<&str> {
    thread.frames.iter().flat_map(|frame| &frame.frames).filter_map(|source| source.function.as_deref()).collect()
}
