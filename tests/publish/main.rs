//! `symseal publish` against a real server: one step, joined parts, images as subjects, sources, credentials, and the job that a
//! release pipeline runs; and what a deployment takes.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod deployment;
#[path = "../../registry/tests/front/mod.rs"]
mod front;
mod join;
mod one_step;
mod pipeline;
#[path = "../program/mod.rs"]
mod program;
mod scene;
mod sources;
