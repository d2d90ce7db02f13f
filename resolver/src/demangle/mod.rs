//! Demangling: the last thing done to a name, only on request, and bounded.
//!
//! The raw symbol is always kept beside the result, so nothing is lost when a name is cut or no
//! demangler knows it.

mod dlang;
mod ocaml;
mod special;

use serde::{Deserialize, Serialize};

/// The longest demangled name that is given out, in bytes. C++ and Rust names can grow exponentially
/// out of a short symbol; what is longer is cut and marked.
pub const MAX_DEMANGLED_BYTES: usize = 64 * 1024;

/// The longest symbol that a demangler is shown, in bytes. Real ones stay well below it.
const MAX_SYMBOL_BYTES: usize = 64 * 1024;

/// What demangling did to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demangling {
    /// The name is the demangled symbol, whole.
    Done,
    /// The name is the beginning of the demangled symbol: it was longer than [`MAX_DEMANGLED_BYTES`].
    Truncated,
    /// The symbol is mangled, as it seems, but no demangler could read it: the name is raw.
    Failed,
}

/// The readable form of `symbol`; `None` where it is not mangled.
///
/// ```
/// use symseal_resolver::{demangle, Demangling};
///
/// assert_eq!(demangle("_ZN3foo3barEv"), Some(("foo::bar()".to_string(), Demangling::Done)));
/// assert_eq!(demangle("main"), None);
/// ```
pub fn demangle(symbol: &str) -> Option<(String, Demangling)> {
    let scheme = scheme_of(symbol)?;
    if symbol.len() > MAX_SYMBOL_BYTES {
        return Some((cut(symbol).to_string(), Demangling::Failed));
    }
    let readable = match scheme {
        Scheme::Symbolic => {
            let name = Some(symbolic_demangle::demangle(symbol).into_owned()).filter(|name| name != symbol);
            name.map(special::in_usual_words)
        }
        Scheme::D => of_part(symbol, dlang::demangle),
        // C has functions that begin alike; what is not OCaml's is no failure.
        Scheme::OCaml => Some(ocaml::demangle(symbol)?),
    };
    let Some(readable) = readable else { return Some((symbol.to_owned(), Demangling::Failed)) };
    if readable.len() > MAX_DEMANGLED_BYTES {
        return Some((cut(&readable).to_string(), Demangling::Truncated));
    }
    Some((readable, Demangling::Done))
}

/// The name of a symbol that a compiler split off or cloned (`.part.0`, `.cold`), for a scheme that has no dots: what stands behind them is told as
/// the demangler of C++ tells it.
fn of_part(symbol: &str, demangle: impl Fn(&str) -> Option<String>) -> Option<String> {
    match symbol.find('.').map(|dot| symbol.split_at(dot)) {
        Some((whole, part)) => demangle(whole).map(|name| format!("{name} [clone {part}]")),
        None => demangle(symbol),
    }
}

/// Who reads a symbol.
enum Scheme {
    /// C++ (Itanium and Microsoft), Rust, and Swift with the feature `swift`.
    Symbolic,
    D,
    OCaml,
}

/// The mangling scheme whose prefix a symbol has: Itanium C++ and Rust legacy (`_Z`), Rust v0 (`_R`), MSVC (`?`), each with the further underscores that some
/// platforms put before; D (`_D` and a name), OCaml (`caml` and a module), Swift (`$s`, `_$s`).
fn scheme_of(symbol: &str) -> Option<Scheme> {
    let bare = symbol.trim_start_matches('_');
    let underscored = bare.len() < symbol.len();
    if symbol.starts_with('?') || symbol.starts_with("@?") || (underscored && bare.starts_with(['Z', 'R'])) {
        return Some(Scheme::Symbolic);
    }
    if cfg!(feature = "swift") && ["$s", "$S", "$e"].iter().any(|prefix| bare.starts_with(prefix)) {
        return Some(Scheme::Symbolic);
    }
    if symbol == "_Dmain"
        || symbol.strip_prefix("_D").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
    {
        return Some(Scheme::D);
    }
    symbol.starts_with("caml").then_some(Scheme::OCaml)
}

/// The longest beginning of `text` within the bound that ends between characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_DEMANGLED_BYTES);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(symbol: &str, expected: Option<&str>) {
        assert_eq!(demangle(symbol).map(|(name, _)| name).as_deref(), expected, "{symbol}");
    }

    #[test]
    fn every_scheme_is_read_and_plain_names_are_left_alone() {
        check(
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            Some("std::vector<int, std::allocator<int> >::push_back(int const&)"),
        );
        check("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", Some("core::fmt::Formatter::pad"));
        check("_RNvCs1234_7mycrate3foo", Some("mycrate::foo"));
        check("?foo@bar@@YAXH@Z", Some("void bar::foo(int)"));
        check("_D3std5stdio4File5closeMFNeZv", Some("std.stdio.File.close"));
        check("_D3std5stdio4File5closeMFNeZv.part.0", Some("std.stdio.File.close [clone .part.0]"));
        check("camlStdlib__List__map_154", Some("Stdlib.List.map_154"));
        for plain in ["", "main", "qsort", "Zebra", "Rust", "__libc_start_main", "_DYNAMIC", "caml_main", "camlCase"] {
            check(plain, None);
        }
    }

    #[cfg(feature = "swift")]
    #[test]
    fn swift_is_read_where_its_library_is_built_in() {
        // Of test/Demangle/Inputs/manglings.txt in Swift's own tests.
        check(
            "$s8mangling12GenericUnionO3FooyACyxGSicAEmlF",
            Some(
                "mangling.GenericUnion.Foo<A>(mangling.GenericUnion<A>.Type) -> (Swift.Int) -> mangling.GenericUnion<A>",
            ),
        );
        check("_$s8mangling3barSiyKF", Some("mangling.bar() throws -> Swift.Int"));
    }

    #[test]
    fn what_no_demangler_reads_stays_raw_and_is_marked() {
        assert_eq!(demangle("_Zgarbage"), Some(("_Zgarbage".to_string(), Demangling::Failed)));
        let long = format!("_ZN{}", "1a".repeat(100_000));
        let (name, mark) = demangle(&long).unwrap();
        assert_eq!((name.len(), mark), (MAX_DEMANGLED_BYTES, Demangling::Failed));
    }

    #[test]
    fn a_name_that_would_explode_ends_bounded() {
        // Each further Rust v0 tuple refers twice to the one before it: 2^n leaves.
        let mut rust = String::from("_RMC0T");
        for _ in 0..60 {
            rust.push_str("TB0_B0_E");
        }
        // The same idea in Itanium mangling, by substitutions.
        let mut cpp = String::from("_Z1fI1aS_E");
        for level in 0..40_u32 {
            cpp.push_str(&format!("1bIS{0}_S{0}_E", char::from_digit(level % 36, 36).unwrap().to_ascii_uppercase()));
        }
        for symbol in [rust, cpp, "_Z".repeat(30_000), format!("_Z1f{}i", "P".repeat(60_000))] {
            let (name, _) = demangle(&symbol).unwrap();
            assert!(name.len() <= MAX_DEMANGLED_BYTES);
        }
    }

    #[test]
    fn a_long_rust_name_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let text = "ä".repeat(MAX_DEMANGLED_BYTES);
        assert_eq!(cut(&text).len(), MAX_DEMANGLED_BYTES);
        assert_eq!(cut(&format!("a{text}")).len(), MAX_DEMANGLED_BYTES - 1);
    }
}
