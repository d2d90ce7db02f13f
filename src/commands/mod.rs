//! One file per command: its arguments, the room it calls, what it prints.

#![allow(missing_docs, reason = "what a command is for stands in its help text, which clap takes from its arguments")]

pub mod bundle;
pub mod doctor;
pub mod explain;
pub mod gateway;
pub mod import;
pub mod index;
pub mod key;
pub mod log;
pub mod mirror;
pub mod publish;
pub mod serve;
pub mod setup;
pub mod store;
pub mod symbolize;
pub mod token;
pub mod trace;
pub mod trust;
pub mod upload;
pub mod verify_bundle;
pub mod verify_frame;

use symseal_module::{Avma, DebugId};

/// Parses a debug id for clap.
fn debug_id(text: &str) -> Result<DebugId, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

/// Parses a hexadecimal address for clap and standard input.
fn address(text: &str) -> Result<u64, String> {
    text.parse::<Avma>().map(|address| address.0).map_err(|error| format!("{text}: {error}"))
}
