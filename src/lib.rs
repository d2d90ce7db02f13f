//! The command line of symseal: parse arguments, call a room, print.
//!
//! Human output goes to standard output, progress to standard error (a bar on a terminal, a line now and then elsewhere); `--json`
//! is for machines. What the exit statuses mean stands in [`exit`].

#![deny(clippy::print_stdout)]

pub mod bundle_ref;
pub mod commands;
mod cut_files;
mod data_owner;
pub mod demo;
mod doctor;
pub mod exit;
mod frames;
mod heap;
mod http_client;
pub mod keyring;
mod local_module;
mod log_lines;
pub mod memory;
mod online;
mod output;
mod output_file;
mod own_user;
pub mod passphrase;
mod places;
mod progress;
mod registry_client;
mod seal_question;
mod symbols_server;
mod table;
pub mod workload;
