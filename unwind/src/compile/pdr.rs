//! `.pdr`: the procedure descriptors of 32-bit MIPS. A record says how large the frame of a function is and where it keeps its
//! registers, once its body runs. What holds in between, the instructions tell; the two are held against each other.
//!
//! A record has eight words in the target's byte order: address, mask of saved general registers, where the highest of them
//! is from the CFA, the same two for floating point, size of the frame, frame register, register of the return address.

use alloc::vec::Vec;

use super::mips::{Function, Step};
use super::pieces::{Origin, Piece};
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::source::SourceKind;

const RECORD_BYTES: usize = 32;
/// No function is longer, in instructions: what keeps the memory for a hostile input small.
pub(super) const LONGEST: usize = 1 << 18;
const RA_MASK: u32 = 1 << 31;
const FP: i32 = 30;

struct Record {
    /// In the section.
    offset: u64,
    address: u64,
    saved: u32,
    saved_at: i32,
    frame_size: i32,
    /// 0 in a record without content.
    frame_register: i32,
}

fn records(arch: Arch, bytes: &[u8]) -> Vec<Record> {
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let parse = |(at, record): (usize, &[u8; RECORD_BYTES])| {
        let (words, _) = record.as_chunks::<4>();
        let word = |at: usize| {
            let word = words.get(at).copied().unwrap_or_default();
            if arch.is_big_endian() { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        Record {
            offset: (at * RECORD_BYTES) as u64,
            address: u64::from(word(0)),
            saved: word(1),
            saved_at: word(2) as i32,
            frame_size: word(5) as i32,
            frame_register: word(6) as i32,
        }
    };
    let mut records: Vec<Record> = records.iter().enumerate().map(parse).collect();
    records.sort_by_cached_key(|record| (record.address, record.offset));
    records.dedup_by_key(|record| record.address);
    records
}

/// Adds the rules of the functions that `.pdr` describes, and of those that begin where symbols say, where nothing has spoken for
/// them yet.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let records = records(input.arch, input.pdr.unwrap_or_default());
    let mut starts: Vec<(u64, Option<&Record>)> = records.iter().map(|record| (record.address, Some(record))).collect();
    starts.extend(input.functions.iter().map(|address| (*address, None)));
    // No function begins elsewhere; one of damage would end the one before it.
    starts.retain(|(address, _)| address.is_multiple_of(4));
    // The record first, where there is one.
    starts.sort_by_cached_key(|(address, record)| (*address, u64::from(record.is_none())));
    starts.dedup_by_key(|(address, _)| *address);
    let ends = starts.iter().skip(1).map(|(next, _)| *next).chain([u64::MAX]);
    for ((address, record), end) in starts.iter().zip(ends) {
        let section = input
            .code
            .iter()
            .find(|(start, bytes)| address.checked_sub(*start).is_some_and(|offset| offset < bytes.len() as u64));
        // Records of discarded functions have other addresses.
        let Some((section, bytes)) = section else { continue };
        let end = end.min(section.saturating_add(bytes.len() as u64));
        let of = |address: u64| usize::try_from(address.saturating_sub(*section)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(of(*address)..of(end)) else { continue };
        if !compiler.claims.is_free(*address) {
            continue;
        }
        compiler.report.pdr_records += usize::from(record.is_some());
        if let Some(reason) = function(input.arch, *address, *record, bytes, compiler) {
            compiler.report.count_unfollowed(Some(*address..end), reason);
        }
    }
}

/// Adds what is known of one function. Gives what stands in the way of all or a part of it.
fn function(
    arch: Arch,
    start: u64,
    record: Option<&Record>,
    bytes: &[u8],
    compiler: &mut Compiler<'_>,
) -> Option<&'static str> {
    let (words, _) = bytes.as_chunks::<4>();
    if words.len() > LONGEST {
        return Some("longer than any function");
    }
    let function = Function::follow(start, words, arch.machine());
    if let Some(reason) = record.and_then(|record| contradiction(record, &function)) {
        return Some(reason);
    }
    let origin = match record {
        Some(record) => Origin::new(SourceKind::Pdr, record.offset),
        None => Origin::new(SourceKind::Instructions, start),
    };
    let mut lost = false;
    for (address, step) in (start..).step_by(4).zip(function.steps()) {
        let (rule, slots) = match step {
            Step::Rule(rule, slots) => (rule, slots),
            Step::Lost => {
                lost = true;
                continue;
            }
            Step::NotReached => continue,
        };
        let rule = compiler.rules.number_of(rule, slots);
        for range in compiler.claims.claim(address..address.saturating_add(4)) {
            match compiler.pieces.last_mut() {
                Some(last) if last.end() == range.start && (last.rule, last.origin) == (rule, origin) => {
                    last.end_at(range.end);
                }
                _ => compiler.pieces.push(Piece::new(range, rule, origin)),
            }
        }
    }
    match function.conflicts {
        _ if lost => Some("the frame is lost on some path"),
        0 => None,
        // As behind a call that never returns.
        _ => Some("paths disagree about the frame, and the first one counts"),
    }
}

/// What of the record the instructions do not bear out.
fn contradiction(record: &Record, function: &Function) -> Option<&'static str> {
    if record.frame_register == 0 {
        return None;
    }
    let (size, return_address) = function.extent(record.frame_register == FP);
    let recorded = (record.saved & RA_MASK != 0).then_some(record.saved_at);
    if return_address != recorded {
        return Some("the return address is saved elsewhere than the record says");
    }
    (size != record.frame_size).then_some("the frame has another size than the record says")
}
