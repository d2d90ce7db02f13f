//! The tests of this room in one program: each file of its own would be linked with everything once more.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod assembled_process;
mod async_process;
mod coroutine_process;
mod deep_process;
mod go_process;
mod hostile_traces;
mod jit_rules_process;
mod real_process;
mod scanned_process;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stage;
mod tokio_process;
