//! A bundle that a repository has is taken into the catalogue, with its seals.

use std::sync::Arc;
use std::time::Duration;

use symseal_bundle::Digest;
use symseal_registry::{RegistryError, Repository};

use super::Gate;
use super::catalogue::Listed;
use super::home::{Home, Trouble};

/// How long a bundle's seals at one home are believed to be all.
const SEALS_FRESH: Duration = Duration::from_secs(5);

/// Why a bundle was not heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unheard {
    /// Its own bytes, which are those of its digest, are no bundle: that stays so.
    Never(String),
    /// It cannot be had at this moment.
    Now(Trouble),
}

impl Unheard {
    /// What is to be said.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Never(text) => text,
            Self::Now(trouble) => trouble.text(),
        }
    }
}

impl From<RegistryError> for Unheard {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Manifest { .. } => Self::Never(error.to_string()),
            error => Self::Now(error.into()),
        }
    }
}

impl From<Trouble> for Unheard {
    fn from(trouble: Trouble) -> Self {
        Self::Now(trouble)
    }
}

impl Gate {
    /// Takes the bundle with this digest out of a repository into the catalogue; of one that is known, the seals that came since.
    pub(super) async fn hear(
        &self,
        (name, repository): (Arc<str>, Arc<Repository>),
        digest: &Digest,
    ) -> Result<(), Unheard> {
        let home = Home::Registry { name, repository: Arc::clone(&repository) };
        if let Some(known) = self.catalogue.known_at(digest, &home) {
            if !known.was_asked(&home, SEALS_FRESH) {
                let (seals, unread) = seals_of(&repository, digest).await?;
                self.catalogue.take_seals(&known, &home, seals);
                known.note_unread(&home, unread);
            }
            return Ok(());
        }
        // An index may be large; few are in memory as bytes.
        let _place = self.hearing.acquire().await.map_err(|error| Trouble::Down(error.to_string()))?;
        let indexes = repository.bundle_indexes_of(digest).await?;
        let (seals, unread) = seals_of(&repository, digest).await?;
        let digest = *digest;
        let read = move || Listed::read(digest, indexes.subjects(), &indexes.symbol_index);
        let listed = self.making.run(read).await.map_err(|error| Trouble::Down(error.to_string()))?;
        let listed = listed.map_err(|error| Unheard::Never(format!("{digest}: {error}")))?;
        self.catalogue.add(listed, &home, seals).note_unread(&home, unread);
        Ok(())
    }
}

/// The seals that a repository has for a bundle, and why these may not be all. `None` where there is junk in their place, which says nothing of the bundle.
async fn seals_of(repository: &Repository, digest: &Digest) -> Result<(Option<Vec<Vec<u8>>>, Option<String>), Trouble> {
    match repository.seals_looked_at(digest).await {
        Ok(found) => {
            let why = || format!("{digest} has more seals than are looked at ({})", found.list.len());
            let unread = found.is_cut.then(why);
            Ok((Some(found.list), unread))
        }
        Err(error) => match Trouble::from(error) {
            Trouble::Down(why) => Err(Trouble::Down(why)),
            trouble => {
                tracing::info!(bundle = %digest, why = trouble.text(), "what refers to a bundle cannot be read");
                Ok((None, Some(format!("what refers to {digest} cannot be read: {}", trouble.text()))))
            }
        },
    }
}
