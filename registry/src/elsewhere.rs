//! Blobs that a push does not have in its layout, because they are in a registry already: found at the destination, mounted from another
//! repository of the same registry, or, only between registries, copied.

use std::collections::BTreeMap;

use oci_client::RegistryOperation;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Method, StatusCode};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};
use tokio::sync::Mutex;

use crate::options::Progress;
use crate::session::{Expect, Session};
use crate::transfer::pull_blob;
use crate::upload::{exists, push_blob};
use crate::{Options, Reference, RegistryError};

const MOUNTED: Expect =
    Expect { text: "201 or 202 (mounted, or to be sent)", statuses: &[StatusCode::CREATED, StatusCode::ACCEPTED] };
const CANCELLED: Expect = Expect {
    text: "204 (the upload is cancelled)",
    statuses: &[StatusCode::NO_CONTENT, StatusCode::ACCEPTED, StatusCode::OK],
};

/// Where blobs are that a layout lacks.
#[derive(Debug, Clone, Default)]
pub struct Elsewhere {
    /// Each with the options for its registry.
    places: Vec<(Reference, Options)>,
    /// Ordinals in `places` by blob.
    blobs: BTreeMap<Digest, Vec<usize>>,
    /// Whether a referrer that is not whole at its place is left out.
    pub(crate) leaves_out: bool,
}

/// What became of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The registry had it.
    Existed,
    /// It was sent from the layout.
    Sent,
    /// It was mounted from another repository: no byte of it moved.
    Mounted,
    /// It was fetched from another registry and sent.
    Copied,
}

impl Elsewhere {
    /// Says that the referrers come from where anybody may add some: one whose blobs are not there, or not what they should be, is left out, and
    /// [`Progress::PassedOver`] says why.
    pub fn leave_out_broken_referrers(&mut self) {
        self.leaves_out = true;
    }

    /// Says that `reference`'s repository has these blobs. `options` hold the credentials for its registry.
    pub fn add(&mut self, reference: &Reference, options: &Options, blobs: impl IntoIterator<Item = Digest>) {
        let same = |(known, _): &(Reference, Options)| is_same_repository(known, reference);
        let place = self.places.iter().position(same).unwrap_or_else(|| {
            self.places.push((reference.clone(), options.clone()));
            self.places.len() - 1
        });
        for blob in blobs {
            let places = self.blobs.entry(blob).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }

    /// Repositories of the destination's registry that blobs may be mounted from.
    pub(crate) fn mountable(&self, to: &Reference) -> Vec<String> {
        let here = self.places.iter().filter(|(place, _)| place.registry() == to.registry());
        here.map(|(place, _)| place.repository().to_owned()).filter(|name| name != to.repository()).collect()
    }

    fn places_of(&self, blob: &Digest) -> impl Iterator<Item = &(Reference, Options)> {
        self.blobs.get(blob).into_iter().flatten().filter_map(|ordinal| self.places.get(*ordinal))
    }
}

fn is_same_repository(one: &Reference, other: &Reference) -> bool {
    one.registry() == other.registry() && one.repository() == other.repository()
}

/// Brings the blobs of one push to their place.
pub(crate) struct Carrier<'a> {
    pub(crate) session: &'a Session,
    pub(crate) layout: &'a LayoutDir,
    pub(crate) elsewhere: &'a Elsewhere,
    /// Sessions with other registries, made when they are needed.
    others: Mutex<BTreeMap<String, std::sync::Arc<Session>>>,
}

impl<'a> Carrier<'a> {
    pub(crate) fn new(session: &'a Session, layout: &'a LayoutDir, elsewhere: &'a Elsewhere) -> Self {
        Self { session, layout, elsewhere, others: Mutex::default() }
    }

    /// Brings one blob to the destination.
    pub(crate) async fn bring(&self, blob: &Descriptor) -> Result<Outcome, RegistryError> {
        let digest = blob.digest;
        if self.layout.has(&digest) || self.elsewhere.places_of(&digest).next().is_none() {
            let sent = push_blob(self.session, self.layout, &digest).await?;
            return Ok(if sent { Outcome::Sent } else { Outcome::Existed });
        }
        let done = |existed| self.session.options.tell(Progress::Done { digest, bytes: blob.size, existed });
        if exists(self.session, &digest).await? {
            done(true);
            return Ok(Outcome::Existed);
        }
        for (place, _) in self.elsewhere.places_of(&digest) {
            if place.registry() == self.session.reference().registry() && self.mount(&digest, place).await? {
                done(true);
                return Ok(Outcome::Mounted);
            }
        }
        self.copy(blob).await?;
        Ok(Outcome::Copied)
    }

    /// Asks the registry to take the blob from another of its repositories; whether it did.
    async fn mount(&self, digest: &Digest, from: &Reference) -> Result<bool, RegistryError> {
        if is_same_repository(from, self.session.reference()) {
            return Ok(false);
        }
        let mut url = self.session.url("blobs/uploads/")?;
        url.query_pairs_mut().append_pair("mount", &digest.to_string()).append_pair("from", from.repository());
        let answer =
            self.session.send(Method::POST, &url, MOUNTED, |request| request.header(CONTENT_LENGTH, 0)).await?;
        if answer.status() == StatusCode::CREATED {
            return Ok(true);
        }
        // It began an upload instead, which is not used: the bytes are not here yet. That it stays open is only untidy.
        if let Ok(location) = self.session.location(&answer) {
            let _ = self.session.send_once(Method::DELETE, &location, CANCELLED, |request| request).await;
        }
        Ok(false)
    }

    /// Fetches the blob into the layout, sends it, and forgets it again: memory and disk do not grow with the bundle.
    async fn copy(&self, blob: &Descriptor) -> Result<(), RegistryError> {
        let mut last = None;
        for (place, options) in self.elsewhere.places_of(&blob.digest) {
            let other = self.other(place, options).await?;
            match pull_blob(&other, self.layout, blob).await {
                Ok(()) => {
                    let sent = push_blob(self.session, self.layout, &blob.digest).await;
                    let path = self.layout.blob_path(&blob.digest);
                    // A file that stays is only untidy: the layout is a temporary one.
                    let _ = tokio::fs::remove_file(path).await;
                    return sent.map(drop);
                }
                Err(error @ RegistryError::NotFound { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        let reference = self.session.reference().with_digest(blob.digest).to_string();
        Err(last.unwrap_or(RegistryError::NotFound { reference, what: "blob" }))
    }

    async fn other(&self, place: &Reference, options: &Options) -> Result<std::sync::Arc<Session>, RegistryError> {
        let mut others = self.others.lock().await;
        let key = format!("{}/{}", place.registry(), place.repository());
        if let Some(session) = others.get(&key) {
            return Ok(std::sync::Arc::clone(session));
        }
        let session = std::sync::Arc::new(Session::new(place, RegistryOperation::Pull, options)?);
        others.insert(key, std::sync::Arc::clone(&session));
        Ok(session)
    }
}
