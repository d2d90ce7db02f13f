//! `trace-verify`: see `symseal trace verify`.

use std::process::ExitCode;

use clap::Parser;
use symseal::commands::trace::verify;
use symseal::exit;

#[derive(Parser)]
#[command(name = "trace-verify", version)]
struct Cli {
    #[command(flatten)]
    args: verify::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::run(|| verify::run(&cli.args))
}
