//! Our own API under `/api/v1/`.

pub(crate) mod alerts;
pub(crate) mod audit;
mod body;
pub(crate) mod bundles;
mod error;
pub(crate) mod openapi;
pub(crate) mod resolve;
pub(crate) mod search;
pub(crate) mod symbols;
pub(crate) mod token;
pub(crate) mod traces;

pub(crate) use error::ApiError;
