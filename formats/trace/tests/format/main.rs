//! The format as strangers meet it: whole streams in, whole streams out.

mod bounds;
mod example;
mod properties;
mod schema;
mod streams;
