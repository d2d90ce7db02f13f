//! `symseal import` of stores that other programs made, as symbol server clients see it afterwards.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod breakpad;
#[path = "../program/mod.rs"]
mod program;
mod refusals;
mod scene;
mod symstore;
mod unified;
