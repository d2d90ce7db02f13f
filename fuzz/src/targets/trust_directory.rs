//! The three files of a trust directory, separated by NUL bytes.

use symseal_seal::{Trust, UtcSeconds};

pub(super) fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    if let Ok(trust) = Trust::load_parts(next(), next(), next()) {
        let _ = trust.checks(UtcSeconds(1_795_176_000));
    }
}
