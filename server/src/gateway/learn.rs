//! Which sealed bundle covers what is asked for.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Gate;
use super::catalogue::Offer;
use super::http_upstream::HttpUpstream;
use super::known::KnownBundle;
use super::refusals::{Code, Refusal};
use crate::debug_files::{FileKind, Key};
use crate::seals::{SealedBy, Verdict};

/// What is known of a key.
pub(super) enum Covered<T> {
    /// Sealed bundles have it, the better ones first.
    Sealed(Vec<(T, SealedBy)>),
    /// It is refused; somebody may have offered it.
    Refused(Vec<Refusal>),
    /// It cannot be told at this moment; what is refused all the same.
    Unknown(String, Vec<Refusal>),
}

impl Gate {
    /// The sealed files that answer for the first of `keys` that has one.
    pub(super) async fn files(
        self: &Arc<Self>,
        keys: &[Key],
        kind: FileKind,
        is_called: impl Fn(&str) -> bool + Send + Sync,
    ) -> Covered<Offer> {
        let find = |gate: &Self| {
            let offers = keys.iter().map(|key| gate.catalogue.offers(key, kind));
            let mut named =
                offers.map(|offers| offers.into_iter().filter(|offer| is_called(&offer.name)).collect::<Vec<_>>());
            named.find(|offers| !offers.is_empty()).unwrap_or_default()
        };
        self.covered(keys, find, |offer| Arc::clone(&offer.bundle)).await
    }

    /// The sealed bundles that have a module.
    pub(super) async fn bundles(self: &Arc<Self>, key: &Key) -> Covered<Arc<KnownBundle>> {
        self.covered(std::slice::from_ref(key), |gate| gate.catalogue.bundles_of(key), Arc::clone).await
    }

    async fn covered<T: Send + 'static>(
        self: &Arc<Self>,
        keys: &[Key],
        find: impl Fn(&Self) -> Vec<T> + Send + Sync,
        bundle: fn(&T) -> Arc<KnownBundle>,
    ) -> Covered<T> {
        let first = self.judged(find(self), bundle).await;
        if matches!(first, Covered::Sealed(_) | Covered::Unknown(..)) {
            return first;
        }
        let unasked = self.learn(keys).await;
        let second = self.judged(find(self), bundle).await;
        match (second, unasked) {
            // One of those that could not be asked may have it.
            (Covered::Refused(refusals), Some(why)) => Covered::Unknown(why, refusals),
            (Covered::Refused(refusals), None) if refusals.is_empty() => {
                let reason = "no bundle that an upstream offers has it, so nothing proves what its bytes must be";
                Covered::Refused(vec![Refusal::new(Code::NotCovered, reason)])
            }
            (second, _) => second,
        }
    }

    async fn judged<T: Send + 'static>(
        self: &Arc<Self>,
        found: Vec<T>,
        bundle: fn(&T) -> Arc<KnownBundle>,
    ) -> Covered<T> {
        let bundles: Vec<Arc<KnownBundle>> = found.iter().map(bundle).collect();
        let gate = Arc::clone(self);
        let judge =
            move || bundles.iter().map(|bundle| (gate.judge.judge(bundle), Arc::clone(bundle))).collect::<Vec<_>>();
        let verdicts = match self.pool.run(judge).await {
            Ok(verdicts) => verdicts,
            Err(error) => return Covered::Unknown(error.to_string(), Vec::new()),
        };
        let (mut sealed, mut refused) = (Vec::new(), Vec::new());
        for (found, (verdict, bundle)) in found.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Sealed(by) => sealed.push((found, by)),
                verdict => refused.extend(Refusal::of_verdict(&bundle, &verdict)),
            }
        }
        if sealed.is_empty() { Covered::Refused(refused) } else { Covered::Sealed(sealed) }
    }

    /// Asks every upstream for bundles that have the keys; why one could not be asked.
    async fn learn(self: &Arc<Self>, keys: &[Key]) -> Option<String> {
        // Futures of named functions: closures over borrowed items would not be `Send` for every caller.
        let registries: Vec<_> = self.registries.iter().map(|registry| registry.refresh(self)).collect();
        let servers: Vec<_> = self.servers.iter().map(|server| self.learn_from(server, keys)).collect();
        let (registries, servers) = tokio::join!(join_all(registries), join_all(servers));
        registries.into_iter().chain(servers).find_map(Result::err)
    }

    async fn learn_from(self: &Arc<Self>, server: &Arc<HttpUpstream>, keys: &[Key]) -> Result<(), String> {
        for key in keys {
            server.learn(self, key).await?;
        }
        Ok(())
    }

    /// Reads the lists of all registries.
    pub(super) async fn read_registries(self: &Arc<Self>) {
        let readings: Vec<_> = self.registries.iter().map(|registry| registry.refresh(self)).collect();
        join_all(readings).await;
    }
}
