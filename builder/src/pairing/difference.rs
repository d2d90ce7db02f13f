//! In what two files differ that claim to be one: what people are told of a conflict. There is always something, as equal files are one file.

use symseal_artifact::{ObjectFile, ReleaseFile, escaped};
use symseal_bundle::LayoutDir;
use symseal_module::Svma;

use super::Part;
use super::contradiction::{Contradiction, contradiction};
use super::same_build::{DEBUG, REFERRED, code, slice, stored_code};
use crate::error::BuildError;

/// The first thing in which the files differ: the machine; of binaries a section of code or a byte of it; of debug files a function, then a section of debug
/// information; of what is equal in all that, a byte of the files.
pub(super) fn difference(
    one: Part<'_>,
    other: Part<'_>,
    layout: Option<&LayoutDir>,
) -> Result<Contradiction, BuildError> {
    let (one_bytes, other_bytes) = (one.file.read(layout)?, other.file.read(layout)?);
    if let (Some(first), Some(second)) = (one.object(), other.object())
        && first.arch != second.arch
    {
        // The pair may be told the other way round.
        let of = |arch| format!("a file for the machine {arch}");
        return Ok(pair(of(first.arch), of(second.arch)));
    }
    if let (Some(first), Some(second)) = (slice(one, &one_bytes)?, slice(other, &other_bytes)?) {
        if let Some(found) = in_code(&first, &second).filter(|_| one.is_binary() && other.is_binary()) {
            return Ok(found);
        }
        let functions = contradiction(one, other, layout)?;
        if let Some(found) = functions.or_else(|| in_description(&first, &second)) {
            return Ok(found);
        }
    } else if let Some(found) = contradiction(one, other, layout)? {
        return Ok(found);
    } else if let Some(found) = in_kind(&one_bytes, &other_bytes) {
        return Ok(found);
    }
    Ok(in_bytes("the file", &one_bytes, &other_bytes).unwrap_or_else(|| pair("this file", "the same file")))
}

fn pair(expected: impl Into<String>, found: impl Into<String>) -> Contradiction {
    Contradiction { expected: expected.into(), found: found.into() }
}

/// One is a program database and the other debug information of another kind.
fn in_kind(one: &[u8], other: &[u8]) -> Option<Contradiction> {
    let kind = |bytes: &[u8]| match ReleaseFile::parse(bytes) {
        Ok(ReleaseFile::Pdb(_)) => "a program database",
        Ok(ReleaseFile::PortablePdb(_)) => "a portable program database",
        _ => "an object file",
    };
    let (one, other) = (kind(one), kind(other));
    (one != other).then(|| pair(one, other))
}

fn in_code(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> Option<Contradiction> {
    let (ours, theirs) = (first.code_sections(), second.code_sections());
    let section = |(name, svma): &(&[u8], std::ops::Range<u64>)| {
        format!("section {} at {:#x}, {:#x} bytes", escaped(name), svma.start, svma.end.saturating_sub(svma.start))
    };
    // Where one was stripped of its section headers, that says nothing.
    if !ours.is_empty() && !theirs.is_empty() && ours != theirs {
        let at = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
        let told = |sections: &[(&[u8], std::ops::Range<u64>)]| {
            sections.get(at).map_or_else(|| "no further section of code".to_owned(), section)
        };
        return Some(pair(told(&ours), told(&theirs)));
    }
    let by_section = || {
        let (one, other) = (stored_code(first), stored_code(second));
        let mut both = one.iter().zip(&other);
        both.find_map(|((svma, one), (_, other))| in_loaded(*svma, one, other))
    };
    match (code(first), code(second)) {
        (Some((svma, one)), Some((_, other))) if one != other => in_loaded(svma.0, one, other),
        (Some((svma, one)), None) => second
            .loaded_bytes(svma, one.len() as u64)
            .map_or_else(|| Some(pair(at_address(svma, one), "nothing there")), |other| in_loaded(svma.0, one, other)),
        (None, Some((svma, other))) => first
            .loaded_bytes(svma, other.len() as u64)
            .map_or_else(|| Some(pair("nothing there", at_address(svma, other))), |one| in_loaded(svma.0, one, other)),
        _ => None,
    }
    .or_else(by_section)
    .or_else(|| in_segments(first, second))
}

fn at_address(svma: Svma, code: &[u8]) -> String {
    format!("{:#x} bytes of code at {:#x}", code.len(), svma.0)
}

/// Executable segments, of files without section headers, and all that is loaded.
fn in_segments(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> Option<Contradiction> {
    let (ours, theirs) = (first.unwind_inputs(), second.unwind_inputs());
    let range = |range: Option<&std::ops::Range<u64>>| {
        let told = |range: &std::ops::Range<u64>| format!("code at {:#x}..{:#x}", range.start, range.end);
        range.map_or_else(|| "no further code".to_owned(), told)
    };
    if ours.text != theirs.text {
        let at = ours.text.iter().zip(&theirs.text).take_while(|(one, other)| one == other).count();
        return Some(pair(range(ours.text.get(at)), range(theirs.text.get(at))));
    }
    let (mut one, mut other) = (ours.loaded, theirs.loaded);
    one.sort_unstable();
    other.sort_unstable();
    one.iter()
        .zip(&other)
        .filter(|(one, other)| one.0 == other.0)
        .find_map(|(one, other)| in_loaded(one.0, one.1, other.1))
}

/// The first byte that differs of what is loaded from this address on.
fn in_loaded(svma: u64, one: &[u8], other: &[u8]) -> Option<Contradiction> {
    let at = first_difference(one, other)?;
    let told = |bytes: &[u8]| match bytes.get(at) {
        Some(byte) => format!("the byte {byte:#04x} at {:#x}", svma.saturating_add(at as u64)),
        None => format!("nothing more at {:#x}", svma.saturating_add(at as u64)),
    };
    Some(pair(told(one), told(other)))
}

/// The first section of debug information that is not the same.
fn in_description(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> Option<Contradiction> {
    [DEBUG].into_iter().chain(REFERRED).find_map(|name| match (first.debug_section(name), second.debug_section(name)) {
        (Some(one), Some(other)) => in_bytes(&format!(".debug_{name}"), &one, &other),
        (None, None) => None,
        (one, _) => {
            let (has, lacks) = (format!("a section .debug_{name}"), "none".to_owned());
            Some(if one.is_some() { pair(has, lacks) } else { pair(lacks, has) })
        }
    })
}

/// The first byte that differs of what is called so.
fn in_bytes(what: &str, one: &[u8], other: &[u8]) -> Option<Contradiction> {
    let at = first_difference(one, other)?;
    let told = |bytes: &[u8]| match bytes.get(at) {
        Some(byte) => format!("the byte {byte:#04x} at {at:#x} of {what} ({:#x} bytes)", bytes.len()),
        None => format!("the end of {what} at {at:#x}"),
    };
    Some(pair(told(one), told(other)))
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (one.len() != other.len() || at < one.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_named_or_the_end_of_the_shorter_one() {
        assert_eq!(in_bytes("x", b"abc", b"abc"), None);
        let found = in_bytes("x", b"abc", b"aXc").expect("a difference");
        assert_eq!(
            found.told(),
            "the one has the byte 0x62 at 0x1 of x (0x3 bytes), the other the byte 0x58 at 0x1 of x (0x3 bytes)"
        );
        let found = in_loaded(0x1000, b"abc", b"ab").expect("a difference");
        assert_eq!(found.told(), "the one has the byte 0x63 at 0x1002, the other nothing more at 0x1002");
    }
}
