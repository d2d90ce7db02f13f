//! The log's faces: C2SP tiles at `/checkpoint` and `/tile/…`, and below `/api/v2/` what clients of a Rekor v2
//! ask for.

pub(crate) mod entries;
mod error;
pub(crate) mod files;

pub(crate) use error::LogApiError;
