//! Traces from live processes.
