//! Bytes between the functions of Mach-O files.

use super::Expected;
use std::ops::Range;
use symseal_artifact::FunctionStream;

/// What linkers align functions to, less one.
const LONGEST: u64 = 15;

/// Mach-O symbols have no sizes, so that LLVM has each reach to the next one, over the bytes that align it; debug
/// information says where the function ends. `rva` is such an address, and `expected` what LLVM says of it.
pub(crate) fn is_between_functions(stream: &FunctionStream, rva: u64, code_end: u64, expected: &[Expected]) -> bool {
    let [only] = expected else { return false };
    let behind = stream.functions.partition_point(|function| function.start.0 <= rva);
    let Some(function) = behind.checked_sub(1).map(|at| &stream.functions[at]) else { return false };
    let end = function.start.0 + function.size;
    let next = stream.functions.get(behind).map_or(code_end, |next| next.start.0);
    let names = std::iter::once(&function.symbol).chain(&function.aliases);
    let is_named = names.map(|name| stream.strings.get(*name)).any(|name| name == only.function);
    only.line == 0 && only.file.is_empty() && is_named && rva >= end && next - end <= LONGEST
}

/// Behind the end of the function before it, which is that of one that debug information describes, and in no other:
/// compilers put tables of jumps there.
pub(crate) fn is_behind_subprogram(stream: &FunctionStream, base: u64, rva: u64, described: &[Range<u64>]) -> bool {
    let behind = stream.functions.partition_point(|function| function.start.0 <= rva);
    let Some(function) = behind.checked_sub(1).map(|at| &stream.functions[at]) else { return false };
    let end = function.start.0 + function.size;
    rva >= end
        && described.iter().any(|range| range.end == base + end)
        && !described.iter().any(|range| range.contains(&(base + rva)))
}

/// Where the last of the ranges ends.
pub(crate) fn end_of(code: &[Range<u64>]) -> u64 {
    code.iter().map(|range| range.end).max().unwrap_or(0)
}
