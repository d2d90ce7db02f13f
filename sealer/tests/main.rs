//! The tests of this room in one program: each file of its own would be linked with everything once more. What must be alone in its process
//! (`Cargo.toml` names it) is not among them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod foreign;
mod freshness;
mod golden_files;
mod key_files;
mod other_programs;
mod policy;
mod rekor_v1;
mod rekor_v1_client;
mod rekor_v1_server;
mod rekor_v2;
mod reporting;
mod signers;
mod strictness;
mod support;
mod tampering;
mod trust_changes;
mod verification;
mod witnesses;
