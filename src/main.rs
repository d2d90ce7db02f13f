//! `symseal`: build, seal, distribute and use debug symbols.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use symseal::commands::{
    bundle, doctor, explain, gateway, import, index, key, log, mirror, publish, serve, setup, store, symbolize, token,
    trace, trust, upload, verify_bundle, verify_frame,
};
use symseal::{demo, exit, workload};

/// Build, seal, distribute and use debug symbols, so that every name in a stack trace can be proved.
#[derive(Parser)]
#[command(
    name = "symseal",
    version,
    after_help = "Examples:
  symseal demo                                      the whole road on this machine
  symseal bundle build ./target/release/app --name app --version 1.0 --output ./bundle
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec… 0x401136"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Serve(Box<serve::Args>),
    Gateway(gateway::Args),
    Doctor(Box<doctor::Args>),
    /// Build, seal, push, pull, inspect and verify bundles.
    #[command(
        subcommand,
        after_help = "Example:\n  symseal bundle build ./app --name app --version 1.0 --output ./bundle"
    )]
    Bundle(bundle::Command),
    Publish(Box<publish::Args>),
    Upload(upload::Args),
    Import(Box<import::Args>),
    Mirror(mirror::Args),
    /// Look into a bundle's symbol tables.
    #[command(subcommand, after_help = "Example:\n  symseal index dump ./bundle | head")]
    Index(index::Command),
    Symbolize(symbolize::Args),
    /// Say why an answer is what it is.
    #[command(
        subcommand,
        after_help = "Example:\n  symseal explain symbol ./bundle 93ac61ec… 0x401136 --trust ./trust"
    )]
    Explain(explain::Command),
    VerifyFrame(verify_frame::Args),
    VerifyBundle(verify_bundle::Args),
    /// Make signing keys.
    #[command(subcommand, after_help = "Example:\n  symseal key generate --output ./keys")]
    Key(key::Command),
    /// Read a log as anybody may: its checkpoint, and proofs for those who verify.
    #[command(
        subcommand,
        after_help = "Example:\n  symseal log consistency --log ./log --from 12 --output proofs.json"
    )]
    Log(log::Command),
    /// Say whom to trust.
    #[command(subcommand, after_help = "Example:\n  symseal trust show --trust ./trust")]
    Trust(trust::Command),
    /// Say who may read from a server, write to it, and log signatures.
    #[command(subcommand, after_help = "Example:\n  symseal token list --data ./data")]
    Token(token::Command),
    /// Say how a debugger finds a server's symbols.
    #[command(subcommand, after_help = "Example:\n  symseal setup gdb --server http://127.0.0.1:8790 >> ~/.gdbinit")]
    Setup(setup::Command),
    /// Look after what a server keeps, in its data directory or its bucket; what asks for a stopped server says so.
    #[command(subcommand, after_help = "Example:\n  symseal store gc --data ./data")]
    Store(store::Command),
    /// Capture, resolve, replay and verify traces; the `trace-*` programs do the same.
    #[command(subcommand, after_help = "Example:\n  symseal trace capture --pid 1234 --output trace.jsonl")]
    Trace(trace::Command),
    /// The program that the demo captures.
    #[command(hide = true)]
    Workload,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::run(|| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bundle(command) => bundle::run(&command),
        Command::Publish(args) => publish::run(&args),
        Command::Upload(args) => upload::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Mirror(args) => mirror::run(&args),
        Command::Index(command) => index::run(&command),
        Command::Symbolize(args) => symbolize::run(&args),
        Command::Explain(command) => explain::run(&command),
        Command::VerifyFrame(args) => verify_frame::run(&args),
        Command::VerifyBundle(args) => verify_bundle::run(&args),
        Command::Key(command) => key::run(&command),
        Command::Log(command) => log::run(&command),
        Command::Trust(command) => trust::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Setup(command) => setup::run(&command),
        Command::Store(command) => store::run(&command),
        Command::Trace(command) => trace::run(&command),
        Command::Workload => workload::run(),
    })
}
