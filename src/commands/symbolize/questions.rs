//! The addresses that were asked for: arguments, or lines of standard input, in portions.

use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, Result, bail};
use symseal_module::DebugId;

/// Addresses that are named at once: enough that several threads have something to do, and few enough to be held.
const PORTION: usize = 16_384;

/// The longest line that is read, in bytes: more than the longest debug id and an address.
const MAX_LINE_BYTES: u64 = 4096;

/// An address, and its module where that stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) debug_id: Option<DebugId>,
    pub(super) address: u64,
}

impl Question {
    /// `ADDRESS`, `DEBUG-ID@ADDRESS`, or in a line `DEBUG-ID ADDRESS`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (debug_id, address) = match text.split_once(|c: char| c == '@' || c.is_whitespace()) {
            Some((id, address)) => (Some(crate::commands::debug_id(id)?), address.trim_start()),
            None => (None, text),
        };
        Ok(Self { debug_id, address: crate::commands::address(address)? })
    }
}

/// Hands over the addresses that were given, or those on standard input, in portions. Who writes one line and waits for its answer is given it; a line that
/// is wrong, or that `checked` refuses, ends it after everything before it was handed over.
pub(super) fn in_portions(
    given: &[Question],
    checked: impl Fn(&Question) -> Result<()>,
    mut take: impl FnMut(&[Question]) -> Result<()>,
) -> Result<()> {
    if !given.is_empty() {
        given.iter().try_for_each(checked)?;
        return given.chunks(PORTION).try_for_each(take);
    }
    let mut lines = BufReader::with_capacity(1 << 20, std::io::stdin().lock());
    let (mut portion, mut line, mut number) = (Vec::new(), String::new(), 0_u64);
    let mut found = false;
    loop {
        let may_wait = !lines.buffer().contains(&b'\n');
        if portion.len() >= PORTION || (may_wait && !portion.is_empty()) {
            take(&portion)?;
            portion.clear();
        }
        number += 1;
        let next = next(&mut lines, &mut line).and_then(|next| {
            if let Some(Some(question)) = &next {
                checked(question)?;
            }
            Ok(next)
        });
        match next.with_context(|| format!("standard input, line {number}")) {
            Ok(None) => break,
            Ok(Some(question)) => portion.extend(question),
            Err(error) => {
                take(&portion)?;
                return Err(error);
            }
        }
        found |= !portion.is_empty();
    }
    if !found {
        bail!("standard input: expected addresses, one a line, found none; give them as arguments or pipe them in");
    }
    if portion.is_empty() { Ok(()) } else { take(&portion) }
}

/// The next line: `None` at the end, `Some(None)` for an empty one.
fn next(lines: &mut impl BufRead, line: &mut String) -> Result<Option<Option<Question>>> {
    line.clear();
    let read = lines.take(MAX_LINE_BYTES).read_line(line)?;
    if read as u64 == MAX_LINE_BYTES {
        bail!("expected an address, found more than {MAX_LINE_BYTES} bytes");
    }
    Ok(match (read, line.trim()) {
        (0, _) => None,
        (_, "") => Some(None),
        (_, text) => Some(Some(Question::parse(text).map_err(anyhow::Error::msg)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_its_module_beside_it() {
        let id: DebugId = "93ac61ec5a8eb139".parse().unwrap();
        let with = |debug_id: Option<&DebugId>| Question { debug_id: debug_id.cloned(), address: 0x401136 };
        assert_eq!(Question::parse("0x401136"), Ok(with(None)));
        assert_eq!(Question::parse("93ac61ec5a8eb139@0x401136"), Ok(with(Some(&id))));
        assert_eq!(Question::parse("93ac61ec5a8eb139 \t 401136"), Ok(with(Some(&id))));
        let uuid = Question::parse("uuid:4c4c44f555553144a1b2c3d4e5f60718 0x1000").unwrap();
        assert!(matches!(uuid.debug_id, Some(DebugId::MachoUuid(_))));
        for wrong in ["", "@", "xyz@0x1", "93ac61ec5a8eb139@", "0x1 0x2 0x3"] {
            assert!(Question::parse(wrong).is_err(), "{wrong}");
        }
    }
}
