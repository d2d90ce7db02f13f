//! The format as strangers meet it: whole streams in, whole streams out.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking.

mod bounds;
mod example;
mod properties;
mod schema;
mod streams;
