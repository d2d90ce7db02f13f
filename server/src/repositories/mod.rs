//! Repositories: which blobs, manifests and tags a name has.
//!
//! The folder on disk is the truth, and a file appearing in it is the moment something becomes visible. Memory holds the
//! same, so that a GET asks neither the disk nor the database what there is.

mod changes;
mod collected;
mod content;
mod deleted;
mod folder;
mod hidden;
mod learned;
mod left;
mod links;
mod manifest;
mod name;
mod prefix;
mod registry;
mod repository;
#[cfg(test)]
mod scene;
mod unlinked;

pub(crate) use changes::{PutManifest, Removal};
pub(crate) use collected::Ceased;
pub(crate) use folder::{FOLDER, FactKey, digest_of, fact_files};
pub(crate) use manifest::{MANIFEST_LIMIT, Manifest, Reference, annotations_of};
pub(crate) use name::{ParseNameError, RepositoryName, Tag};
pub use prefix::{ParsePrefixError, Prefix};
pub(crate) use registry::Repositories;
pub(crate) use repository::{Held, Repository};
pub(crate) use unlinked::LinkedAgain;
