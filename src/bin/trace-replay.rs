//! `trace-replay`: see `symseal trace replay`.

use std::process::ExitCode;

use clap::Parser;
use symseal::commands::trace::replay;
use symseal::exit;

#[derive(Parser)]
#[command(name = "trace-replay", version)]
struct Cli {
    #[command(flatten)]
    args: replay::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::run(|| replay::run(&cli.args))
}
