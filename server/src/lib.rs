//! The distribution server: OCI registry, debuginfod, traces.
//!
//! One process serves what a release pipeline pushes and what debuggers and profilers ask for:
//!
//! * the OCI distribution API under `/v2/`, which any registry client speaks;
//! * the debuginfod API under `/buildid/`, which gdb, elfutils and LLVM speak;
//! * our own API under `/api/v1/`: traces and bundles;
//! * a transparency log, if it is given one: `/checkpoint` and `/tile/` for everybody, `POST /api/v2/log/entries` for
//!   holders of a token;
//! * pages for people: `/`, `/search`, `/releases`, `/bundles/`, `/wanted`;
//! * `/metrics`.
//!
//! ```no_run
//! # async fn example() -> Result<(), symseal_server::ServerError> {
//! use symseal_server::{Config, Server};
//!
//! let server = Server::bind(Config::new("data", ([127, 0, 0, 1], 0).into())).await?;
//! println!("listening on {}", server.local_addr());
//! server.run(std::future::pending::<()>()).await
//! # }
//! ```
//!
//! What stands on disk is the truth: blobs under `blobs/`, and what refers to them under `repositories/`. The memory
//! index is rebuilt from it at every start, and the database is a record beside it. A GET of a blob, a manifest or a
//! debug id reads memory and one file, and never the database.
//!
//! Who may do what is decided in one module, `access`; [`AccessConfig`] says whether callers show tokens. It talks to
//! other servers only where it is told to ([`Origins`]). [`Gateway`] is another program of the same paths: it keeps nothing and believes nobody but a
//! trust directory.
//!
//! What is public and asynchronous gives boxed futures: the code of an `async fn` is compiled where it is awaited, so that each program and
//! each test would compile the whole server again.

mod access;
mod alerts;
mod app;
mod arrival;
mod blobs;
mod breakpad;
mod bundled_tables;
mod causes;
mod check;
mod clock;
mod collector;
mod config;
mod crowd;
#[cfg(unix)]
mod data_owner;
mod debug_files;
mod doctor;
mod encoded;
mod endpoints;
mod error;
mod file_cache;
mod file_stamp;
mod foreign;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod http;
pub mod ids;
mod ingest;
mod json_object;
mod limits;
mod log;
mod made_tables;
mod made_whole;
mod metrics;
mod notes;
mod numbered;
mod objects;
mod opened;
mod origins;
mod pool;
mod publish;
mod quotas;
mod rebuild;
mod releases;
mod repositories;
mod restore;
mod retention;
mod routes;
mod scrub;
mod seals;
mod search;
mod sections;
mod serve;
mod shared;
mod side_by_side;
mod sources;
mod starting;
mod store;
mod store_id;
mod takedown;
mod tls;
pub mod tokens;
mod traces;
mod trees;
mod unbundled;
mod upstream;
mod visible;
mod wanted;
mod withheld;

pub use access::{OidcIssuer, OidcRule};
pub use check::{check, warnings as check_warnings};
pub use collector::{Collected, Collector, Schedule, collect_beside, collect_stopped};
pub use config::{
    AccessConfig, BLOB_CACHE_BYTES, BLOB_SILENCE, BlobsConfig, Config, ConfigError, ConfigFile, LOG_FOLDER,
    LimitsConfig, LogConfig, LogSection, OriginsSection, QuotaConfig, RetentionConfig, STOP_WITHIN, SealsSection,
    TlsConfig, parse_address, parse_bytes, parse_duration,
};
#[cfg(unix)]
pub use data_owner::data_owner;
pub use doctor::{Examined, Finding, Standing, ask_server, examine};
pub use error::ServerError;
pub use gateway::{Gateway, GatewayConfig};
pub use notes::{Note, Pins};
pub use objects::{BlobsUrl, ParseBlobsUrlError};
pub use opened::make_data;
pub use origins::{CACHE_BYTES, Origins, Patience, SILENCE, TREE_INTERVAL};
pub use quotas::{QuotaUse, RepositoryUse, StoreUse, usage};
pub use rebuild::{Rebuilt, rebuild};
pub use retention::{Decision, Retained, Retention, plan_retention, retain_stopped};
pub use scrub::{Damaged, Missing, Scrubbed, scrub};
pub use seals::{NoRepository, SealRules};
pub use serve::Server;
pub use store::{DatabaseUrl, ParseDatabaseUrlError};
pub use takedown::{TakenDownNow, Tombstones};
pub use visible::visible;
