//! What an auditor has on a disk, without a network: kits, layouts that other tools made, proofs from a log, tables to make
//! again, and other people's verifiers over the same seals.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../forged/mod.rs"]
mod forged;
#[path = "../program/mod.rs"]
mod program;

mod airgap;
mod cosign;
mod junk;
mod log_proofs;
mod rederive;
mod resume;
mod scene;
