//! Who may do what on a server that asks for tokens, with the programs that people use: curl, debuginfod-find, gdb's way of
//! asking, oras, skopeo, regctl.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../program/mod.rs"]
mod program;

mod clients;
mod curl;
mod limits;
mod pipelines;
mod scene;
mod strangers;
mod tls;
