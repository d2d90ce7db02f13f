//! `symseal bundle kit`: a bundle on its way to a site without a network.

mod export;
mod import;
mod verifier;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Answer;

#[derive(Subcommand)]
pub enum Command {
    Export(Box<export::Args>),
    Import(Box<import::Args>),
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
    }
}
