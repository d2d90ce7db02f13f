//! Talking to OCI registries: push, resume, pull, referrers.
