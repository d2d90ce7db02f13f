//! The database: a record of bundles, traces, frames and replays beside the files that are the truth.
//!
//! [`Store`] says what is recorded, in rows that no backend's types leak into. A backend is one file: its SQL, its form
//! of ids, numbers and times, and its migrations. No GET of a blob, a manifest or a debug id comes here.

mod address;
mod error;
mod left_behind;
mod look;
mod postgres;
mod postgres_access;
mod postgres_alerts;
mod postgres_audit;
mod postgres_changes;
mod postgres_condemned;
mod postgres_traces;
mod postgres_uploads;
mod rows;
mod schema;
mod sqlite;
mod sqlite_alerts;
mod sqlite_audit;
mod sqlite_tokens;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ring::hmac;
use symseal_seal::UtcSeconds;
use uuid::Uuid;

use crate::tokens::TokenInfo;

pub use address::{DatabaseUrl, ParseDatabaseUrlError};
pub(crate) use error::StoreError;
pub(crate) use left_behind::{LeftBehind, left_behind};
pub(crate) use look::{Looked, NotLooked, look_at};
use postgres::PostgresStore;
pub(crate) use postgres_changes::ChangeSignal;
pub(crate) use postgres_condemned::CollectorTurn;
pub(crate) use rows::{
    AlertRow, AuditRow, BundleRow, ChangeRow, Changes, Condemned, FrameRow, Intent, Of, ReplayRow, SealRow, TraceRow,
    TraceRows,
};
pub(crate) use schema::Schema;
use sqlite::SqliteStore;

/// File name of the embedded database in the data directory.
const DATABASE_FILE: &str = "symseal.sqlite";

/// What a database must do for the server.
pub(crate) trait Store: std::fmt::Debug + Send + Sync {
    /// Records a bundle; one that is recorded already keeps its seal.
    fn put_bundle<'a>(&'a self, bundle: &'a BundleRow) -> Answer<'a, ()>;

    /// Records the seal of a bundle, or that it has none; nothing happens when the bundle is not recorded.
    fn put_seal<'a>(&'a self, sha256: &'a str, seal: Option<&'a SealRow>) -> Answer<'a, ()>;

    /// A bundle's row.
    fn bundle<'a>(&'a self, sha256: &'a str) -> Answer<'a, Option<BundleRow>>;

    /// The digests of all bundles, with those of their seals' blobs.
    fn bundles(&self) -> Answer<'_, Vec<(String, Option<String>)>>;

    /// The digest of the blob of a bundle's recorded seal, if it has one; `None` where the bundle is not recorded.
    fn recorded_seal<'a>(&'a self, sha256: &'a str) -> Answer<'a, Option<Option<String>>>;

    /// Forgets a bundle.
    fn remove_bundle<'a>(&'a self, sha256: &'a str) -> Answer<'a, ()>;

    /// Records a trace with its frames and replays, in place of what was recorded under its id; all or nothing.
    fn put_trace<'a>(&'a self, rows: &'a TraceRows) -> Answer<'a, ()>;

    /// The ids of all traces with the digests of their events.
    fn traces(&self) -> Answer<'_, Vec<(Uuid, String)>>;

    /// Forgets a trace with its frames and replays.
    fn remove_trace(&self, id: Uuid) -> Answer<'_, ()>;

    /// Records a new token under the hash of its secret.
    fn put_token<'a>(&'a self, hash: &'a str, token: &'a TokenInfo) -> Answer<'a, ()>;

    /// The token with this hash, whether it still holds or not.
    fn token<'a>(&'a self, hash: &'a str) -> Answer<'a, Option<TokenInfo>>;

    /// All tokens, the oldest first.
    fn tokens(&self) -> Answer<'_, Vec<TokenInfo>>;

    /// Revokes the token with this id; whether there is one. A token that is revoked keeps its time.
    fn revoke_token<'a>(&'a self, id: &'a str, at: UtcSeconds) -> Answer<'a, bool>;

    /// Gives the token with this id another end; whether there is one that is not revoked.
    fn renew_token<'a>(&'a self, id: &'a str, expires: UtcSeconds) -> Answer<'a, bool>;

    /// The secret of this name, where there is one.
    fn known_secret<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Vec<u8>>>;

    /// The secret of this name: `fresh` where there was none, which is then kept.
    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Answer<'a, Vec<u8>>;

    /// Adds a line to the audit log.
    fn put_audit<'a>(&'a self, entry: &'a AuditRow) -> Answer<'a, ()>;

    /// The lines of the audit log after a number, at most `limit` of them, the oldest first, with their numbers.
    fn audit(&self, after: u64, limit: u32) -> Answer<'_, Vec<(u64, AuditRow)>>;

    /// Adds an alert, unless one of its id is there, and forgets the oldest beyond so many.
    fn put_alert<'a>(&'a self, alert: &'a AlertRow, keep: u32) -> Answer<'a, ()>;

    /// The newest alerts, at most `limit`, the newest first.
    fn alerts(&self, limit: u32) -> Answer<'_, Vec<AlertRow>>;

    /// Says what is about to change, before it does. A database of one server forgets it.
    fn intend<'a>(&'a self, _intent: &'a Intent) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The intents of this age that nobody has settled, at most `limit` of them, the oldest first.
    fn intents(&self, _age: Duration, _limit: u32) -> Answer<'_, Vec<Intent>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Tells the servers of this database that facts have changed, and settles intents with that, both or neither. A database of one server forgets it.
    fn put_changes<'a>(&'a self, _changes: &'a [ChangeRow], _settled: &'a [Uuid]) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The changes after a number, at most `limit` of them, in order. Who has seen a number has seen all below it, but for those that were
    /// pruned.
    fn changes(&self, _after: u64, _limit: u32) -> Answer<'_, Changes> {
        Box::pin(async { Ok(Changes::default()) })
    }

    /// Deletes the changes that are older than this; how many.
    fn prune_changes(&self, _keep: Duration) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    /// The number of the last change, pruned or not.
    fn last_change(&self) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    /// Completes when a change may have been added; `None` where no other server adds any.
    fn change_signal(&self) -> Answer<'_, Option<ChangeSignal>> {
        Box::pin(async { Ok(None) })
    }

    /// The turn to collect, of one server at a time; `None` while another has it, or where no other shares the database.
    fn collecting(&self) -> Answer<'_, Option<CollectorTurn>> {
        Box::pin(async { Ok(None) })
    }

    /// Condemns what is not condemned yet.
    fn condemn<'a>(&'a self, _rows: &'a [Condemned]) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Strikes out everything that nobody has taken.
    fn reprieve_all(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Strikes out what a repository (`""`: none) comes to rely on, bytes included; `false` while some of it is taken.
    fn reprieve<'a>(&'a self, _repository: &'a str, _digests: &'a [String]) -> Answer<'a, bool> {
        Box::pin(async { Ok(true) })
    }

    /// Takes at most `limit` rows that were condemned this long ago, the oldest first.
    fn take(&self, _by: Uuid, _of: Of, _age: Duration, _limit: u32) -> Answer<'_, Vec<Condemned>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Takes these, condemned or not; `false` where another has taken one of them.
    fn take_now<'a>(&'a self, _by: Uuid, _rows: &'a [Condemned]) -> Answer<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Says that the one who took so many rows still works on them; `false` where they were taken over.
    fn hold_taken(&self, _by: Uuid, _rows: u64) -> Answer<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Takes over what others have taken, and said nothing of for so long.
    fn take_over(&self, _by: Uuid, _silence: Duration) -> Answer<'_, Vec<Condemned>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Forgets what one has taken: it is gone, or stays.
    fn let_go(&self, _by: Uuid) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Ends an upload session, on whichever server it is asked for.
    fn end_upload(&self, _session: Uuid) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whether an upload session has ended.
    fn upload_has_ended(&self, _session: Uuid) -> Answer<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Forgets the upload sessions that ended longer ago than this.
    fn forget_ended_uploads(&self, _age: Duration) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Brings what was written to the one file that people copy, where there is one and others beside it.
    fn settle(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whether the database answers.
    fn ping(&self) -> Answer<'_, ()>;
}

/// The key of this name for HMAC-SHA-256, which all servers of a database have: made by the first of them.
///
/// # Errors
/// The database fails, or the system has no random bytes.
pub(crate) async fn hmac_key(store: &dyn Store, name: &str) -> Result<hmac::Key, StoreError> {
    let mut fresh = [0_u8; 32];
    getrandom::fill(&mut fresh).map_err(|error| StoreError::Failed(format!("no random bytes: {error}")))?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &store.secret(name, &fresh).await?))
}

/// An answer that takes its time.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A database that cannot be opened or brought up to date.
#[derive(Debug)]
pub(crate) struct NotOpened {
    /// The file, or the URL without its password.
    pub(crate) place: String,
    /// What the database said.
    pub(crate) detail: String,
}

/// What is wrong, and what to do where the database's certificate is not believed.
fn told(error: &sqlx::Error) -> String {
    let text = error.to_string();
    if !text.contains("certificate") {
        return text;
    }
    format!(
        "{text}: name the PEM file of the CA that signed its certificate in the URL (sslmode=verify-full&sslrootcert=FILE)"
    )
}

/// Opens the database: that of the URL, or the file in the data directory.
pub(crate) async fn open(data: &Path, url: Option<&DatabaseUrl>) -> Result<Arc<dyn Store>, NotOpened> {
    match url {
        Some(url) => match PostgresStore::open(url).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(NotOpened { place: url.to_string(), detail: told(&error) }),
        },
        None => {
            let file = data.join(DATABASE_FILE);
            match SqliteStore::open(&file).await {
                Ok(store) => Ok(Arc::new(store)),
                Err(error) => Err(NotOpened { place: file.display().to_string(), detail: error.to_string() }),
            }
        }
    }
}
