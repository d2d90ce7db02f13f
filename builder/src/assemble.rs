//! From finished modules to a bundle: the symbol index, its shards, the manifests.

use std::collections::{BTreeMap, BTreeSet};

use symseal_bundle::compose::{self, Composed, FileFormat};
use symseal_bundle::index::platform_of;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::{
    Digest, FileEntry, FileRole, IndexStatistics, LayoutDir, LayoutError, Producer, ShardEntry, SymbolIndex, index,
    pages, title,
};
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::module::Finished;
use crate::report::BuildReport;

/// The symbol index of these modules, without its shards. Their order does not matter.
pub(crate) fn index(name: &str, version: &str, finished: Vec<Finished>) -> (SymbolIndex, Pages) {
    let mut pages: Pages = BTreeMap::new();
    let mut index = SymbolIndex {
        schema: index::SCHEMA.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
        producer: Producer { name: "symseal".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        linux: BTreeMap::new(),
        windows: BTreeMap::new(),
        macos: BTreeMap::new(),
        shards: Vec::new(),
        sources: None,
        statistics: IndexStatistics::default(),
    };
    for module in finished {
        let text = module.id.to_string();
        pages.insert(text.clone(), module.pages);
        let map = match platform_of(&module.id) {
            "linux" => &mut index.linux,
            "windows" => &mut index.windows,
            _ => &mut index.macos,
        };
        map.insert(text, module.entry);
    }
    title::keep_apart(&mut index);
    (index, pages)
}

/// Notes which modules' files lie apart, as the place of one of them is another module's.
pub(crate) fn tell_what_moved(index: &SymbolIndex, report: &mut BuildReport) {
    for module in &mut report.modules {
        let text = module.debug_id.to_string();
        let entry = [&index.linux, &index.windows, &index.macos].into_iter().find_map(|map| map.get(&text));
        let moved =
            entry.into_iter().flat_map(|entry| &entry.files).filter(|file| title::is_kept_apart(&text, &file.path));
        module.notes.extend(moved.map(|file| format!("stored as {}, as its place is another module's", file.path)));
    }
}

/// Page hashes of the modules' files, by the text of the module's id.
pub(crate) type Pages = BTreeMap<String, Vec<FilePages>>;

/// Cuts the index into shards, makes the manifests, and makes the bundle visible in the layout.
pub(crate) fn publish(index: &mut SymbolIndex, pages: &Pages, layout: &LayoutDir) -> Result<Digest, BuildError> {
    for shard in compose::shards(index)? {
        let entry = write_shard(&shard, pages, layout)?;
        index.shards.push(entry);
    }
    index.statistics = statistics(index);
    let composed = compose::compose(index)?;
    show(&composed, &index.version, layout)?;
    Ok(composed.digest)
}

/// Stores the page hashes of one shard's files.
fn write_shard(shard: &compose::Shard, pages: &Pages, layout: &LayoutDir) -> Result<ShardEntry, BuildError> {
    let own: Vec<FilePages> = shard.ids.iter().filter_map(|id| pages.get(&id.to_string())).flatten().cloned().collect();
    let id = |id: Option<&DebugId>| {
        let none = || BuildError::NoModules { paths: shard.arch.clone(), files: 0, hints: Vec::new(), report: None };
        id.cloned().ok_or_else(none)
    };
    let (first, last) = (id(shard.ids.first())?, id(shard.ids.last())?);
    let path = title::page_hashes(shard.platform, &shard.arch, &first);
    let bytes = page_hashes::write(&own)
        .map_err(|error| BuildError::ModuleIndex { module: path.clone(), problem: error.to_string() })?;
    layout.write_blob(&bytes)?;
    let role = FileRole::PageHashes;
    let measured = pages::measure(&bytes, pages::page_size_of(role));
    let page_hashes = FileEntry {
        role,
        path,
        size: measured.size,
        sha256: measured.digest,
        media_type: compose::media_type(role, FileFormat::Elf).to_owned(),
        page_size: pages::page_size_of(role),
        page_root: measured.root,
        piece_root: None,
        derived_from: Vec::new(),
    };
    Ok(ShardEntry { platform: shard.platform.to_owned(), arch: shard.arch.clone(), first, last, page_hashes })
}

fn statistics(index: &SymbolIndex) -> IndexStatistics {
    let mut seen = BTreeSet::new();
    let mut statistics = IndexStatistics::default();
    for file in index.files() {
        statistics.files += 1;
        if seen.insert(file.sha256) {
            statistics.bytes = statistics.bytes.saturating_add(file.size);
        }
    }
    statistics.modules = index.modules().count() as u64;
    statistics
}

/// Stores manifests and indexes, and lists the bundle, tagged with the version where that is a tag.
fn show(composed: &Composed, version: &str, layout: &LayoutDir) -> Result<(), LayoutError> {
    layout.write_blob(oci::EMPTY_JSON)?;
    layout.write_blob(&composed.symbol_index)?;
    for manifest in &composed.manifests {
        layout.write_blob(manifest)?;
    }
    layout.write_blob(&composed.image_index)?;
    let mut descriptor = Descriptor::of(oci::IMAGE_INDEX, &composed.image_index);
    descriptor.artifact_type = Some(oci::BUNDLE.to_owned());
    layout.add_to_index(descriptor, Some(version).filter(|version| symseal_bundle::is_tag(version)))
}
