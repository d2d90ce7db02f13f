//! The tests of this room in one program: each file of its own would be linked with everything once more. What must be alone in its process
//! (`Cargo.toml` names it) is not among them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod appended;
mod archives;
mod build;
mod containers;
mod debug_frames;
mod debugger_scripts;
#[path = "../../tests/downloads/mod.rs"]
mod downloads;
mod excluding;
mod go_runtime;
mod go_stripped;
mod hostile_titles;
mod inputs;
mod links_and_notes;
mod nested_images;
mod other_formats;
mod pairing;
mod partial_lines;
mod public_databases;
mod refusals;
mod reported_ids;
mod same_ids;
mod script_paths;
mod sealing;
mod sources;
mod split_builds;
mod strict;
mod taken_names;
mod without_code;
mod without_table;
