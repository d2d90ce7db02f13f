//! What several targets hold the code to.

use symseal_artifact::FunctionStream;
use symseal_symx::NO_INLINE;

/// Records in order, rows and inlined calls within them: what the symbol table's writer relies on.
///
/// # Panics
/// Where that does not hold.
pub fn check_stream(stream: &FunctionStream) {
    let mut reached = 0;
    for function in &stream.functions {
        assert!(function.start.0 >= reached && function.size > 0);
        reached = function.start.0.checked_add(function.size).expect("an end");
        assert!(function.rows.is_sorted_by(|a, b| a.start < b.start));
        assert!(function.rows.iter().all(|row| (function.start.0..reached).contains(&row.start.0)));
        let count = function.inlines.len();
        assert!(function.rows.iter().all(|row| row.inline == NO_INLINE || (row.inline as usize) < count));
        for (at, site) in function.inlines.iter().enumerate() {
            assert!(site.parent == NO_INLINE || (site.parent as usize) < at);
        }
    }
}
