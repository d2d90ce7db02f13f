//! Records of the id stream (IPI) and of the type stream (TPI): names of inlined functions, and texts. (LLVM, "The PDB TPI and
//! IPI Streams", "CodeView Type Records")

use super::header::{u16_at, u32_at};
use super::pages::Pages;
use pdb2::{PDB, StreamIndex};

/// Streams with fixed numbers.
pub(crate) const TPI_STREAM: StreamIndex = StreamIndex(2);
pub(crate) const IPI_STREAM: StreamIndex = StreamIndex(4);

/// Kinds of records that have names.
mod leaf {
    pub(super) const FUNC_ID: u16 = 0x1601;
    pub(super) const MFUNC_ID: u16 = 0x1602;
    pub(super) const BUILDINFO: u16 = 0x1603;
    pub(super) const SUBSTR_LIST: u16 = 0x1604;
    pub(super) const STRING_ID: u16 = 0x1605;
    pub(super) const CLASS: u16 = 0x1504;
    pub(super) const STRUCTURE: u16 = 0x1505;
    pub(super) const UNION: u16 = 0x1506;
    pub(super) const ENUM: u16 = 0x1507;
    pub(super) const INTERFACE: u16 = 0x1519;
    pub(super) const CLASS2: u16 = 0x1608;
    pub(super) const STRUCTURE2: u16 = 0x1609;
    pub(super) const UNION2: u16 = 0x160a;
    pub(super) const INTERFACE2: u16 = 0x160b;
}

/// A scope is a text or, in Rust, a chain of them; longer chains are cut off.
const LONGEST_CHAIN: usize = 16;

/// Bytes of the header before what it says of a hash table.
const SHORTEST_HEADER: u32 = 20;

/// One in so many records has its place noted.
const STRIDE: usize = 8;

/// Records by number.
pub(crate) struct Records {
    bytes: Vec<u8>,
    first: u32,
    /// The header and the records agree with each other.
    pub(crate) is_whole: bool,
    /// Where every eighth record starts.
    places: Vec<u32>,
}

impl Records {
    /// Those of a stream; none where it is missing or damaged at the start. Its header says how many there are, and how many bytes of them.
    pub(crate) fn read<'d>(pdb: &mut PDB<'d, Pages<'d>>, number: StreamIndex) -> Self {
        let mut records = Self { bytes: Vec::new(), first: 0, is_whole: false, places: Vec::new() };
        let Ok(Some(stream)) = pdb.raw_stream(number) else { return records };
        let (Some(header), Some(first)) = (u32_at(&stream, 4), u32_at(&stream, 8)) else { return records };
        records.bytes = stream.to_vec();
        records.first = first;
        let mut at = usize::try_from(header).unwrap_or(usize::MAX);
        let mut count = 0_usize;
        while let Some(length) = u16_at(&records.bytes, at) {
            if count.is_multiple_of(STRIDE) {
                let Ok(place) = u32::try_from(at) else { break };
                records.places.push(place);
            }
            count += 1;
            let Some(next) = at.checked_add(2 + usize::from(length)) else { break };
            at = next;
        }
        records.is_whole = header >= SHORTEST_HEADER
            && at == records.bytes.len()
            && u32_at(&records.bytes, 12)
                .and_then(|behind| behind.checked_sub(first))
                .is_some_and(|stated| u64::from(stated) == count as u64);
        records
    }

    /// A record from its kind on.
    fn get(&self, number: u32) -> Option<&[u8]> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let mut at = usize::try_from(*self.places.get(index / STRIDE)?).ok()?;
        for _ in 0..index % STRIDE {
            at = at.checked_add(2 + usize::from(u16_at(&self.bytes, at)?))?;
        }
        self.at(at)
    }

    /// The record at a place, from its kind on.
    fn at(&self, at: usize) -> Option<&[u8]> {
        let length = usize::from(u16_at(&self.bytes, at)?);
        self.bytes.get(at.checked_add(2)?..)?.get(..length)
    }

    /// The records that say how a module was compiled.
    pub(crate) fn build_infos(&self) -> impl Iterator<Item = &[u8]> {
        let mut next = self.places.first().and_then(|at| usize::try_from(*at).ok());
        let all = std::iter::from_fn(move || {
            let at = next?;
            let record = self.at(at)?;
            next = at.checked_add(2 + record.len());
            Some(record)
        });
        all.filter(|record| u16_at(record, 0) == Some(leaf::BUILDINFO))
    }

    /// What putting texts together may take, in bytes of texts and of the numbers of their parts: honest ones are parts of the stream, each used a few times.
    pub(crate) fn longest_texts(&self) -> usize {
        self.bytes.len().saturating_mul(4)
    }

    /// The text of a string record, its parts before it, as far as `left` goes.
    pub(crate) fn text(&self, number: u32, left: &mut usize) -> Vec<u8> {
        let mut whole = Vec::new();
        let string = |number| {
            let record = self.get(number)?;
            (u16_at(record, 0)? == leaf::STRING_ID).then_some((u32_at(record, 2)?, text(record.get(6..)?)?))
        };
        let Some((parts, own)) = string(number) else { return whole };
        let list = self.get(parts).filter(|record| u16_at(record, 0) == Some(leaf::SUBSTR_LIST));
        for number in list.and_then(|record| record.get(6..)).unwrap_or_default().chunks_exact(4) {
            // Parts without a byte take their time too.
            let Some(rest) = left.checked_sub(number.len()) else { return whole };
            *left = rest;
            if let Some((_, part)) = u32_at(number, 0).and_then(string) {
                append(&mut whole, part, left);
            }
        }
        append(&mut whole, own, left);
        whole
    }
}

fn append(whole: &mut Vec<u8>, part: &[u8], left: &mut usize) {
    let part = part.get(..*left).unwrap_or(part);
    *left -= part.len();
    whole.extend_from_slice(part);
}

/// The bare name of an inlined function, and the name with its scope.
pub(crate) fn function_name(ids: &Records, types: &Records, number: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    let record = ids.get(number)?;
    let scope = u32_at(record, 2)?;
    let name = text(record.get(10..)?)?;
    let mut qualified = match u16_at(record, 0)? {
        leaf::FUNC_ID => scope_name(ids, scope),
        leaf::MFUNC_ID => type_name(types.get(scope)?).map(<[u8]>::to_vec).unwrap_or_default(),
        _ => return None,
    };
    if !qualified.is_empty() {
        qualified.extend_from_slice(b"::");
    }
    qualified.extend_from_slice(name);
    Some((name.to_vec(), qualified))
}

/// The namespaces that a function is in, outermost first.
fn scope_name(ids: &Records, number: u32) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut next = number;
    while next != 0 && names.len() < LONGEST_CHAIN {
        let Some(record) = ids.get(next) else { break };
        let (Some(kind), Some(outer)) = (u16_at(record, 0), u32_at(record, 2)) else { break };
        let name = match kind {
            leaf::STRING_ID => record.get(6..),
            // A function in a function.
            leaf::FUNC_ID => record.get(10..),
            _ => None,
        };
        let Some(name) = name.and_then(text) else { break };
        names.push(name);
        // A string's number leads to parts of a long text, which linkers do not write for scopes.
        next = if kind == leaf::FUNC_ID { outer } else { 0 };
    }
    names.reverse();
    names.join(&b"::"[..])
}

/// The name of a class, union or enumeration.
fn type_name(record: &[u8]) -> Option<&[u8]> {
    let sized = |at: usize| text(after_number(record.get(at..)?)?);
    match u16_at(record, 0)? {
        leaf::CLASS | leaf::STRUCTURE | leaf::INTERFACE => sized(18),
        leaf::UNION => sized(10),
        leaf::CLASS2 | leaf::STRUCTURE2 | leaf::INTERFACE2 => sized(20),
        leaf::UNION2 => sized(12),
        leaf::ENUM => text(record.get(14..)?),
        _ => None,
    }
}

/// What follows a number of variable size. (`LF_NUMERIC`)
fn after_number(bytes: &[u8]) -> Option<&[u8]> {
    let length = match u16_at(bytes, 0)? {
        0..0x8000 => 2,
        0x8000 => 3,
        0x8001 | 0x8002 => 4,
        0x8003 | 0x8004 => 6,
        0x8009 | 0x800a => 10,
        _ => return None,
    };
    bytes.get(length..)
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..memchr::memchr(0, bytes)?)
}
