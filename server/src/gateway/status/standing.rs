//! How the gateway stands, as values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Serialize, Serializer};
use symseal_bundle::Digest;

use crate::gateway::home::Home;
use crate::gateway::known::KnownBundle;
use crate::gateway::refusals::Refusal;
use crate::gateway::registry::UpstreamStanding;
use crate::gateway::{Gate, lock};
use crate::pool::JobLost;
use crate::seals::Verdict;

/// Bundles that are shown.
const BUNDLES: usize = 200;

/// What both forms of the page say.
#[derive(Serialize)]
pub(super) struct Standing {
    pub(super) version: &'static str,
    /// Since the start.
    pub(super) seconds: u64,
    /// Files that were given.
    pub(super) served: u64,
    /// Files that are being brought.
    pub(super) on_the_way: usize,
    pub(super) trust: Trusted,
    pub(super) upstreams: Vec<UpstreamStanding>,
    /// The first of those that are known.
    pub(super) bundles: Vec<BundleStanding>,
    pub(super) bundles_known: usize,
    /// Offered, and not what a trusted seal says; the newest first.
    pub(super) refused: Vec<Refusal>,
    /// What nobody offers; the newest first.
    pub(super) missed: Vec<Refusal>,
}

/// Whom the gateway trusts.
#[derive(Serialize)]
pub(super) struct Trusted {
    pub(super) policy_version: Option<u64>,
    /// Why nobody is trusted.
    pub(super) problem: Option<String>,
    /// What ends soon, or has.
    pub(super) warnings: Vec<String>,
}

/// A bundle that somebody offers.
#[derive(Serialize)]
pub(super) struct BundleStanding {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) digest: Digest,
    pub(super) modules: u64,
    /// Who offers it.
    pub(super) homes: Vec<String>,
    #[serde(serialize_with = "as_json")]
    pub(super) verification: Verdict,
    /// Whether what it holds is given to debuggers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    counts: bool,
}

fn as_json<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    verdict.to_json().serialize(serializer)
}

impl BundleStanding {
    fn of(bundle: &KnownBundle, verification: Verdict) -> Self {
        Self {
            name: bundle.index.name.clone(),
            version: bundle.index.version.clone(),
            digest: bundle.digest,
            modules: bundle.index.statistics.modules,
            homes: bundle.homes().iter().map(Home::name).collect(),
            counts: matches!(verification, Verdict::Sealed(_)),
            verification,
        }
    }
}

impl Gate {
    pub(super) async fn standing(self: &Arc<Self>) -> Result<Standing, JobLost> {
        let gate = Arc::clone(self);
        let judged = self.pool.run(move || {
            let all = gate.catalogue.bundles();
            let shown = all.iter().take(BUNDLES).map(|bundle| BundleStanding::of(bundle, gate.judge.judge(bundle)));
            (shown.collect::<Vec<_>>(), all.len(), gate.judge.standing())
        });
        let (bundles, bundles_known, trust) = judged.await?;
        let (policy_version, problem) = match trust.policy {
            Ok(version) => (Some(version), None),
            Err(why) => (None, Some(why)),
        };
        let registries = self.registries.iter().map(|registry| registry.standing());
        Ok(Standing {
            version: env!("CARGO_PKG_VERSION"),
            seconds: self.began.elapsed().as_secs(),
            served: self.served.load(Ordering::Relaxed),
            on_the_way: lock(&self.flights).len(),
            trust: Trusted { policy_version, problem, warnings: trust.warnings },
            upstreams: registries.chain(self.servers.iter().map(|server| server.standing())).collect(),
            bundles,
            bundles_known,
            refused: self.refusals.alarming(),
            missed: self.refusals.misses(),
        })
    }
}
