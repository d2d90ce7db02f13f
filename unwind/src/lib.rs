//! Registers, stack bytes and tables to frames.
