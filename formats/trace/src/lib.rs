//! Trace events: JSON Lines, plain, gzip or zstd.
