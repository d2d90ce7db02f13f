//! `symseal bundle`: build, seal, push, pull, inspect, verify.

pub mod build;
pub mod build_report;
mod chain;
mod disclosure;
pub mod excluding;
pub mod export;
pub mod inspect;
pub mod kit;
pub mod limits;
mod rederive;
pub mod seal;
pub mod sourcing;
pub mod transfer;
pub mod verify;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Answer;

#[derive(Subcommand)]
pub enum Command {
    Build(build::Args),
    Seal(Box<seal::Args>),
    Push(transfer::PushArgs),
    Pull(transfer::PullArgs),
    Inspect(inspect::Args),
    Verify(verify::BundleVerifyArgs),
    Export(export::Args),
    /// Carry a bundle to a site without a network: pack a kit, and take one in.
    #[command(
        subcommand,
        after_help = "Example:\n  symseal bundle kit export ./bundle --key ./keys/artifact.key.pem --output ./app-1.0.tar"
    )]
    Kit(kit::Command),
}

pub fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::Build(args) => build::run(args),
        Command::Seal(args) => seal::run(args),
        Command::Push(args) => transfer::push(args),
        Command::Pull(args) => transfer::pull(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run_bundle_verify(args),
        Command::Export(args) => export::run(args),
        Command::Kit(command) => kit::run(command),
    }
}
