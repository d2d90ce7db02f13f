//! `trace-resolve`: see `symseal trace resolve`.

use std::process::ExitCode;

use clap::Parser;
use symseal::commands::trace::resolve;
use symseal::exit;

#[derive(Parser)]
#[command(name = "trace-resolve", version)]
struct Cli {
    #[command(flatten)]
    args: resolve::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::run(|| resolve::run(&cli.args))
}
