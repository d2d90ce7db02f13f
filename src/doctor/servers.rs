//! The servers that are set for debuggers, and whether they answer.

use anyhow::{Context as _, Result};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use symseal_resolver::online::{FromEnvironment, OnlineConfig};
use symseal_server::{Finding, ask_server};

use crate::places;

/// What is set, and what the servers answer.
pub(super) fn look(is_online: bool) -> Result<Vec<Finding>> {
    let cache = places::cache_dir().unwrap_or_else(|_| std::env::temp_dir()).join("symbols");
    let FromEnvironment { config, passed_over } = match OnlineConfig::from_environment(cache) {
        Ok(found) => found,
        Err(error) => {
            let advice = "mend the variable, or take it out of the environment";
            return Ok(vec![Finding::problem("servers.settings", error.to_string(), advice)]);
        }
    };
    let mut findings: Vec<Finding> = passed_over
        .into_iter()
        .map(|what| Finding::warning("servers.settings", what, "mend the entry, or take it out of the list"))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok("servers.settings", said(&config)));
    }
    let servers: Vec<_> = (config.debuginfod.iter().map(|url| ("servers.debuginfod", url, true)))
        .chain(config.symbol_servers.iter().map(|url| ("servers.symbols", url, false)))
        .collect();
    if servers.is_empty() {
        return Ok(findings);
    }
    if !is_online {
        findings.push(Finding::skipped(
            "servers.debuginfod",
            format!("{} servers are not asked without --online", servers.len()),
        ));
        return Ok(findings);
    }
    let headers = headers(&config.headers);
    // Headers are for debuginfod servers alone, as with libdebuginfod.
    let asked = servers
        .iter()
        .map(|(id, url, is_debuginfod)| ask_server(id, url, *is_debuginfod, is_debuginfod.then(|| headers.clone())));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime could be started")?;
    findings.extend(runtime.block_on(futures_util::future::join_all(asked)));
    Ok(findings)
}

fn said(config: &OnlineConfig) -> String {
    match (config.debuginfod.len(), config.symbol_servers.len()) {
        (0, 0) => "no servers are set (DEBUGINFOD_URLS, _NT_SYMBOL_PATH): names come from bundles".to_owned(),
        (debuginfod, symbols) => {
            format!("debuginfod servers in DEBUGINFOD_URLS: {debuginfod}; symbol servers in _NT_SYMBOL_PATH: {symbols}")
        }
    }
}

/// The lines that are headers: what the others are is told where they are used.
fn headers(lines: &[String]) -> HeaderMap {
    let parsed = lines.iter().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let mut value = HeaderValue::try_from(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name.trim()).ok()?, value))
    });
    parsed.collect()
}
