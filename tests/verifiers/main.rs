//! What other verifiers say, of our seals and of everybody's bundles: cosign, @sigstore/verify (npm) and sigstore (PyPI).
//!
//! Each is asked in one batch. They and their packages come from `tests/peers` and from a cache that these tests fill
//! once; what is missing is skipped out loud.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(unreachable_pub, reason = "modules of other tests are part of this one")]

#[path = "../forged/mod.rs"]
mod forged;
#[path = "../../formats/bundle/tests/made/mod.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod made;
#[path = "../program/mod.rs"]
mod program;
#[path = "../../sealer/tests/support/rekor.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod rekor;
#[path = "../../sealer/tests/support/mod.rs"]
#[allow(unexpected_cfgs, reason = "what is behind a feature there is brought in here by itself")]
mod support;

mod bundles;
mod certificates;
mod conformance;
mod content_mutants;
mod keyless;
mod keys;
mod mutants;
mod other_certificates;
mod peers;
mod rekor_v1;
mod rekor_v2_entries;
mod seal_mutants;
mod table;
mod table_mutant;
mod trust_mutants;

use support::{BUNDLE, NOW, World, have, with_policy};
