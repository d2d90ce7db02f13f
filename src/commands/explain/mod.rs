//! `symseal explain`: why an answer is what it is.

mod symbol;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Answer;

#[derive(Subcommand)]
pub enum Command {
    Symbol(symbol::Args),
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Symbol(args) => symbol::run(args),
    }
}
