//! Code that several functions share, as the names at its address tell.
//!
//! Compilers and linkers keep one of several functions with equal code (GCC's `-fipa-icf`, which `-O2` has; `--icf` of gold and
//! lld) and give its address to the symbols of all. An alias is told apart from that: it is a second name of one function.

/// Whether two of the names are linkage names of different functions.
///
/// A mangled name says which function it is of. Constructors and destructors have several, which differ in one digit:
/// `C1` (whole objects), `C2` (bases), `D0` to `D2` (Itanium C++ ABI, 5.1.4.3).
pub(crate) fn has_two_functions<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut mangled = names.filter(|name| is_mangled(name)).map(base);
    let Some(first) = mangled.next() else { return false };
    mangled.any(|other| !are_variants(first, other))
}

/// Whether a symbol can be that of the function that the source calls `name`, without its scopes.
pub(crate) fn spells(symbol: &str, name: &str) -> bool {
    let symbol = base(symbol);
    // Arguments of templates are not spelled out as the source has them.
    let name = if name.starts_with("operator") { name } else { name.split('<').next().unwrap_or(name) };
    if is_mangled(symbol) { symbol.contains(&format!("{}{name}", name.len())) } else { symbol == name }
}

/// Itanium C++ and both of Rust's.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// A symbol without what a compiler put behind it: `.lto_priv.0`, `.constprop.0`, `.localalias`.
pub(crate) fn base(symbol: &str) -> &str {
    // A name may begin with a point (`.plt`).
    let end = symbol.char_indices().skip(1).find(|(_, letter)| *letter == '.').map(|(at, _)| at);
    end.and_then(|end| symbol.get(..end)).unwrap_or(symbol)
}

/// Whether two mangled names can be of one function: they differ alone in the variants of constructors and destructors (`C1`,
/// `D2`; `CI1` of inherited ones), or as GCC's names of two versions of its ABI do, the older of which is an alias: in how
/// lists of arguments of any length are written (`I`, `J`) and in the numbers of what is repeated (`S3_`).
fn are_variants(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // The two letters before.
    let mut before = [0, 0];
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| {
            let is_variant = match before {
                [_, b'C' | b'D' | b'S'] | [b'C', b'I'] => a.is_ascii_digit() && b.is_ascii_digit(),
                _ => matches!((a, b), (b'I', b'J') | (b'J', b'I')),
            };
            before = [before[1], *a];
            a == b || is_variant
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: bool) {
        assert_eq!(has_two_functions(names.iter().copied()), expected, "{names:?}");
    }

    #[test]
    fn mangled_names_of_different_functions_share_code_and_variants_of_one_do_not() {
        check(&["_ZL5is_oki", "_ZL16compute_checksumi"], true);
        check(&["_ZN1AC1Ev", "_ZN1AC2Ev"], false);
        check(&["_ZN4llvm4PassD2Ev", "_ZN4llvm4PassD1Ev", "_ZN4llvm10ModulePassD1Ev"], true);
        check(&["_Z3fooi", "_Z3fooi.localalias"], false);
        check(&["_Z3fooi", "_Z3fooj"], true);
        check(&["_ZN1AC2IJiEEE", "_ZN1AC1IIiEEE"], false);
        check(&["_ZN1BCI21AEv", "_ZN1BCI11AEv"], false);
        check(&["_ZSt10__exchangeIPcDnET_RS1_OT0_", "_ZSt10__exchangeIPcDnET_RS2_OT0_"], false);
        check(&["malloc", "__libc_malloc"], false);
        check(&["_Z3foov", "foo"], false);
        check(&[], false);
    }

    #[test]
    fn a_symbol_spells_its_functions_name() {
        assert!(spells("_ZL16compute_checksumi", "compute_checksum"));
        assert!(spells("compute_checksum.constprop.0", "compute_checksum"));
        assert!(spells("_ZL5twiceIiET_S0_", "twice<int>"));
        assert!(!spells("_ZL5is_oki", "compute_checksum") && !spells("is_ok", "compute_checksum"));
        assert!(!spells("idna_cleanup.lto_priv.0", "_PyErr_ClearExcState"));
        assert_eq!((base(".plt"), base("a.b.c"), base("a")), (".plt", "a", "a"));
    }
}
