//! Captures of a real child process: this test program itself, started again as another (`child.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking.

mod aftermath;
mod child;
mod oracles;
mod refusals;
mod spawn;
mod truth;

/// Not a test of its own: what the started child runs. Does nothing in a normal test run.
#[test]
fn child_program() {
    if let Ok(mode) = std::env::var(spawn::MODE) {
        child::run(&mode);
        std::process::exit(0);
    }
}
