//! Which store a database records: a random id is kept in both, so that a server with the database of another store, or with a mistyped bucket, does not
//! strike out the record of what is not there.
//!
//! The first start makes it. Where only the store has one, the database takes it over: it is new, or from before there were ids. Where only the database
//! has one it may be another store's, so the store takes it over only if nothing is recorded.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::blobs::write_file_atomically;
use crate::objects::Objects;
use crate::store::{Store, StoreError};
use crate::{Config, ServerError};

/// Where a store has its id.
const FILE: &str = "store.id";

/// The longest id, in bytes.
const LIMIT: u64 = 100;

/// The name of the id among the secrets of the database.
const NAME: &str = "store-id";

/// Sees to it that a database and the bucket, or the directory, belong together. The database in a directory goes with it.
///
/// # Errors
/// They do not, or something cannot be read or written.
pub(crate) async fn check(
    config: &Config,
    store: &Arc<dyn Store>,
    objects: Option<&Arc<Objects>>,
) -> Result<(), ServerError> {
    if config.database.is_none() && objects.is_none() {
        return Ok(());
    }
    let place = objects.map_or_else(|| Place::Directory(config.data.join(FILE)), |it| Place::Bucket(Arc::clone(it)));
    let shown = match &place {
        Place::Bucket(objects) => objects.url().to_string(),
        Place::Directory(_) => config.data.display().to_string(),
    };
    let database = config.database.as_ref().map_or_else(|| config.data.display().to_string(), ToString::to_string);
    let failed = |error: StoreError| ServerError::Database { place: database.clone(), detail: error.to_string() };
    let (found, place) = place.read().await.map_err(|error| place_failed(config, &error))?;
    let recorded = store.known_secret(NAME).await.map_err(failed)?;
    let recorded = recorded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let id = match (&found, recorded) {
        (Some(found), Some(recorded)) if *found == recorded => return Ok(()),
        (None, Some(recorded)) if is_new(store.as_ref()).await.map_err(failed)? => recorded,
        (_, Some(recorded)) => {
            let found = found.unwrap_or_else(|| "which has none yet".to_owned());
            return Err(ServerError::OtherStore { database, recorded, place: shown, found });
        }
        (found, None) => found.clone().unwrap_or_else(|| Uuid::new_v4().to_string()),
    };
    // The store first: whoever breaks off between the two goes on from there.
    let place = match found {
        Some(_) => place,
        None => place.write(id.clone()).await.map_err(|error| place_failed(config, &error))?,
    };
    let kept = store.secret(NAME, id.as_bytes()).await.map_err(failed)?;
    let kept = String::from_utf8_lossy(&kept).into_owned();
    if kept != id {
        // Another server made one at the same time.
        place.write(kept).await.map_err(|error| place_failed(config, &error))?;
    }
    Ok(())
}

/// Whether a database records nothing that could be lost.
async fn is_new(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.bundles().await?.is_empty() && store.traces().await?.is_empty() && store.tokens().await?.is_empty())
}

fn place_failed(config: &Config, error: &io::Error) -> ServerError {
    match &config.blobs {
        Some(blobs) => ServerError::Objects { place: blobs.url.to_string(), problem: error.to_string() },
        None => {
            let source = io::Error::new(error.kind(), error.to_string());
            ServerError::Data { path: config.data.join(FILE), source }
        }
    }
}

/// Where the id of a store is.
enum Place {
    Bucket(Arc<Objects>),
    Directory(PathBuf),
}

impl Place {
    async fn read(self) -> io::Result<(Option<String>, Self)> {
        self.run(|place| {
            let bytes = match place {
                Self::Bucket(objects) => objects.get(FILE, LIMIT)?,
                Self::Directory(file) => match std::fs::read(file) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    read => Some(read?),
                },
            };
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
        })
        .await
    }

    async fn write(self, id: String) -> io::Result<Self> {
        let write = move |place: &Self| match place {
            Self::Bucket(objects) => objects.put(FILE, format!("{id}\n").into_bytes()),
            Self::Directory(file) => write_file_atomically(file, format!("{id}\n").as_bytes()),
        };
        Ok(self.run(write).await?.1)
    }

    async fn run<T: Send + 'static>(
        self,
        act: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<(T, Self)> {
        let act = move || act(&self).map(|done| (done, self));
        tokio::task::spawn_blocking(act).await.map_err(io::Error::other)?
    }
}
