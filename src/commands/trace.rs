//! `symseal trace …` and the `trace-*` programs.

pub mod capture;
mod local_tables;
pub mod replay;
pub mod resolve;
pub mod verify;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Answer;

#[derive(Subcommand)]
pub enum Command {
    Capture(capture::Args),
    Resolve(resolve::Args),
    Replay(replay::Args),
    Verify(verify::Args),
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Capture(args) => capture::run(args),
        Command::Resolve(args) => resolve::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Verify(args) => verify::run(args),
    }
}
