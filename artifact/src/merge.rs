//! Debug information and symbols to records.
