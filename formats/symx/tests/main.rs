//! The tests of this room in one program: each file of its own would be linked with everything once more. What must be alone in its process
//! (`Cargo.toml` names it) is not among them.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod damage;
mod long_names;
mod model;
mod python_reader;
mod round_trip;
mod sparse;
