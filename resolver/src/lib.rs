//! Address to symbol through the strict chain.
