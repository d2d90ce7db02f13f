//! A bundle in which one table is another one, and everything that follows from it is right: what a pipeline that was taken
//! over would sign.
#![allow(unreachable_pub, reason = "several tests have this module")]

use std::path::Path;

use symseal_bundle::compose::{self, FileFormat};
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::{Bundle, Digest, FileRole, LayoutDir, SymbolIndex, module_index, pages, pieces};
use symseal_module::Rva;
use symseal_symx::{FunctionFlags, FunctionRecord, StrId, Strings, SymbolSource, Table, TableInput};

/// Makes it in the layout `to` of the bundle in the layout `from`; its digest.
pub fn forge(from: &Path, to: &Path, producer: &str) -> Digest {
    let source = LayoutDir::open(from).unwrap();
    let bundle = Bundle::open(source.clone(), None).unwrap();
    let layout = LayoutDir::create(to).unwrap();
    let mut index: SymbolIndex = bundle.index().clone();
    let mut all = Vec::new();
    let (id, module) = index.linux.iter_mut().next().unwrap();
    let id = id.parse().unwrap();
    let derived = module.file(FileRole::SymbolTable).unwrap().derived_from[0];
    let base = module.image_base;
    let table = other_table(&id, base, *derived.as_bytes(), producer);
    let json = module_index::write(&Table::open(&table).unwrap(), &module.name).unwrap().json;
    for file in &mut module.files {
        let bytes = match file.role {
            FileRole::SymbolTable => table.clone(),
            FileRole::ModuleIndex => json.clone(),
            _ => bundle.read(file).unwrap(),
        };
        let measured = pages::measure(&bytes, file.page_size);
        layout.write_blob(&bytes).unwrap();
        (file.size, file.sha256, file.page_root) = (measured.size, measured.digest, measured.root);
        file.piece_root = file.piece_root.map(|_| pieces::root(&bytes));
        if file.role == FileRole::ModuleIndex {
            file.derived_from = vec![Digest::of(&table)];
        }
        let page_size = file.page_size;
        let leaves = measured.leaves;
        all.push(FilePages { sha256: measured.digest, page_size, size: measured.size, leaves });
    }
    let bytes = page_hashes::write(&all).unwrap();
    layout.write_blob(&bytes).unwrap();
    let entry = &mut index.shards[0].page_hashes;
    let measured = pages::measure(&bytes, entry.page_size);
    (entry.size, entry.sha256, entry.page_root) = (measured.size, measured.digest, measured.root);
    assert_eq!(entry.media_type, compose::media_type(FileRole::PageHashes, FileFormat::Elf));
    index.statistics.bytes = index.files().map(|file| file.size).sum();
    let composed = compose::compose(&index).unwrap();
    layout.write_blob(oci::EMPTY_JSON).unwrap();
    layout.write_blob(&composed.symbol_index).unwrap();
    for manifest in &composed.manifests {
        layout.write_blob(manifest).unwrap();
    }
    layout.write_blob(&composed.image_index).unwrap();
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &composed.image_index), Some("1.0")).unwrap();
    composed.digest
}

/// A sound table of the module that names everything `harmless`.
fn other_table(
    id: &symseal_module::DebugId,
    image_base: symseal_module::Svma,
    source_sha256: [u8; 32],
    producer: &str,
) -> Vec<u8> {
    let mut strings = Strings::new();
    let name = strings.intern("harmless");
    let function = FunctionRecord {
        start: Rva(0x1000),
        size: 0x4000,
        name,
        symbol: name,
        aliases: Vec::new(),
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file: StrId(0),
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    let input =
        TableInput { debug_id: id, image_base, source_sha256, producer, strings: &strings, functions: &[function] };
    symseal_symx::write(&input).unwrap()
}
