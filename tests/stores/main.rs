//! Servers on PostgreSQL and an S3-compatible object store, both real, with the programs that people use: curl, oras, skopeo,
//! debuginfod-find, nginx.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../access/curl.rs"]
mod curl;
#[path = "../../server/tests/http/support/nginx.rs"]
#[allow(dead_code, reason = "logs are for the tests of the configuration itself")]
mod nginx;
#[path = "../../server/tests/http/support/postgres.rs"]
mod postgres;
#[path = "../program/mod.rs"]
mod program;

mod collected;
mod commands;
mod doctor;
mod faults;
mod gate;
mod looked_after;
mod moved;
mod object_store;
mod objects;
mod other_store;
#[cfg(target_os = "linux")]
mod owner;
mod put_back;
mod replicas;
mod scene;
mod starting;
mod stopping;
mod tls;
mod trees;
mod untold;
mod uploads;
