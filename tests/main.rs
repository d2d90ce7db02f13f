//! The tests of single commands in one program: each file of its own would be linked with everything once more. Larger scenes have folders of their own.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod arrows;
mod bad_input;
mod build_ids;
mod captured;
mod certify_words;
mod cryptography;
mod disclosed_builds;
mod doctor;
mod documents;
mod dotnet;
mod downloads;
mod explain;
mod export;
#[path = "../registry/tests/front/mod.rs"]
mod front;
mod killed_build;
mod live;
mod log_server;
mod memory;
mod mirror;
mod mirror_whole;
mod online;
mod openapi;
mod page_proofs;
mod program;
mod pulled_directory;
mod pulled_places;
mod pulled_strangers;
mod release;
mod release_directory;
mod road;
mod same_digest;
mod server_interop;
mod signing;
mod sources;
mod strict;
mod symbolize;
mod three_systems;
mod trust;
mod upload;
mod witnesses;
