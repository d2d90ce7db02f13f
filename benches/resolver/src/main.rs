//! The resolver beside the libraries that profilers use.
//!
//!     cargo build --release                      (in the main workspace: it builds the bundle)
//!     cargo run --release -p symseal-bench-resolver [-- [--json] [--passes N]]
//!
//! One bundle of 200 shared libraries of this machine, and one of the C library with its debug file (Debian's libc6-dbg). All addresses lie in
//! the middle of functions, drawn from symbols with a fixed seed; everybody is asked for the same ones, for functions, files, lines and inlined
//! calls, undemangled. Times are wall times of whole calls, the fastest of several passes: answers as a caller is given them, strings included.
//!
//! For instruction counts: `valgrind --tool=callgrind --toggle-collect='*measured*' … --only CASE`.

mod cases;
mod fresh;
mod live;
mod peers;
mod report;
mod scene;

use anyhow::{Context, Result};

use scene::Scene;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == fresh::COMMAND) {
        return fresh::child(&arguments);
    }
    let json = arguments.iter().position(|argument| argument == "--json").map(|at| arguments.remove(at)).is_some();
    let passes = value(&mut arguments, "--passes")?.map_or(Ok(7), |text| text.parse()).context("--passes: a number")?;
    let only = value(&mut arguments, "--only")?;
    anyhow::ensure!(arguments.is_empty(), "unknown: {arguments:?}");
    let scene = Scene::new()?;
    if let Some(case) = only {
        return cases::one(&scene, &case, passes);
    }
    let measured = cases::all(&scene, passes)?;
    if json {
        report::json(&measured)
    } else {
        report::table(&measured)
    }
    Ok(())
}

fn value(arguments: &mut Vec<String>, flag: &str) -> Result<Option<String>> {
    let Some(at) = arguments.iter().position(|argument| argument == flag) else { return Ok(None) };
    anyhow::ensure!(at + 1 < arguments.len(), "{flag} takes a value");
    let value = arguments.remove(at + 1);
    arguments.remove(at);
    Ok(Some(value))
}
