//! Clients of repositories: one for each, with the credentials that were found when it was made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symseal_registry::{Options, Redirections, Reference, RegistryAuth, Repository, Tls, credentials};

use super::home::Trouble;
use super::lock;
use crate::pool::Pool;

/// Clients that are kept; beyond that all are made anew.
const KEPT: usize = 256;

/// A repository, and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The repository; which of its contents is meant does not count.
    pub(super) reference: Reference,
    /// Whether by TLS.
    pub(super) tls: Tls,
    /// What lets us in; else credentials are looked for, as `docker login` left them.
    pub(super) token: Option<String>,
}

impl Place {
    /// `host[:port]/repository`.
    pub(super) fn name(&self) -> Arc<str> {
        format!("{}/{}", self.reference.registry(), self.reference.repository()).into()
    }

    fn key(&self) -> Key {
        (self.name(), self.tls, self.token.clone())
    }

    /// Looks for credentials and makes a client. Blocks: a credential helper is a program.
    fn open(&self) -> Result<Repository, Trouble> {
        let auth = match (&self.token, self.tls) {
            (Some(token), _) => RegistryAuth::Bearer(token.clone()),
            // What is secret is not sent in the clear.
            (None, Tls::Never) => RegistryAuth::Anonymous,
            (None, _) => credentials::find(&self.reference).map_err(|error| Trouble::Down(error.to_string()))?.auth,
        };
        let options = Options {
            auth,
            tries: 2,
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(20),
            redirections: Redirections::Named,
            tls: self.tls,
            ..Options::default()
        };
        Ok(Repository::open(&self.reference, &options)?)
    }
}

/// The clients.
#[derive(Default)]
pub(super) struct Clients(Mutex<HashMap<Key, Arc<Repository>>>);

/// Two upstreams may have one repository, each with a way of its own to speak to it.
type Key = (Arc<str>, Tls, Option<String>);

impl Clients {
    /// The client of a repository.
    ///
    /// # Errors
    /// [`Trouble`] where its credentials cannot be read.
    pub(super) async fn of(&self, pool: &Pool, place: &Place) -> Result<Arc<Repository>, Trouble> {
        let key = place.key();
        if let Some(known) = lock(&self.0).get(&key) {
            return Ok(Arc::clone(known));
        }
        let place = place.clone();
        let opened = pool.run(move || place.open()).await.map_err(|error| Trouble::Down(error.to_string()))??;
        let opened = Arc::new(opened);
        let mut known = lock(&self.0);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, Arc::clone(&opened));
        Ok(opened)
    }

    /// Forgets the client of a repository that could not be asked: its credentials may have been renewed.
    pub(super) fn forget(&self, place: &Place) {
        lock(&self.0).remove(&place.key());
    }
}
