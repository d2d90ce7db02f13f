//! symseal: the command line.
fn main() {}
