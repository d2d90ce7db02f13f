//! The distribution server: OCI registry, debuginfod, traces.
