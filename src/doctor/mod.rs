//! What is wrong with this machine for those who read symbols: servers, the local store, what captures need, what gdb runs by itself.
//!
//! Nothing is made or changed, and no server is asked unless that is wanted.

mod capture;
mod debugger;
mod servers;
mod store;

use std::path::Path;

use symseal_server::Finding;

/// Looks at everything. `store`: the local bundle store.
pub(crate) fn examine(store: &Path, is_online: bool) -> anyhow::Result<Vec<Finding>> {
    let mut findings = servers::look(is_online)?;
    findings.extend(store::look(store));
    findings.extend(capture::look(&capture::Machine::this()));
    let configuration = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    findings.push(debugger::look(std::env::home_dir().as_deref(), configuration.as_deref().map(Path::new)));
    Ok(findings)
}
