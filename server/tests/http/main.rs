//! The server over HTTP, face by face. One program: linking the server's libraries takes longer than most of these tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod bad_upstreams;
mod behind_nginx;
mod breakpad;
mod companions;
mod databases;
mod debuginfod;
mod described;
mod federated_names;
mod federation;
mod few_files;
mod foreign_blobs;
mod hard_links;
mod heads;
mod kinds_from_upstreams;
mod limits;
mod log;
mod loose;
mod made_tables;
mod metrics;
#[path = "../../../artifact/tests/msf/mod.rs"]
mod msf;
mod named_elsewhere;
mod oidc;
mod own_files;
mod quotas;
mod registry;
mod resolve_api;
mod retention;
mod revoked;
mod round_trip;
mod same_ids;
mod seals;
mod seals_elsewhere;
mod sessions;
mod small_disk;
mod source_files;
mod strange_paths;
mod support;
mod symbol_servers;
mod takedown;
mod traces;
mod trees;
mod trees_changing;
mod uploads;
mod upstream_sources;
