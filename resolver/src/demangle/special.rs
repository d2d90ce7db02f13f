//! Thunks and tables of C++ in the words that other demanglers use: our demangler has its own ones for them.

/// The name of a special symbol (Itanium C++ ABI, 5.1.4.2) as c++filt and LLVM write it; other names as they are.
pub(super) fn in_usual_words(name: String) -> String {
    let inside = |before: &str| name.strip_prefix(before)?.strip_suffix(")}");
    if let Some(class) = inside("{vtable(") {
        return format!("vtable for {class}");
    }
    if let Some(class) = inside("{vtt(") {
        return format!("VTT for {class}");
    }
    let thunk = inside("{virtual override thunk(").and_then(|inside| {
        let (kind, rest) = behind_offset(inside)?;
        Some(match behind_offset(rest) {
            // It adjusts the result as well.
            Some((_, function)) => format!("covariant return thunk to {function}"),
            None => format!("{kind} to {rest}"),
        })
    });
    thunk.unwrap_or(name)
}

/// What a thunk with this offset is called, and what stands behind the offset.
fn behind_offset(text: &str) -> Option<(&'static str, &str)> {
    let kinds = [("{offset(", "non-virtual thunk"), ("{virtual offset(", "virtual thunk")];
    kinds.into_iter().find_map(|(before, kind)| {
        let (_, rest) = text.strip_prefix(before)?.split_once(")}, ")?;
        Some((kind, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::super::demangle;

    /// The right-hand sides are those of c++filt 2.40.
    #[test]
    fn thunks_and_tables_are_called_as_other_tools_call_them() {
        for (symbol, expected) in [
            ("_ZThn16_N1C1bEv", "non-virtual thunk to C::b()"),
            ("_ZTv0_n24_N1C1vEv", "virtual thunk to C::v()"),
            ("_ZTch0_h16_N1D5cloneEv", "covariant return thunk to D::clone()"),
            ("_ZTcv0_n24_v0_n32_N1D5cloneEv", "covariant return thunk to D::clone()"),
            ("_ZThn8_N1CD0Ev", "non-virtual thunk to C::~C()"),
            ("_ZTV3Foo", "vtable for Foo"),
            ("_ZTT3Foo", "VTT for Foo"),
            ("_ZTI3Foo", "typeinfo for Foo"),
            ("_ZGVZ4initvE1q", "guard variable for init()::q"),
        ] {
            assert_eq!(demangle(symbol).unwrap().0, expected, "{symbol}");
        }
    }
}
