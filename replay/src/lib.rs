//! Replay, acceptance gates, evidence.
