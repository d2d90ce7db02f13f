//! The addresses that were asked for: arguments, or lines of standard input, in portions.

use std::io::{BufRead, BufReader, BufWriter, Read, StdoutLock, Write};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use symseal_module::DebugId;

use super::Args;
use crate::output::visible;

/// Where answers go.
pub(super) type Output = BufWriter<StdoutLock<'static>>;

/// Addresses that are named at once: enough that several threads have something to do, and few enough to be held.
const PORTION: usize = 16_384;

/// The longest line that is read, in bytes: more than the longest debug id and an address.
const MAX_LINE_BYTES: u64 = 4096;

/// Characters that are shown of a line that is no address.
const MAX_SHOWN: usize = 256;

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

/// A line of standard input that is no address that can be asked for, as `--json` answers it.
#[derive(Serialize)]
struct Refused<'a> {
    /// The line; what is not UTF-8 escaped, and cut where it is long.
    input: &'a str,
    error: &'a str,
}

/// Hands over the addresses that were given, or those on standard input, in portions. Who writes one line and waits for its answer is given it. A
/// line that is wrong, or that `checked` refuses, is answered in its place by what is wrong with it, and those behind it are named all the same: one bad
/// line of a million costs one name. The end is an error then.
pub(super) fn in_portions(
    args: &Args,
    checked: impl Fn(&Question) -> Result<()>,
    mut take: impl FnMut(&mut Output, &[Question]) -> Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if !args.addresses.is_empty() {
        args.addresses.iter().try_for_each(checked)?;
        for portion in args.addresses.chunks(PORTION) {
            take(&mut out, portion)?;
            out.flush()?;
        }
        return Ok(());
    }
    let mut lines = BufReader::with_capacity(1 << 20, std::io::stdin().lock());
    let (mut portion, mut line) = (Vec::new(), Vec::new());
    let (mut number, mut found, mut refused) = (0_u64, false, None::<(u64, String)>);
    loop {
        let may_wait = !lines.buffer().contains(&b'\n');
        if portion.len() >= PORTION || (may_wait && !portion.is_empty()) {
            take(&mut out, &portion)?;
            out.flush()?;
            portion.clear();
        }
        number += 1;
        let whole = match next_line(&mut lines, &mut line)? {
            NextLine::End => break,
            NextLine::Whole => true,
            NextLine::TooLong => false,
        };
        let text = symseal_module::escape::escape(line.trim_ascii());
        if text.is_empty() {
            // Who waits for an answer to each line is given one; it is no error, as files end with such lines.
            take(&mut out, &portion)?;
            portion.clear();
            refuse(&mut out, &text, "expected an address, found an empty line", args.json)?;
            continue;
        }
        found = true;
        let parsed = match whole {
            true => Question::parse(&text).map_err(anyhow::Error::msg),
            false => Err(anyhow!("expected an address, found more than {MAX_LINE_BYTES} bytes")),
        };
        match parsed.and_then(|question| checked(&question).map(|()| question)) {
            Ok(question) => portion.push(question),
            Err(error) => {
                take(&mut out, &portion)?;
                portion.clear();
                refuse(&mut out, &text, &error.to_string(), args.json)?;
                let (count, _) = refused.get_or_insert_with(|| (0, format!("line {number}: {error:#}")));
                *count += 1;
            }
        }
    }
    if !portion.is_empty() {
        take(&mut out, &portion)?;
    }
    out.flush()?;
    match refused {
        Some((1, first)) => bail!("standard input, {first}"),
        Some((count, first)) => bail!("standard input, {first} (the first of {count} such lines)"),
        None if !found => {
            bail!("standard input: expected addresses, one a line, found none; give them as arguments or pipe them in")
        }
        None => Ok(()),
    }
}

/// Answers a line that is no address.
fn refuse(out: &mut Output, text: &str, error: &str, json: bool) -> Result<()> {
    let input: String = text.chars().take(MAX_SHOWN).collect();
    if json {
        serde_json::to_writer(&mut *out, &Refused { input: &input, error })?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}  ??  {}", visible(&input), visible(error))?;
    }
    Ok(out.flush()?)
}

enum NextLine {
    End,
    Whole,
    /// Beyond [`MAX_LINE_BYTES`]; what came behind is passed over.
    TooLong,
}

fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> Result<NextLine> {
    line.clear();
    let mut read =
        |line: &mut Vec<u8>| lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', line).context("standard input");
    let is_cut = |line: &[u8]| line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n");
    if read(line)? == 0 {
        return Ok(NextLine::End);
    }
    if !is_cut(line) {
        return Ok(NextLine::Whole);
    }
    let mut rest = Vec::new();
    while read(&mut rest)? > 0 && is_cut(&rest) {
        rest.clear();
    }
    Ok(NextLine::TooLong)
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
