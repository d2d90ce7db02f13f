//! `trace-capture`: see `symseal trace capture`.

use std::process::ExitCode;

use clap::Parser;
use symseal::commands::trace::capture;
use symseal::exit;

#[derive(Parser)]
#[command(name = "trace-capture", version)]
struct Cli {
    #[command(flatten)]
    args: capture::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::run(|| capture::run(&cli.args))
}
