//! `symseal explain`: why an answer is what it is.

mod symbol;
mod unwind;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Answer;

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
