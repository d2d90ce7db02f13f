//! What every endpoint works with.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, StatusCode, header};

use crate::access::Access;
use crate::alerts::Alerts;
use crate::blobs::{BlobDirectory, Uploads};
use crate::config::RetentionConfig;
use crate::crowd::Crowd;
use crate::debug_files::{DebugFiles, Key};
use crate::encoded::Encoded;
use crate::file_cache::FileCache;
use crate::foreign::OwnNames;
use crate::http::Memory;
use crate::limits::Limits;
use crate::log::Log;
use crate::made_tables::Tableless;
use crate::metrics::Metrics;
use crate::notes::Notes;
use crate::pool::Pool;
use crate::quotas::Quotas;
use crate::releases::Releases;
use crate::repositories::Repositories;
use crate::seals::Seals;
use crate::sections::Sections;
use crate::shared::{Follower, Parts};
use crate::sources::{SourceRoot, SourceTables};
use crate::store::Store;
use crate::takedown::TakenDown;
use crate::traces::Traces;
use crate::trees::Trees;
use crate::upstream::Upstreams;
use crate::wanted::WantedIds;

/// The server's state. Nothing in it is per request.
#[derive(Debug)]
pub(crate) struct App {
    /// Where blocking work runs.
    pub(crate) pool: Pool,
    /// Where addresses are named.
    pub(crate) naming: Pool,
    /// Where pages are made, and searches.
    pub(crate) looking: Pool,
    /// Where files are made that are kept.
    pub(crate) making: Pool,
    /// What requests and answers may take that are wholly in it.
    pub(crate) memory: Memory,
    /// What can be had again.
    pub(crate) cache: Arc<FileCache>,
    /// Compressed forms, in the cache.
    pub(crate) encoded: Arc<Encoded>,
    /// What bundles record.
    pub(crate) releases: Releases,
    /// Which sources are where.
    pub(crate) source_tables: SourceTables,
    /// Directories of sources.
    pub(crate) source_roots: OnceLock<Vec<SourceRoot>>,
    /// Directories whose files are served where they lie.
    pub(crate) trees: OnceLock<Arc<Trees>>,
    /// Other debuginfod servers.
    pub(crate) upstreams: OnceLock<Arc<Upstreams>>,
    /// Other symbol servers.
    pub(crate) symbol_upstreams: OnceLock<Arc<Upstreams>>,
    /// Files that no symbol table can be made of.
    pub(crate) tableless: Tableless,
    /// The bytes.
    pub(crate) blobs: Arc<BlobDirectory>,
    /// Bytes on their way in.
    pub(crate) uploads: Arc<Uploads>,
    /// What the registry offers.
    pub(crate) repositories: Arc<Repositories>,
    /// What debuggers find.
    pub(crate) debug_files: Arc<DebugFiles>,
    /// Whether seals hold.
    pub(crate) seals: Seals,
    /// What an operator should look at.
    pub(crate) alerts: Alerts,
    /// Where sections are in files that were asked for before.
    pub(crate) sections: Arc<Sections>,
    /// Ids that are asked for in vain.
    pub(crate) wanted: WantedIds,
    /// Which traces are here.
    pub(crate) traces: Arc<Traces>,
    /// The transparency log, if this server keeps one.
    pub(crate) log: Option<Log>,
    /// The database.
    pub(crate) store: Arc<dyn Store>,
    /// What other servers did, where there are others.
    pub(crate) follower: Option<Follower>,
    /// Unfinished uploads, where their requests may come to other servers.
    pub(crate) parts: Option<Arc<Parts>>,
    /// Counts.
    pub(crate) metrics: Arc<Metrics>,
    /// Who may do what.
    pub(crate) access: Access,
    /// How much one caller may ask for.
    pub(crate) limits: Limits,
    /// The connections, once there are any.
    pub(crate) crowd: OnceLock<Arc<Crowd>>,
    /// What nobody is given.
    pub(crate) taken_down: Arc<TakenDown>,
    /// Held while something is taken down, or shown again.
    pub(crate) takedowns: tokio::sync::Mutex<()>,
    /// What stays whatever the rules of retention say.
    pub(crate) pins: Arc<Notes>,
    /// Which bundles go after a time.
    pub(crate) retention: Vec<RetentionConfig>,
    /// How much repositories may hold.
    pub(crate) quotas: Arc<Quotas>,
    /// Where clients reach the server, if the operator said so.
    pub(crate) public_url: Option<String>,
    /// What foreign pages are told by.
    pub(crate) own_names: OwnNames,
    /// Whether pages of other origins may read what debuginfod clients may.
    pub(crate) cors: bool,
    /// Whether connections are encrypted.
    pub(crate) is_encrypted: bool,
    /// Whether the server was asked to stop.
    pub(crate) stopping: AtomicBool,
}

impl App {
    /// Whether nobody finds anything for a key here.
    pub(crate) fn is_missing(&self, key: &Key) -> bool {
        let is_here = |key: &Key| self.debug_files.has(key) || self.trees.get().is_some_and(|trees| trees.has(key));
        !key.spellings().any(|key| is_here(&key))
    }

    /// Counts an id that a client asked for and nobody has. What the client may not read is no such id.
    pub(crate) fn asked_for(&self, key: &Key, name: Option<&str>, answer: StatusCode) {
        if answer == StatusCode::NOT_FOUND && self.is_missing(key) {
            self.wanted.count(key, name);
        }
    }

    /// Takes over what other servers acknowledged before this call, in repositories and for debuggers.
    ///
    /// # Errors
    /// Nothing can be learned of them now.
    pub(crate) async fn catch_up(self: &Arc<Self>) -> io::Result<()> {
        self.catch_up_repositories().await?;
        match &self.follower {
            Some(follower) => follower.tell(self).await,
            None => Ok(()),
        }
    }

    /// [`Self::catch_up`] for those who need no ids: what repositories offer is known sooner than what is in their files.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn catch_up_repositories(self: &Arc<Self>) -> io::Result<()> {
        match &self.follower {
            Some(follower) => follower.catch_up(self).await,
            None => Ok(()),
        }
    }

    /// [`Self::catch_up_repositories`] for a tag, which may lead elsewhere since. Where nothing can be learned what is known is answered: whoever pulls by
    /// tag is better off with the last one that was heard of than with none.
    pub(crate) async fn catch_up_tags(self: &Arc<Self>) {
        if let Some(follower) = &self.follower {
            follower.catch_up_if_it_can(self).await;
        }
    }

    /// How many changes of other servers were taken over.
    pub(crate) fn learned(&self) -> u64 {
        self.follower.as_ref().map_or(0, Follower::learned)
    }

    /// The server's URL, without a slash at its end: what the operator said, else the host that the client asked.
    pub(crate) fn own_url(&self, request: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let is_sound = |host: &&str| {
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
        };
        let host = request.get(header::HOST).and_then(|host| host.to_str().ok()).filter(is_sound);
        format!("{scheme}://{}", host.unwrap_or("localhost"))
    }
}
