//! Joining the parts that several platform jobs published into one bundle. Described in `docs/formats/bundle.md`, "Joining".
//!
//! Only indexes and page hashes are looked at; no file of the parts is read. The result is byte for byte the bundle
//! that one build over all inputs gives, as long as no module has files in two parts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use symseal_module::DebugId;

use crate::compose::{self, ComposeError, Shard};
use crate::digest::Digest;
use crate::index::{FileEntry, FileRole, IndexError, IndexStatistics, ModuleEntry, ShardEntry, SymbolIndex};
use crate::oci::ImageIndex;
use crate::page_hashes::{self, FilePages, PageHashes, PageHashesError};
use crate::{pages, sources, subject, title};

/// A bundle that is to be joined with others.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// What errors call it, such as its reference.
    pub name: &'a str,
    /// Its digest.
    pub digest: Digest,
    /// Its image index, whose digest was checked.
    pub image_index: &'a ImageIndex,
    /// Its symbol index.
    pub index: &'a SymbolIndex,
    /// The bytes of what its index names as `sources`: a manifest, or an image index of them. They are needed where another part
    /// names other sources.
    pub sources: Option<&'a [u8]>,
}

/// Parts that fit together. Where shards have to be cut anew, the page hashes of the old ones are asked for.
#[derive(Debug, Clone)]
pub struct Joining {
    index: SymbolIndex,
    shards: Vec<Cut>,
    sources: Option<Vec<u8>>,
}

/// A shard of the joined bundle.
#[derive(Debug, Clone)]
enum Cut {
    /// One part has just this shard: its manifest stays as it is.
    Kept(Box<ShardEntry>),
    /// Modules of several parts, or another selection of modules.
    Anew(Shard, Vec<Needed>),
}

/// Page hashes that are needed to cut a shard anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Ordinal of the part that has them.
    pub part: usize,
    /// The file of page hashes.
    pub file: FileEntry,
}

/// The joined bundle, without the files that the parts have already.
#[derive(Debug, Clone)]
pub struct Joined {
    /// Its symbol index, ready to be composed.
    pub index: SymbolIndex,
    /// Files of page hashes that no part has.
    pub page_hashes: Vec<Vec<u8>>,
    /// How many shards of the parts stay as they are.
    pub shards_kept: u64,
    /// The image index over the parts' sources, where there are several and `index` names it.
    pub sources: Option<Vec<u8>>,
}

/// What one part says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Says {
    /// The part.
    pub part: String,
    /// The value that it has.
    pub value: String,
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has {:?}", self.part, self.value)
    }
}

/// Why parts cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nothing to join.
    #[error("expected at least one part to join, found none")]
    NoParts,
    /// Two parts say different things that must be the same.
    #[error("the parts have different {what}s: {first}, {second}; {advice}")]
    Disagree {
        /// What they disagree about.
        what: &'static str,
        /// The one part.
        first: Box<Says>,
        /// The other part.
        second: Box<Says>,
        /// What to do.
        advice: &'static str,
    },
    /// Parts describe modules, and not in the same way.
    #[error("{}", told(.0))]
    Conflicts(Vec<Conflict>),
    /// A part's manifests do not follow from its index by the rules of this version.
    #[error(
        "{part}: expected {expected}, as its image index says, found {found} when its index is composed: it was written by another version of symseal ({producer}); publish it again with this one"
    )]
    Foreign {
        /// The part.
        part: String,
        /// Its digest.
        expected: Digest,
        /// The digest that its index gives.
        found: Digest,
        /// The program that its index names.
        producer: String,
    },
    /// Page hashes that were asked for, and what came does not serve.
    #[error("the page hashes {digest}: {problem}")]
    PageHashes {
        /// The file.
        digest: Digest,
        /// What is wrong with it.
        problem: String,
    },
    /// A part's sources, which others stand beside.
    #[error("{part}: its sources {digest}: {problem}")]
    Sources {
        /// The part.
        part: String,
        /// What its index names.
        digest: Digest,
        /// What is wrong.
        problem: String,
    },
    /// A part, or the joined bundle, cannot be composed.
    #[error("{part}: {source}")]
    Compose {
        /// The part, or "the joined bundle".
        part: String,
        /// What is wrong.
        source: ComposeError,
    },
}

/// A module that two parts describe, and not in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The debug id.
    pub id: String,
    /// The one part.
    pub first: String,
    /// The other part.
    pub second: String,
    /// What differs.
    pub difference: String,
}

/// More than these would hide what they have in common.
const CONFLICTS_TOLD: usize = 20;

/// A line for each conflict, and one that says what to do.
fn told(conflicts: &[Conflict]) -> String {
    let mut told = String::new();
    for Conflict { id, first, second, difference } in conflicts.iter().take(CONFLICTS_TOLD) {
        told.push_str(&format!("{first} and {second} both have the module {id}, and differ in {difference}\n"));
    }
    match conflicts.len().saturating_sub(CONFLICTS_TOLD) {
        0 => {}
        more => told.push_str(&format!("… and {more} more modules\n")),
    }
    told.push_str("build each of them in one of the jobs, with all its files");
    told
}

/// Merges the parts' indexes. `name` and `version` are the joined release's; where one is not given, the parts must agree.
///
/// # Errors
/// [`JoinError`] names the parts that do not fit together.
pub fn join(parts: &[Part<'_>], name: Option<&str>, version: Option<&str>) -> Result<Joining, JoinError> {
    let first = parts.first().ok_or(JoinError::NoParts)?;
    parts.iter().try_for_each(check_part)?;
    agree(parts, "producer", "publish them all with one version of symseal", |index| {
        format!("{} {}", index.producer.name, index.producer.version)
    })?;
    if name.is_none() {
        agree(parts, "name", "say what the joined release is called", |index| index.name.clone())?;
    }
    if version.is_none() {
        agree(parts, "version", "say which version the joined release is", |index| index.version.clone())?;
    }
    let joined_sources = join_sources(parts)?;
    let mut index = SymbolIndex {
        name: name.unwrap_or(&first.index.name).to_owned(),
        version: version.unwrap_or(&first.index.version).to_owned(),
        linux: BTreeMap::new(),
        windows: BTreeMap::new(),
        macos: BTreeMap::new(),
        shards: Vec::new(),
        sources: joined_sources.as_ref().map(|sources| sources.digest),
        statistics: IndexStatistics::default(),
        schema: first.index.schema.clone(),
        producer: first.index.producer.clone(),
    };
    // Which part a module comes from.
    let mut origins: BTreeMap<&str, usize> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for (ordinal, part) in parts.iter().enumerate() {
        for (platform, id, module) in part.index.modules() {
            // Where its files lie in the part may be owed to another module of it.
            let mut module = module.clone();
            title::take_back(id, &mut module);
            let map = match platform {
                "linux" => &mut index.linux,
                "windows" => &mut index.windows,
                _ => &mut index.macos,
            };
            if let Some(known) = map.get(id) {
                let other = origins.get(id).and_then(|ordinal| parts.get(*ordinal)).unwrap_or(first);
                match earlier_by_names(known, &module) {
                    Some(Ordering::Greater) => {}
                    Some(_) => continue,
                    None => {
                        conflicts.extend(conflict(id, (other, known), (part, &module)));
                        continue;
                    }
                }
            }
            map.insert(id.to_owned(), module);
            origins.insert(id, ordinal);
        }
    }
    if !conflicts.is_empty() {
        return Err(JoinError::Conflicts(conflicts));
    }
    title::keep_apart(&mut index);
    let of_joined = |source| JoinError::Compose { part: "the joined bundle".to_owned(), source };
    let shards = compose::shards(&index).map_err(of_joined)?;
    let shards = shards.into_iter().map(|shard| cut(shard, &index, parts, &origins)).collect();
    Ok(Joining { index, shards, sources: joined_sources.and_then(|sources| sources.image_index) })
}

impl Joining {
    /// The files of page hashes that [`Joining::finish`] wants to see, each once.
    pub fn needed(&self) -> Vec<&Needed> {
        let mut seen = BTreeSet::new();
        let anew = self.shards.iter().flat_map(|cut| match cut {
            Cut::Kept(_) => &[][..],
            Cut::Anew(_, needed) => needed,
        });
        anew.filter(|needed| seen.insert(needed.file.sha256)).collect()
    }

    /// The joined bundle. `fetched` has the bytes of [`Joining::needed`] by digest.
    ///
    /// # Errors
    /// [`JoinError::PageHashes`] where they are missing or not those of the files; [`JoinError::Compose`] where the
    /// joined index breaks a rule that no part breaks alone, such as that titles are unique.
    pub fn finish(self, fetched: &BTreeMap<Digest, Vec<u8>>) -> Result<Joined, JoinError> {
        let mut joined = Joined { index: self.index, page_hashes: Vec::new(), shards_kept: 0, sources: self.sources };
        for cut in self.shards {
            let entry = match cut {
                Cut::Kept(entry) => {
                    joined.shards_kept += 1;
                    *entry
                }
                Cut::Anew(shard, needed) => {
                    let pages = pages_of(&joined.index, &shard, &needed, fetched)?;
                    let (entry, bytes) = shard_entry(&shard, &pages)?;
                    joined.page_hashes.push(bytes);
                    entry
                }
            };
            joined.index.shards.push(entry);
        }
        joined.index.statistics = statistics(&joined.index);
        let of_joined =
            |source: IndexError| JoinError::Compose { part: "the joined bundle".to_owned(), source: source.into() };
        joined.index.check().map_err(of_joined)?;
        Ok(joined)
    }
}

/// A part must be what this version composes from its index: only then is nothing lost that this version cannot read, and
/// a shard that is kept has just the manifest that will be written for it.
fn check_part(part: &Part<'_>) -> Result<(), JoinError> {
    let of_part = |source| JoinError::Compose { part: part.name.to_owned(), source };
    let mut composed = compose::compose(part.index).map_err(of_part)?;
    if let Some(of) = &part.image_index.subject {
        composed = subject::with_subject(composed, of).map_err(|error| of_part(error.into()))?;
    }
    if composed.digest == part.digest {
        return Ok(());
    }
    Err(JoinError::Foreign {
        part: part.name.to_owned(),
        expected: part.digest,
        found: composed.digest,
        producer: format!("{} {}", part.index.producer.name, part.index.producer.version),
    })
}

fn agree(
    parts: &[Part<'_>],
    what: &'static str,
    advice: &'static str,
    value: impl Fn(&SymbolIndex) -> String,
) -> Result<(), JoinError> {
    for pair in parts.windows(2) {
        let [first, second] = pair else { continue };
        let says = |part: &Part<'_>| Box::new(Says { part: part.name.to_owned(), value: value(part.index) });
        let (first, second) = (says(first), says(second));
        if first.value != second.value {
            return Err(JoinError::Disagree { what, first, second, advice });
        }
    }
    Ok(())
}

/// The sources that parts name, put together. Where all name the same ones, their manifests need not be seen.
fn join_sources(parts: &[Part<'_>]) -> Result<Option<sources::JoinedSources>, JoinError> {
    let named: BTreeSet<Digest> = parts.iter().filter_map(|part| part.index.sources).collect();
    if named.len() <= 1 {
        return Ok(named.first().map(|digest| sources::JoinedSources { digest: *digest, image_index: None }));
    }
    let mut manifests = Vec::new();
    for part in parts {
        let Some(digest) = part.index.sources else { continue };
        let error = |problem: String| JoinError::Sources { part: part.name.to_owned(), digest, problem };
        let bytes = part.sources.ok_or_else(|| error("they are needed beside those of another part".to_owned()))?;
        manifests.extend(sources::manifests(&digest, bytes).map_err(|found| error(found.to_string()))?);
    }
    let of_joined = |source: crate::oci::OciError| JoinError::Compose {
        part: "the joined bundle".to_owned(),
        source: source.into(),
    };
    sources::joined(manifests).map_err(of_joined)
}

/// Two entries of one module, by the names of the files that they were made from; none where they cannot be told apart by these alone.
///
/// Of equal files under several names one build takes the smallest. Two parts that have the same files under different names
/// give that module when the one has, of each file, no greater name than the other.
fn earlier_by_names(first: &ModuleEntry, second: &ModuleEntry) -> Option<Ordering> {
    if first == second {
        return Some(Ordering::Equal);
    }
    let names = |module: &ModuleEntry| -> BTreeMap<Digest, String> {
        module.inputs.iter().map(|input| (input.sha256, input.name.clone())).collect()
    };
    let (first_names, second_names) = (names(first), names(second));
    let is_same = first_names.keys().eq(second_names.keys())
        && first.files.iter().map(|file| file.role).eq(second.files.iter().map(|file| file.role))
        && (&first.format, &first.arch, &first.statistics) == (&second.format, &second.arch, &second.statistics);
    if !is_same {
        return None;
    }
    let orders: BTreeSet<Ordering> =
        first_names.values().zip(second_names.values()).map(|(first, second)| first.cmp(second)).collect();
    let (is_less, is_greater) = (orders.contains(&Ordering::Less), orders.contains(&Ordering::Greater));
    match (is_less, is_greater) {
        (true, false) => Some(Ordering::Less),
        (false, true) => Some(Ordering::Greater),
        _ => None,
    }
}

fn conflict(id: &str, first: (&Part<'_>, &ModuleEntry), second: (&Part<'_>, &ModuleEntry)) -> Option<Conflict> {
    (first.1 != second.1).then(|| Conflict {
        id: id.to_owned(),
        first: first.0.name.to_owned(),
        second: second.0.name.to_owned(),
        difference: difference(first.1, second.1),
    })
}

/// The first thing in which two entries of one module differ, for people.
fn difference(first: &ModuleEntry, second: &ModuleEntry) -> String {
    if first.name != second.name {
        return format!("the file name ({:?} and {:?})", first.name, second.name);
    }
    let roles = |module: &ModuleEntry| module.files.iter().map(|file| file.role).collect::<Vec<_>>();
    if roles(first) != roles(second) {
        let listed = |module| roles(module).iter().map(|role| role.code()).collect::<Vec<_>>().join(", ");
        return format!("the files that they hold of it ({}; {})", listed(first), listed(second));
    }
    let file = first.files.iter().zip(&second.files).find(|(first, second)| first != second);
    match file {
        Some((first, second)) => format!("its {} file ({} and {})", first.role, first.sha256, second.sha256),
        None => "what they say of it".to_owned(),
    }
}

/// The shard as one part has it, or what is needed to make it.
fn cut(shard: Shard, joined: &SymbolIndex, parts: &[Part<'_>], origins: &BTreeMap<&str, usize>) -> Cut {
    let texts: Vec<String> = shard.ids.iter().map(ToString::to_string).collect();
    let in_group = |entry: &&ShardEntry| entry.platform == shard.platform && entry.arch == shard.arch;
    for part in parts {
        let same_range =
            |entry: &&ShardEntry| shard.ids.first() == Some(&entry.first) && shard.ids.last() == Some(&entry.last);
        if let Some(entry) = part.index.shards.iter().filter(in_group).find(same_range)
            && modules_of(part.index, entry) == shard.ids
            // A module that is taken from another part, under the name that it has there, may have other bytes.
            && shard.ids.iter().all(|id| digests(part.index, id) == digests(joined, id))
        {
            return Cut::Kept(Box::new(entry.clone()));
        }
    }
    let mut needed: Vec<Needed> = Vec::new();
    for (id, text) in shard.ids.iter().zip(&texts) {
        let Some(ordinal) = origins.get(text.as_str()).copied() else { continue };
        let Some(part) = parts.get(ordinal) else { continue };
        let holds = |entry: &&ShardEntry| entry.first <= *id && *id <= entry.last;
        let Some(entry) = part.index.shards.iter().filter(in_group).find(holds) else { continue };
        if !needed.iter().any(|known| known.file.sha256 == entry.page_hashes.sha256) {
            needed.push(Needed { part: ordinal, file: entry.page_hashes.clone() });
        }
    }
    Cut::Anew(shard, needed)
}

/// A module's files, wherever in the bundle they lie.
fn digests(index: &SymbolIndex, id: &DebugId) -> BTreeSet<(FileRole, Digest)> {
    index.module(id).into_iter().flat_map(|module| &module.files).map(|file| (file.role, file.sha256)).collect()
}

/// The ids of the modules in a part's shard, rising.
fn modules_of(index: &SymbolIndex, shard: &ShardEntry) -> Vec<DebugId> {
    let modules =
        index.modules().filter(|(platform, _, module)| *platform == shard.platform && module.arch == shard.arch);
    let mut ids: Vec<DebugId> = modules.filter_map(|(_, id, _)| id.parse().ok()).collect();
    ids.retain(|id| shard.first <= *id && *id <= shard.last);
    ids.sort_unstable();
    ids
}

/// The page hashes of the files of a shard's modules, each checked against the root that the index has.
fn pages_of(
    index: &SymbolIndex,
    shard: &Shard,
    needed: &[Needed],
    fetched: &BTreeMap<Digest, Vec<u8>>,
) -> Result<Vec<FilePages>, JoinError> {
    let malformed =
        |digest: Digest| move |error: PageHashesError| JoinError::PageHashes { digest, problem: error.to_string() };
    let mut known = Vec::new();
    for Needed { file, .. } in needed {
        let bytes = fetched.get(&file.sha256).ok_or_else(|| JoinError::PageHashes {
            digest: file.sha256,
            problem: "they were not fetched".to_owned(),
        })?;
        known.push(PageHashes::parse(bytes).map_err(malformed(file.sha256))?);
    }
    let mut pages = Vec::new();
    for module in shard.ids.iter().filter_map(|id| index.module(id)) {
        for file in &module.files {
            let found = known.iter().find_map(|hashes| hashes.find(&file.sha256, file.page_size));
            let found = found.filter(|found| found.size == file.size && found.root() == file.page_root);
            let found = found.ok_or_else(|| JoinError::PageHashes {
                digest: needed.first().map_or(file.sha256, |needed| needed.file.sha256),
                problem: format!("expected hashes of {} that give the root {}, found none", file.path, file.page_root),
            })?;
            pages.push(FilePages {
                sha256: file.sha256,
                page_size: file.page_size,
                size: file.size,
                leaves: found.leaves(),
            });
        }
    }
    Ok(pages)
}

/// A shard's entry and its file of page hashes.
fn shard_entry(shard: &Shard, pages: &[FilePages]) -> Result<(ShardEntry, Vec<u8>), JoinError> {
    let digest = Digest::of(b"");
    let bytes =
        page_hashes::write(pages).map_err(|error| JoinError::PageHashes { digest, problem: error.to_string() })?;
    let id = |id: Option<&DebugId>| {
        id.cloned().ok_or_else(|| JoinError::PageHashes { digest, problem: "a shard without modules".to_owned() })
    };
    let (first, last) = (id(shard.ids.first())?, id(shard.ids.last())?);
    let role = FileRole::PageHashes;
    let measured = pages::measure(&bytes, pages::page_size_of(role));
    let page_hashes = FileEntry {
        role,
        path: title::page_hashes(shard.platform, &shard.arch, &first),
        size: measured.size,
        sha256: measured.digest,
        media_type: page_hashes::MEDIA_TYPE.to_owned(),
        page_size: pages::page_size_of(role),
        page_root: measured.root,
        piece_root: None,
        derived_from: Vec::new(),
    };
    Ok((ShardEntry { platform: shard.platform.to_owned(), arch: shard.arch.clone(), first, last, page_hashes }, bytes))
}

/// The counts over a complete index, by the builder's rule: each file once, bytes of distinct files.
fn statistics(index: &SymbolIndex) -> IndexStatistics {
    let mut seen = BTreeSet::new();
    let mut statistics = IndexStatistics { modules: index.modules().count() as u64, ..IndexStatistics::default() };
    for file in index.files() {
        statistics.files += 1;
        if seen.insert(file.sha256) {
            statistics.bytes = statistics.bytes.saturating_add(file.size);
        }
    }
    statistics
}
