//! Any text behind the prefixes of D and OCaml, whose demanglers are our own: the name is bounded, and reading ends.

use symseal_resolver::{MAX_DEMANGLED_BYTES, demangle};

pub(super) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for prefix in ["_D", "caml"] {
        let symbol = format!("{prefix}{text}");
        let bounded = demangle(&symbol).is_none_or(|(name, _)| name.len() <= MAX_DEMANGLED_BYTES.max(symbol.len()));
        assert!(bounded);
    }
}
