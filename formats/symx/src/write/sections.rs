//! Sections → file: header, directory, checksums, padding.

use super::ContextForm;
use super::chains::{Chains, Sites, Tightness};
use super::packed::{pack, widths};
use super::pairs::Pairs;
use super::phrases::Coder;
use super::stream::{BlockRecords, Stream};
use super::text::Text;
use crate::bits::BitWriter;
use crate::checksum::crc32c;
use crate::layout::{
    ALIGNMENT, CHECKSUM_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, PHRASED, SECTIONS, SITED, SectionId, TIGHT, VERSION,
    WIDE, debug_id_fields,
};
use crate::rows::COLUMN_BLOCK_BYTES;
use crate::{TableInput, WriteError};
use alloc::vec;
use alloc::vec::Vec;

pub(super) struct Sections<'a> {
    pub(super) stream: Stream,
    pub(super) chains: Chains,
    pub(super) functions: Functions,
    pub(super) aliased: Vec<u8>,
    pub(super) aliases: Vec<u8>,
    pub(super) paths: Text<'a>,
    pub(super) names: Text<'a>,
}

/// Functions as records.
pub(super) enum Functions {
    Whole(Vec<u8>),
    /// Start, size, name, symbol, file, line, source of the names, flags.
    Tight(Vec<[u32; 8]>),
}

pub(super) fn assemble(
    input: &TableInput<'_>,
    wide: bool,
    form: ContextForm,
    sections: Sections<'_>,
) -> Result<Vec<u8>, WriteError> {
    let Sections { stream, chains, functions, aliased, aliases, paths, names } = sections;
    let tight = matches!(functions, Functions::Tight(_));
    let line_bases = tight.then(|| chains.line_bases(stream.lines()));
    let blocks = stream.finish(line_bases.as_ref())?;
    let mut pairs = Pairs::default();
    let (functions, function_widths) = match functions {
        Functions::Whole(bytes) => (bytes, [0; 8]),
        Functions::Tight(mut records) => {
            let of_functions = records.iter().map(|[_, _, name, symbol, ..]| [*name, *symbol]);
            pairs = Pairs::new(of_functions.chain(chains.names()));
            for [_, _, name, symbol, ..] in &mut records {
                [*name, *symbol] = pairs.codes(*name, *symbol);
            }
            packed(&records)
        }
    };
    let starts = blocks.start_bytes(wide);
    let (block_records, block_widths) = match blocks.blocks {
        BlockRecords::Whole(bytes) => (bytes, [0; 6]),
        BlockRecords::Tight(records) => packed(&records),
    };
    let tightness = line_bases.map(|line_bases| Tightness {
        line_bases,
        pairs: &pairs,
        functions: function_widths,
        blocks: block_widths,
    });
    let contexts = chains.context_sections(form, tightness.as_ref());
    let (call_columns, call_column_count) = pack_columns(&chains.columns());
    let (phrases, phrase_count) = names.coder.as_ref().map(Coder::section).unwrap_or_default();
    let flags = [(wide, WIDE), (phrase_count > 0, PHRASED), (contexts.sites.is_some(), SITED), (tight, TIGHT)];
    let flags = flags.into_iter().filter_map(|(set, flag)| set.then_some(flag)).sum();
    let (pairs, pair_count) = pairs.section();
    let (owners, sites) = contexts.sites.map(|Sites { owners, sites }| (owners, sites)).unwrap_or_default();
    let records = |bytes: &[u8], size: usize| (bytes.len() / size) as u64;
    let counts = [
        input.producer.len() as u64,
        blocks.starts.len() as u64,
        blocks.starts.len() as u64,
        blocks.row_count,
        contexts.contexts.count,
        contexts.places.count,
        input.functions.len() as u64,
        records(&aliased, 8),
        records(&aliases, 4),
        paths.count,
        names.count,
        records(&blocks.column_blocks, COLUMN_BLOCK_BYTES),
        blocks.column_count,
        call_column_count,
        phrase_count,
        owners.count,
        sites.count,
        pair_count,
    ];
    let contents: [&[u8]; SECTIONS] = [
        input.producer.as_bytes(),
        &starts,
        &block_records,
        &blocks.rows.bytes,
        &contexts.contexts.bytes,
        &contexts.places.bytes,
        &functions,
        &aliased,
        &aliases,
        &paths.bytes,
        &names.bytes,
        &blocks.column_blocks,
        &blocks.columns.bytes,
        &call_columns,
        &phrases,
        &owners.bytes,
        &sites.bytes,
        &pairs,
    ];
    let present = || {
        let all = SectionId::ALL.into_iter().zip(contents.into_iter().zip(counts));
        all.filter(|(id, _)| id.is_present(flags))
    };
    let section_count = present().count();
    let mut at = HEADER_BYTES + section_count * ENTRY_BYTES;
    let mut directory = Vec::with_capacity(section_count * ENTRY_BYTES);
    for (id, (bytes, count)) in present() {
        directory.extend(id.number().to_le_bytes());
        directory.extend(crc32c(&[bytes]).to_le_bytes());
        for value in [at as u64, bytes.len() as u64, count] {
            directory.extend(value.to_le_bytes());
        }
        at = (at + bytes.len()).next_multiple_of(ALIGNMENT);
    }
    let mut file = Vec::with_capacity(at);
    put_header(&mut file, input, flags, section_count as u16, at as u64);
    let checksum = crc32c(&[&file, &directory]);
    if let Some(field) = file.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    file.extend(directory);
    for (_, (bytes, _)) in present() {
        file.extend(bytes);
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    }
    Ok(file)
}

/// Records in as few bits as they take, and the bits of each field.
fn packed<const N: usize>(records: &[[u32; N]]) -> (Vec<u8>, [u8; N]) {
    let widths = widths(records.iter().copied());
    (pack(BitWriter::default(), records.iter().copied(), widths).bytes, widths)
}

/// The fixed part of the header, its checksum still zero.
fn put_header(file: &mut Vec<u8>, input: &TableInput<'_>, flags: u16, sections: u16, size: u64) {
    let (kind, len, age, id) = debug_id_fields(input.debug_id);
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend(flags.to_le_bytes());
    file.extend(size.to_le_bytes());
    file.extend(input.image_base.0.to_le_bytes());
    file.extend(input.source_sha256);
    file.extend([kind, len]);
    file.extend(sections.to_le_bytes());
    file.extend(age.to_le_bytes());
    file.extend(id);
    file.extend([0; HEADER_BYTES - CHECKSUM_AT]);
}

/// The calls' columns in the narrowest integers that hold them all; nothing where there are none.
fn pack_columns(columns: &[u32]) -> (Vec<u8>, u64) {
    let width = match columns.iter().copied().max().unwrap_or(0) {
        0 => return (vec![], 0),
        1..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    let bytes = columns.iter().flat_map(|column| column.to_le_bytes().into_iter().take(width)).collect();
    (bytes, columns.len() as u64)
}
