//! One file an endpoint; `crate::routes` is the table that leads to them.

pub(crate) mod api;
pub(crate) mod debuginfod;
pub(crate) mod health;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod oci;
pub(crate) mod pages;
mod plain;
pub(crate) mod symbolicate;
pub(crate) mod symbols;
mod tree_file;
mod trouble;
mod upstream_file;
mod whole_file;

pub(crate) use plain::{not_found, plain, refused_method};
pub(crate) use tree_file::{tree_copy, tree_file, tree_part};
pub(crate) use trouble::{is_of_database, told_of_database, told_of_storage};
pub(crate) use upstream_file::{unavailable, unmade, upstream_file};
pub(crate) use whole_file::{first_there, whole_file};

/// `Cache-Control` of what is named by its content: it never changes.
pub(crate) const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// `Cache-Control` of what is asked for by a debug id, a path or a name: a better file may come for it, and the one that answers may be taken
/// down, so a cache asks again after an hour. By the `ETag` that costs it no bytes where nothing has changed.
pub(crate) const BY_ID: &str = "public, max-age=3600";

/// Seconds after which a client may try again what could not be done because a database or an object store was away.
pub(crate) const RETRY_AFTER: &str = "5";
