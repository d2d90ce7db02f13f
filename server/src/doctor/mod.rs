//! What is wrong with an installation, found out from beside: nothing is made, changed, locked or waited for, and a server may be running.
//!
//! Each file looks at one part and gives [`Finding`]s; none of them can fail, as what keeps one from looking is a finding too.

mod certificate;
mod clocks;
mod configuration;
#[cfg(unix)]
mod contents;
mod data;
mod database;
mod files;
mod finding;
mod key_file;
mod listen;
mod lock;
mod log;
mod objects;
mod process;
mod room;
mod trust;
mod upstreams;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::Config;
use crate::collector::Schedule;
use crate::origins::Origins;
use crate::seals::SealRules;

pub(crate) use certificate::why_not_valid;
pub use finding::{Finding, Standing};
pub(crate) use process::{open_file_count, open_file_limits};
pub use upstreams::ask_server;

/// A server as it is configured.
#[derive(Debug, Clone)]
pub struct Examined {
    /// Its configuration.
    pub config: Config,
    /// Where it answers from beside its bundles.
    pub origins: Origins,
    /// Whose seals count.
    pub seals: Option<SealRules>,
    /// When what nothing names is collected.
    pub schedule: Option<Schedule>,
    /// The key of the log in its data directory.
    pub log_key: PathBuf,
    /// Where that log's last checkpoint is remembered.
    pub log_last_seen: PathBuf,
    /// Whether other debuginfod and symbol servers are asked. The database and the object store always are.
    pub online: bool,
}

/// Looks at everything, in the order in which a server starts.
pub fn examine(examined: Examined) -> BoxFuture<'static, Vec<Finding>> {
    Box::pin(examined_all(Arc::new(examined)))
}

async fn examined_all(examined: Arc<Examined>) -> Vec<Finding> {
    let mut findings = blocking(&examined, |examined| {
        let mut findings = vec![configuration::look(examined)];
        findings.extend(certificate::look(examined.config.tls.as_ref()));
        findings.extend(trust::look(examined.seals.as_ref()));
        let holder = lock::holder(&examined.config.data);
        findings.push(listen::look(examined.config.listen, holder.process()));
        findings.extend(data::look(&examined.config, holder.process()));
        findings.extend(room::look(&examined.config));
        findings.push(lock::look(&examined.config.data, &holder));
        findings.push(files::look(holder.process()));
        findings
    })
    .await;
    findings.extend(database::look(&examined.config).await);
    findings.extend(objects::look(&examined.config).await);
    findings.extend(blocking(&examined, log::look).await);
    findings.extend(upstreams::look(&examined.origins, examined.online).await);
    findings
}

/// Looks on a thread that may wait.
async fn blocking(
    examined: &Arc<Examined>,
    look: impl FnOnce(&Examined) -> Vec<Finding> + Send + 'static,
) -> Vec<Finding> {
    let examined = Arc::clone(examined);
    let looked = tokio::task::spawn_blocking(move || look(&examined)).await;
    // It can end early by a panic alone, which the runtime has told.
    looked.unwrap_or_else(|error| {
        vec![Finding::problem(
            "configuration",
            format!("this part could not be looked at: {error}"),
            "tell the authors of symseal",
        )]
    })
}
