//! `symseal explain`: why an answer is what it is.

mod symbol;
mod unwind;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use symseal_module::DebugId;

use crate::exit::Answer;
use crate::seal_question::SealQuestion;

/// An address, and how it is to be told of.
#[derive(clap::Args)]
pub struct Question {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// The module: build-id, GUID-age or uuid:…
    #[arg(value_parser = super::debug_id)]
    debug_id: DebugId,
    /// The address in hexadecimal.
    #[arg(value_parser = super::address)]
    address: u64,
    /// The address is relative to the image base.
    #[arg(long)]
    rva: bool,
    #[command(flatten)]
    seal: SealQuestion,
    /// Give demangled names as `function`; the raw symbol stays beside it.
    #[arg(long)]
    demangle: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    Symbol(symbol::Args),
    Unwind(unwind::Args),
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Symbol(args) => symbol::run(args),
        Command::Unwind(args) => unwind::run(args),
    }
}
