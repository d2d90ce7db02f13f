//! From a symbol index to the OCI manifests around it. Every byte follows from the index.

use std::collections::BTreeMap;

use symseal_module::DebugId;

use crate::digest::Digest;
use crate::index::{FileEntry, FileRole, IndexError, ModuleEntry, ShardEntry, SymbolIndex};
use crate::oci::{self, Descriptor, ImageIndex, Manifest, OciError};
use crate::{page_hashes, title};

/// A manifest has fewer than 400 layers: one registry refuses 500, and a shard stays near 150 KB.
pub const MAX_LAYERS: usize = 399;

/// The modules of one manifest, before its page hashes are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// `linux`.
    pub platform: &'static str,
    /// Architecture code.
    pub arch: String,
    /// Its modules' ids, rising.
    pub ids: Vec<DebugId>,
}

/// A bundle's OCI parts, ready to be stored.
#[derive(Debug, Clone)]
pub struct Composed {
    /// The bundle's digest: that of the image index.
    pub digest: Digest,
    /// The image index.
    pub image_index: Vec<u8>,
    /// The root manifest, then one manifest per shard.
    pub manifests: Vec<Vec<u8>>,
    /// `symbol_index.json`.
    pub symbol_index: Vec<u8>,
}

/// Why an index cannot be composed.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// A manifest is too large.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The index contradicts itself.
    #[error("symbol_index.json: {0}")]
    Index(#[from] IndexError),
    /// A module with more files than a manifest has layers.
    #[error("module {id} has {files} files, more than the {} that one manifest holds", MAX_LAYERS - 1)]
    TooManyFiles {
        /// The module.
        id: String,
        /// Its files.
        files: usize,
    },
    /// A module belongs to no shard, or to several.
    #[error("module {id} is in {shards} shards, expected 1")]
    Shards {
        /// The module.
        id: String,
        /// How many shards claim it.
        shards: usize,
    },
}

/// Cuts the modules of an index into shards: by platform and architecture, then by debug id, each as full as it may be.
pub fn shards(index: &SymbolIndex) -> Result<Vec<Shard>, ComposeError> {
    let mut shards: Vec<Shard> = Vec::new();
    for ((platform, arch), modules) in grouped(index)? {
        // Layers that the last shard may still take. 0 at the start, so that a group begins a shard of its own.
        let mut room = 0;
        for module in modules {
            let files = module.entry.files.len();
            if files >= MAX_LAYERS {
                return Err(ComposeError::TooManyFiles { id: module.text.to_owned(), files });
            }
            match shards.last_mut().filter(|_| files < room) {
                Some(shard) => shard.ids.push(module.id),
                None => {
                    shards.push(Shard { platform, arch: arch.to_owned(), ids: vec![module.id] });
                    room = MAX_LAYERS;
                }
            }
            // One layer is left for the page hashes: `files < room` above.
            room -= files;
        }
    }
    Ok(shards)
}

/// The manifests and the image index of a complete symbol index.
pub fn compose(index: &SymbolIndex) -> Result<Composed, ComposeError> {
    index.check()?;
    let symbol_index = index.to_canonical_json()?;
    let layer = Descriptor::of(oci::SYMBOL_INDEX, &symbol_index).with(oci::TITLE, title::SYMBOL_INDEX);
    let root = Manifest::artifact(oci::BUNDLE, vec![layer]).to_bytes()?;
    let mut root_descriptor = Descriptor::of(oci::MANIFEST, &root);
    root_descriptor.artifact_type = Some(oci::BUNDLE.to_owned());
    let mut children = vec![root_descriptor];
    let mut manifests = vec![root];

    let groups = grouped(index)?;
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    for shard in &index.shards {
        let group = groups.iter().find(|((platform, arch), _)| *platform == shard.platform && *arch == shard.arch);
        let modules = group.map(|(_, modules)| in_range(modules, shard)).unwrap_or_default();
        for module in modules {
            *placed.entry(module.text).or_default() += 1;
        }
        let bytes = Manifest::artifact(oci::BUNDLE, shard_layers(shard, modules)).to_bytes()?;
        let mut descriptor = Descriptor::of(oci::MANIFEST, &bytes)
            .with(oci::FIRST_DEBUG_ID, shard.first.to_string())
            .with(oci::LAST_DEBUG_ID, shard.last.to_string());
        descriptor.artifact_type = Some(oci::BUNDLE.to_owned());
        descriptor.platform = Some(oci::Platform {
            architecture: oci::oci_architecture(&shard.arch).to_owned(),
            os: oci::oci_os(&shard.platform).to_owned(),
        });
        children.push(descriptor);
        manifests.push(bytes);
    }
    for (_, text, _) in index.modules() {
        let shards = placed.get(text).copied().unwrap_or_default();
        if shards != 1 {
            return Err(ComposeError::Shards { id: text.to_owned(), shards });
        }
    }
    let image_index = ImageIndex::new(Some(oci::BUNDLE), children).to_bytes()?;
    Ok(Composed { digest: Digest::of(&image_index), image_index, manifests, symbol_index })
}

struct Module<'a> {
    id: DebugId,
    text: &'a str,
    entry: &'a ModuleEntry,
}

/// The modules by platform and architecture, in the order of their ids, which is not that of the ids' texts.
fn grouped(index: &SymbolIndex) -> Result<BTreeMap<(&'static str, &str), Vec<Module<'_>>>, ComposeError> {
    let mut groups: BTreeMap<(&'static str, &str), Vec<Module<'_>>> = BTreeMap::new();
    for (platform, text, entry) in index.modules() {
        let problem = || IndexError::Value { place: text.to_owned(), problem: "not a debug id".to_owned() };
        let id = text.parse().map_err(|_| problem())?;
        groups.entry((platform, &entry.arch)).or_default().push(Module { id, text, entry });
    }
    groups.values_mut().for_each(|modules| modules.sort_unstable_by(|a, b| a.id.cmp(&b.id)));
    Ok(groups)
}

/// The modules of a group that lie in a shard's range.
fn in_range<'a, 'm>(modules: &'a [Module<'m>], shard: &ShardEntry) -> &'a [Module<'m>] {
    let start = modules.partition_point(|module| module.id < shard.first);
    let end = modules.partition_point(|module| module.id <= shard.last);
    modules.get(start..end).unwrap_or_default()
}

/// The shard's layers: its page hashes, then its modules' files by id, role and path.
fn shard_layers(shard: &ShardEntry, modules: &[Module<'_>]) -> Vec<Descriptor> {
    let mut layers = vec![layer(&shard.page_hashes)];
    for module in modules {
        let mut files: Vec<&FileEntry> = module.entry.files.iter().collect();
        files.sort_by(|a, b| (a.role, &a.path).cmp(&(b.role, &b.path)));
        layers.extend(files.into_iter().map(|file| layer(file).with(oci::DEBUG_ID, module.text)));
    }
    layers
}

fn layer(file: &FileEntry) -> Descriptor {
    Descriptor::new(&file.media_type, file.sha256, file.size)
        .with(oci::TITLE, &file.path)
        .with(oci::KIND, file.role.code())
}

/// The format of a file that was taken as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileFormat {
    /// ELF: executables, debug files, split DWARF.
    Elf,
    /// PE.
    Pe,
    /// A program database, portable ones included.
    Pdb,
    /// Mach-O, thin or universal.
    Macho,
    /// A file of a dSYM bundle.
    Dsym,
}

/// The media type of a file's layer. Tables have one by their role, other files by their format.
pub const fn media_type(role: FileRole, format: FileFormat) -> &'static str {
    match (role, format) {
        (FileRole::SymbolTable, _) => oci::SYMBOL_TABLE,
        (FileRole::UnwindTable, _) => oci::UNWIND_TABLE,
        (FileRole::ModuleIndex, _) => oci::MODULE_INDEX,
        (FileRole::PageHashes, _) => page_hashes::MEDIA_TYPE,
        (_, FileFormat::Elf) => oci::ELF,
        (_, FileFormat::Pe) => oci::PE,
        (_, FileFormat::Pdb) => oci::PDB,
        (_, FileFormat::Macho) => oci::MACHO,
        (_, FileFormat::Dsym) => oci::DSYM,
    }
}
