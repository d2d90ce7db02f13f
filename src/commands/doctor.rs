//! `symseal doctor`: what is wrong with an installation, and what to do.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_server::{ConfigError, Examined, Finding, Standing};

use crate::commands::serve::{Chosen, Settings};
use crate::exit::Answer;
use crate::output::{outln, visible};
use crate::{doctor, keyring, places};

/// What a reader of the JSON form recognises: docs/formats/schemas/doctor.schema.json.
const SCHEMA: &str = "symseal.doctor.v1";

/// Say what is wrong with a server, or with this machine for those who read symbols, and what to do.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal doctor                                                  this machine: servers that are set, the local store, captures, gdb
  symseal doctor --online                                         and whether the servers answer
  symseal doctor --config /etc/symseal/server.toml                a server, beside it while it runs or before it starts
  symseal doctor --data ./data --json

Nothing is made or changed. A server is examined by its configuration, with the options and variables of symseal serve: settings, certificate, trust directory,
address, data directory, database, object store, log. Run it as the server's user or as root, or not all can be seen. Exit status 1: there is a problem;
warnings alone are 0.")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// The local bundle store.
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Ask debuginfod and symbol servers whether they answer: those of the environment (DEBUGINFOD_URLS, _NT_SYMBOL_PATH), or the server's own upstreams.
    #[arg(long)]
    online: bool,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let is_server = args.settings.names_a_server();
    let findings = if is_server {
        ensure!(
            args.store.is_none(),
            "--store: a server has none; leave out --config and --data to examine this machine"
        );
        examine_server(args)?
    } else {
        ensure!(
            !args.settings.is_any(),
            "expected --config or --data with the options of a server, found neither: say which server is meant"
        );
        doctor::examine(&places::store_dir(args.store.as_ref())?, args.online)?
    };
    let worst = findings.iter().map(|finding| finding.standing).max().unwrap_or(Standing::Ok);
    if args.json {
        let of = if is_server { "server" } else { "client" };
        outln!(
            "{}",
            serde_json::to_string_pretty(&json!({ "schema": SCHEMA, "of": of, "worst": worst, "findings": findings }))?
        );
    } else {
        print(&findings);
    }
    Ok(Answer::from(worst != Standing::Problem))
}

fn examine_server(args: &Args) -> Result<Vec<Finding>> {
    let Chosen { config, origins, seals, schedule, log_key, .. } = match args.settings.chosen() {
        Ok(chosen) => chosen,
        Err(error) => {
            // A file that is not there is a wrong call; what stands in one is what is examined.
            return match error.downcast_ref::<ConfigError>() {
                Some(wrong) if !matches!(wrong, ConfigError::Read { .. }) => {
                    let advice = "mend the setting; nothing else was looked at (docs/operating.md, Configuration)";
                    Ok(vec![Finding::problem("configuration", wrong.to_string(), advice)])
                }
                _ => Err(error),
            };
        }
    };
    let log_last_seen = keyring::last_checkpoint(&log_key);
    let examined = Examined { config, origins, seals, schedule, log_key, log_last_seen, online: args.online };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    Ok(runtime.block_on(symseal_server::examine(examined)))
}

/// A line for each finding, and beneath it what to do. What the parser of a configuration says has more lines, which show the place: marked, so that no
/// text within can look like what to do.
fn print(findings: &[Finding]) {
    let width = findings.iter().map(|finding| finding.id.len()).max().unwrap_or(0);
    for Finding { id, standing, found, advice } in findings {
        let mut lines = found.lines();
        outln!("{:7}  {id:width$}  {}", standing.word(), visible(lines.next().unwrap_or_default()));
        for line in lines {
            outln!("{:7}  {:width$}  : {}", "", "", visible(line));
        }
        if let Some(advice) = advice {
            outln!("{:7}  {:width$}  -> {}", "", "", visible(advice));
        }
    }
    let count = |standing| findings.iter().filter(|finding| finding.standing == standing).count();
    outln!(
        "{} ok, {} warnings, {} problems, {} skipped",
        count(Standing::Ok),
        count(Standing::Warning),
        count(Standing::Problem),
        count(Standing::Skipped)
    );
}
