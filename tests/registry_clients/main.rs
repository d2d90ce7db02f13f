//! The registry as other people's programs see it: the specification's conformance suite, oras, skopeo, regctl, cosign, and a
//! blob that is larger than what the server may take of memory.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../program/mod.rs"]
mod program;

mod clients;
mod collection;
mod conformance;
mod large_blob;
mod scene;
