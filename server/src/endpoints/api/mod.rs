//! Our own API under `/api/v1/`.

pub(crate) mod alerts;
pub(crate) mod bundles;
mod error;
pub(crate) mod traces;

pub(crate) use error::ApiError;
