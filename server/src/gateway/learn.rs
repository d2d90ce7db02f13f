//! Which sealed bundle covers what is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use symseal_bundle::Digest;

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

/// Where the bundles of these files are known to be.
pub(super) fn homes(offers: &[(Offer, SealedBy)]) -> HashSet<(Digest, String)> {
    offers.iter().flat_map(|(offer, _)| places(&offer.bundle)).collect()
}

fn places(bundle: &KnownBundle) -> impl Iterator<Item = (Digest, String)> + use<> {
    let digest = bundle.digest;
    bundle.homes().into_iter().map(move |home| (digest, home.name()))
}

impl Gate {
    /// The sealed files that answer for the first of `keys` that has one.
    pub(super) async fn files(
        self: &Arc<Self>,
        keys: &[Key],
        kind: FileKind,
        is_called: impl Fn(&str) -> bool + Send + Sync,
    ) -> Covered<Offer> {
        let find = |gate: &Self| gate.offers(keys, kind, &is_called);
        self.covered(keys, find, |offer| Arc::clone(&offer.bundle)).await
    }

    /// Asks every upstream, and gives the sealed files that have another home now than the `known` ones; why one could not be asked.
    pub(super) async fn files_elsewhere(
        self: &Arc<Self>,
        keys: &[Key],
        kind: FileKind,
        is_called: impl Fn(&str) -> bool + Send + Sync,
        known: &HashSet<(Digest, String)>,
    ) -> (Vec<(Offer, SealedBy)>, Option<String>) {
        let unasked = self.learn(keys).await;
        let mut found = self.offers(keys, kind, is_called);
        found.retain(|offer| places(&offer.bundle).any(|place| !known.contains(&place)));
        match self.judged(found, |offer| Arc::clone(&offer.bundle)).await {
            Covered::Sealed(offers) => (offers, unasked),
            Covered::Refused(_) => (Vec::new(), unasked),
            Covered::Unknown(why, _) => (Vec::new(), Some(why)),
        }
    }

    /// What is known to answer for the first of `keys` for which there is anything.
    fn offers(&self, keys: &[Key], kind: FileKind, is_called: impl Fn(&str) -> bool) -> Vec<Offer> {
        let offers = keys.iter().map(|key| self.catalogue.offers(key, kind));
        let mut named =
            offers.map(|offers| offers.into_iter().filter(|offer| is_called(&offer.name)).collect::<Vec<_>>());
        named.find(|offers| !offers.is_empty()).unwrap_or_default()
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
        let found = find(self);
        let unread = found.iter().find_map(|found| bundle(found).unread());
        let second = self.judged(found, bundle).await;
        match (second, unasked.or(unread)) {
            // One of those that could not be asked may have it, or a seal among those that were not looked at hold.
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

    /// Whether a bundle is known, and its seals hold.
    pub(super) async fn is_sealed(self: &Arc<Self>, digest: &Digest) -> bool {
        let Some(bundle) = self.catalogue.known(digest) else { return false };
        self.verdict_now(&bundle).await.is_ok_and(|verdict| verdict.is_sealed())
    }

    /// What comes out for a bundle now; why that cannot be told.
    pub(super) async fn verdict_now(self: &Arc<Self>, bundle: &Arc<KnownBundle>) -> Result<Verdict, String> {
        let (gate, bundle) = (Arc::clone(self), Arc::clone(bundle));
        self.pool.run(move || gate.judge.judge(&bundle)).await.map_err(|error| error.to_string())
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
