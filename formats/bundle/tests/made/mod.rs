//! A bundle made by hand: two modules whose "binaries" are a few bytes with their id in front.

use std::path::Path;

use symseal_bundle::compose::FileFormat;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::{
    DebugInfo, Digest, FileEntry, FileRole, IndexStatistics, InputEntry, LayoutDir, ModuleEntry, ModuleStatistics,
    Producer, ShardEntry, SymbolIndex, compose, index, module_index, pages, title,
};
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::{FunctionFlags, FunctionRecord, NO_INLINE, Row, Strings, SymbolSource, Table, TableInput};

pub(crate) const IDS: [&str; 2] =
    ["aabbccdd00112233445566778899aabbccddeeff", "ff00112233445566778899aabbccddeeff001122"];

/// What stands for a binary: the id's text, a line feed, and bytes of a few pages.
pub(crate) fn binary(id: &str) -> Vec<u8> {
    let mut bytes = format!("{id}\n").into_bytes();
    bytes.extend((0..150_000u32).map(|at| (at % 251) as u8));
    bytes
}

/// Reads the id of [`binary`].
#[allow(dead_code, reason = "each test program uses its own part of this module")]
pub(crate) fn identify(bytes: &[u8]) -> Vec<DebugId> {
    let line = bytes.split(|byte| *byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    line.and_then(|line| line.parse().ok()).into_iter().collect()
}

pub(crate) fn table(id: &DebugId, source: [u8; 32], rows: u32) -> Vec<u8> {
    let mut strings = Strings::new();
    let name = strings.intern("näme \"quoted\"\t\u{1}");
    let symbol = strings.intern("_Z4namev");
    let file = strings.intern("src/a.c");
    let alias = strings.intern("other");
    let mut first = FunctionRecord {
        start: Rva(0x1000),
        size: 16 * u64::from(rows),
        name,
        symbol,
        aliases: vec![alias],
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file,
        line: 7,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    first.rows = (0..rows)
        .map(|at| Row {
            start: Rva(0x1000 + 16 * u64::from(at)),
            file,
            line: 7 + at,
            column: at % 5,
            inline: NO_INLINE,
        })
        .collect();
    let second = FunctionRecord {
        start: Rva(0x1000 + 16 * u64::from(rows)),
        size: 32,
        name: symbol,
        symbol,
        aliases: Vec::new(),
        source: SymbolSource::Dynsym,
        flags: FunctionFlags { approximate: true, ..FunctionFlags::default() },
        file: symseal_symx::StrId(0),
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    symseal_symx::write(&TableInput {
        debug_id: id,
        image_base: Svma(0x40_0000),
        source_sha256: source,
        producer: "test 1",
        strings: &strings,
        functions: &[first, second],
    })
    .unwrap()
}

fn entry(
    layout: &LayoutDir,
    role: FileRole,
    path: String,
    bytes: &[u8],
    derived: Vec<Digest>,
) -> (FileEntry, FilePages) {
    let page_size = pages::page_size_of(role);
    let measured = pages::measure(bytes, page_size);
    layout.write_blob(bytes).unwrap();
    (
        FileEntry {
            role,
            path,
            size: measured.size,
            sha256: measured.digest,
            media_type: compose::media_type(role, FileFormat::Elf).to_owned(),
            page_size,
            page_root: measured.root,
            piece_root: (role == FileRole::SymbolTable).then(|| symseal_bundle::pieces::root(bytes)),
            derived_from: derived,
        },
        FilePages { sha256: measured.digest, page_size, size: measured.size, leaves: measured.leaves },
    )
}

/// A bundle of [`IDS`] in a new layout in `dir`, tagged `1.0`.
pub(crate) fn bundle(dir: &Path) -> (LayoutDir, Digest) {
    let layout = LayoutDir::create(dir).unwrap();
    let mut index = SymbolIndex {
        schema: index::SCHEMA.to_owned(),
        name: "made".to_owned(),
        version: "1.0".to_owned(),
        producer: Producer { name: "test".to_owned(), version: "1".to_owned() },
        linux: Default::default(),
        windows: Default::default(),
        macos: Default::default(),
        shards: Vec::new(),
        sources: None,
        statistics: IndexStatistics { modules: 2, files: 9, bytes: 1 },
    };
    let mut all_pages = Vec::new();
    for id in IDS {
        let id: DebugId = id.parse().unwrap();
        let bytes = binary(&id.to_string());
        let source = Digest::of(&bytes);
        let table = table(&id, *source.as_bytes(), 200);
        let json = module_index::write(&Table::open(&table).unwrap(), "app").unwrap().json;
        let files = [
            entry(&layout, FileRole::Debuginfo, title::build_id_debug_file(&id).unwrap(), &bytes, Vec::new()),
            entry(&layout, FileRole::Executable, title::build_id_executable(&id).unwrap(), &bytes, Vec::new()),
            entry(&layout, FileRole::SymbolTable, title::symbol_table(&id), &table, vec![source]),
            entry(&layout, FileRole::ModuleIndex, title::module_index(&id), &json, vec![Digest::of(&table)]),
        ];
        let (files, pages): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        all_pages.extend(pages);
        let module = ModuleEntry {
            name: "app".to_owned(),
            format: "elf".to_owned(),
            arch: "x86_64".to_owned(),
            id_kind: "gnu-build-id".to_owned(),
            code_id: None,
            go_build_id: None,
            pdb: None,
            supplementary: None,
            image_base: Svma(0x40_0000),
            debug_info: DebugInfo::Full,
            lines_of: None,
            stripped: false,
            files,
            inputs: vec![InputEntry { name: "app".to_owned(), sha256: source }],
            statistics: ModuleStatistics::default(),
        };
        index.linux.insert(id.to_string(), module);
    }
    for shard in compose::shards(&index).unwrap() {
        let path = title::page_hashes(shard.platform, &shard.arch, &shard.ids[0]);
        let bytes = page_hashes::write(&all_pages).unwrap();
        let (page_hashes, _) = entry(&layout, FileRole::PageHashes, path, &bytes, Vec::new());
        index.shards.push(ShardEntry {
            platform: shard.platform.to_owned(),
            arch: shard.arch.clone(),
            first: shard.ids[0].clone(),
            last: shard.ids[shard.ids.len() - 1].clone(),
            page_hashes,
        });
    }
    let digest = store(&layout, &index, Some("1.0"));
    (layout, digest)
}

/// Stores the OCI parts of an index whose files are stored.
pub(crate) fn store(layout: &LayoutDir, index: &SymbolIndex, tag: Option<&str>) -> Digest {
    let composed = compose::compose(index).unwrap();
    layout.write_blob(oci::EMPTY_JSON).unwrap();
    layout.write_blob(&composed.symbol_index).unwrap();
    for manifest in &composed.manifests {
        layout.write_blob(manifest).unwrap();
    }
    layout.write_blob(&composed.image_index).unwrap();
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &composed.image_index), tag).unwrap();
    composed.digest
}
