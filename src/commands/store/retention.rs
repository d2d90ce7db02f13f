//! `symseal store retention`: which bundles go by the rules, and why.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;
use symseal_server::{Decision, ServerError};

use super::{Place, runtime};
use crate::commands::serve::load_config;
use crate::exit::Answer;
use crate::output::outln;

/// Print which bundles the rules of retention would take, and why.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  symseal store retention --config /etc/symseal/server.toml
  symseal store retention --config /etc/symseal/server.toml --json
  symseal store retention --config /etc/symseal/server.toml --apply      # the server is stopped

Without --apply nothing is changed, and servers may run. The rules stand in the configuration ([[retention]]); a server that runs applies them by the
hour. With a trust directory (seals.trust) a bundle whose seals do not hold has no channel.")]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Judge seals by this trust directory; default: what the configuration says.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// Delete them, in a stopped server's store. Their bytes go with the next collection (symseal store gc).
    #[arg(long)]
    apply: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let config = if args.apply { args.place.config_to_write()? } else { args.place.config()? };
    if config.retention.is_empty() {
        bail!(
            "the configuration has no rules of retention: expected [[retention]] with prefix, and keep_last or keep_younger"
        );
    }
    let trust = match &args.trust {
        Some(trust) => Some(trust.clone()),
        None => load_config(args.place.config.as_deref())?.seals.trust,
    };
    let runtime = runtime()?;
    let (shared, judged_by) = (config.clone(), trust.clone());
    let plan = move || symseal_server::plan_retention(&shared, judged_by.as_deref());
    let plan = runtime.block_on(async { tokio::task::spawn_blocking(plan).await })??;
    let mut gone = None;
    if args.apply {
        let retained = match runtime.block_on(symseal_server::retain_stopped(&config, trust.as_deref())) {
            Err(ServerError::Locked { path }) => bail!(
                "{}: a server uses this data directory, and applies the rules of its configuration by itself: stop it first, or leave --apply out",
                path.display()
            ),
            retained => retained?,
        };
        gone = Some(retained.gone);
    }
    if args.json {
        let bundles: Vec<_> = plan.iter().map(in_json).collect();
        outln!("{}", json!({ "bundles": bundles, "gone": gone }));
        return Ok(Answer::Yes);
    }
    for it in &plan {
        let what = if it.goes { "goes " } else { "stays" };
        outln!("{what}  {}  {}@{}  {}: {}", it.repository, it.name, it.version, it.digest, it.reason);
    }
    let goes = plan.iter().filter(|it| it.goes).count();
    match gone {
        Some(gone) => outln!("{gone} of {} bundles are gone", plan.len()),
        None => outln!("{goes} of {} bundles would go; nothing was changed", plan.len()),
    }
    Ok(Answer::Yes)
}

fn in_json(it: &Decision) -> serde_json::Value {
    json!({
        "repository": it.repository,
        "digest": it.digest,
        "name": it.name,
        "version": it.version,
        "channels": it.channels,
        "age_seconds": it.age.as_secs(),
        "goes": it.goes,
        "reason": it.reason,
    })
}
