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
mod upstream_file;
mod whole_file;

pub(crate) use plain::{not_found, plain, refused_method};
pub(crate) use tree_file::{tree_copy, tree_file, tree_part};
pub(crate) use upstream_file::{unavailable, upstream_file};
pub(crate) use whole_file::whole_file;

/// `Cache-Control` of what is named by its content: it never changes.
pub(crate) const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Seconds after which a client may try again what could not be done because a database or an object store was away.
pub(crate) const RETRY_AFTER: &str = "5";
