//! The sources of a release: which files its line tables name, where they lie below the directories that were given, and
//! whether they are the ones that were compiled. `docs/formats/sources.md` states the rules.

mod lookup;
mod open;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use symseal_artifact::{Checksum, FunctionStream};
use symseal_bundle::oci::{self, Descriptor, OciError};
use symseal_bundle::sources::{self, CheckedBy, SourcesError, SourcesWriter};
use symseal_bundle::{Digest, LayoutDir, LayoutError, is_tag};

pub use lookup::{ParseSourceMapError, SourceMap};
pub use report::{LargeSource, MismatchedSource, RefusedSource, SourcesReport};

use crate::error::place_of;
use lookup::Lookup;
use open::{Found, Root};

/// The most bytes of sources that are gathered for one release.
pub const MAX_SOURCES_BYTES: u64 = 4 << 30;

/// Where sources are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// The directories, in the order in which they are looked at. Nothing outside them is read.
    pub roots: Vec<PathBuf>,
    /// What stands in the line tables, and where it is found.
    pub maps: Vec<SourceMap>,
}

/// The source files that are asked for: the paths of all modules' line tables with their checksums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedSources {
    /// Distinct checksums by path, as the line tables name it; none where no table has one.
    paths: BTreeMap<String, Vec<Checksum>>,
}

/// Why sources were not gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// A directory that was given cannot be opened.
    #[error("cannot open the directory of sources {}: {source}", place_of(path))]
    Root {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A map leads to where nothing is read.
    #[error(
        "the source map {map} leads to no directory of sources: give that directory, or a path relative to those that are given"
    )]
    MapOutside {
        /// The map, `FROM=TO`.
        map: String,
    },
    /// A source file cannot be read.
    #[error("cannot read {}: {source}", place_of(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// More than [`MAX_SOURCES_BYTES`].
    #[error("the sources have more than {MAX_SOURCES_BYTES} bytes; name fewer directories")]
    TooManyBytes,
    /// The packs cannot be made.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The manifest cannot be made.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The layout cannot be written.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl WantedSources {
    /// Adds the source files that a module's functions name.
    pub fn add_stream(&mut self, stream: &FunctionStream) {
        for file in &stream.sources {
            self.add(stream.strings.get(file.path), file.checksum);
        }
    }

    /// Adds one path, as a line table names it.
    pub fn add(&mut self, path: &str, checksum: Option<Checksum>) {
        if path.is_empty() {
            return;
        }
        if !self.paths.contains_key(path) {
            self.paths.insert(path.to_owned(), Vec::new());
        }
        let Some((checksum, known)) = checksum.zip(self.paths.get_mut(path)) else { return };
        if let Err(at) = known.binary_search(&checksum) {
            known.insert(at, checksum);
        }
    }

    /// Adds what another one holds.
    pub fn extend(&mut self, other: Self) {
        for (path, checksums) in other.paths {
            self.add(&path, None);
            for checksum in checksums {
                self.add(&path, Some(checksum));
            }
        }
    }
}

/// Sources that were gathered into a layout, not yet visible in it.
#[derive(Debug, Clone)]
pub struct GatheredSources {
    /// The manifest of the artifact; none where no file was found. The symbol index names its digest.
    pub manifest: Option<Descriptor>,
    /// What was found and what was not.
    pub report: SourcesReport,
}

impl GatheredSources {
    /// The digest that the symbol index names.
    pub fn digest(&self) -> Option<Digest> {
        self.manifest.as_ref().map(|manifest| manifest.digest)
    }

    /// Makes the artifact visible in the layout's `index.json`, tagged `<version>.sources` where that is a tag.
    pub fn publish(&self, version: &str, layout: &LayoutDir) -> Result<(), LayoutError> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let tag = format!("{version}{}", sources::TAG_SUFFIX);
        layout.add_to_index(manifest.clone(), Some(tag.as_str()).filter(|tag| is_tag(tag)))
    }
}

/// Looks for the wanted files and stores those that are found as a sources artifact in the layout. Packs are written as they
/// fill up, so one pack and one file are held in memory. Without a layout nothing is stored, and the report says what would be.
pub fn gather_sources(
    wanted: &WantedSources,
    options: &SourceOptions,
    layout: Option<&LayoutDir>,
) -> Result<GatheredSources, GatherError> {
    let store = |bytes: &[u8]| layout.map_or(Ok(Digest::of(bytes)), |layout| layout.write_blob(bytes));
    let roots: Vec<Root> = options.roots.iter().map(|path| Root::open(path)).collect::<Result<_, _>>()?;
    let lookup = Lookup::new(roots.iter().map(Root::places).collect(), &options.maps);
    if let Some(map) = lookup.outside().and_then(|outside| options.maps.get(outside)) {
        return Err(GatherError::MapOutside { map: map.to_string() });
    }
    let mut report = SourcesReport::default();
    let mut writer = SourcesWriter::new();
    let mut total = 0_u64;
    for (path, checksums) in &wanted.paths {
        for (sha256, file) in find(path, checksums, &lookup, &roots, &mut report)? {
            debug_assert_eq!(sha256, Digest::of(&file.bytes));
            total = total.saturating_add(file.bytes.len() as u64);
            if total > MAX_SOURCES_BYTES {
                return Err(GatherError::TooManyBytes);
            }
            for pack in writer.add(path, &file.bytes, file.checked_by)? {
                store(&pack.bytes)?;
            }
        }
    }
    let (last, table) = writer.finish()?;
    report.statistics = table.statistics;
    if table.files.is_empty() {
        return Ok(GatheredSources { manifest: None, report });
    }
    if let Some(pack) = last {
        store(&pack.bytes)?;
    }
    let json = table.to_canonical_json()?;
    let manifest = sources::manifest(&table, &json)?;
    store(oci::EMPTY_JSON)?;
    store(&json)?;
    store(&manifest)?;
    let mut descriptor = Descriptor::of(oci::MANIFEST, &manifest);
    descriptor.artifact_type = Some(sources::ARTIFACT_TYPE.to_owned());
    report.digest = Some(descriptor.digest);
    Ok(GatheredSources { manifest: Some(descriptor), report })
}

/// A file that was found and is the one that was compiled, as far as anything says so.
struct Taken {
    bytes: Vec<u8>,
    checked_by: Option<CheckedBy>,
}

/// The files of one path by digest: one for each checksum; where no table has a checksum, the first one that is there.
fn find(
    path: &str,
    checksums: &[Checksum],
    lookup: &Lookup,
    roots: &[Root],
    report: &mut SourcesReport,
) -> Result<BTreeMap<Digest, Taken>, GatherError> {
    let mut taken = BTreeMap::new();
    if path.len() > sources::MAX_PATH_BYTES {
        report.wanted = report.wanted.saturating_add(1);
        report.refuse(path, "its path is longer than 4096 bytes".to_owned());
        return Ok(taken);
    }
    let mut missing: Vec<Option<&Checksum>> =
        if checksums.is_empty() { vec![None] } else { checksums.iter().map(Some).collect() };
    // What lies at the path and is nothing that was asked for; where all is, one of those: it is another file than the missing one.
    let mut other: Option<(PathBuf, Vec<u8>)> = None;
    let mut nearest: Option<(PathBuf, Digest)> = None;
    let (mut problem, mut large) = (None, None);
    for candidate in lookup.candidates(path) {
        if missing.is_empty() {
            break;
        }
        let Some(root) = roots.get(candidate.root) else { continue };
        let (parts, found) = root.find(&candidate.parts, candidate.any_case_from)?;
        match found {
            Found::Nothing => {}
            Found::Refused(why) => problem = problem.or(Some(why)),
            Found::TooLarge(bytes) => large = large.or(Some(bytes)),
            Found::File(bytes) => {
                let before = missing.len();
                let mut checked_by = None;
                missing.retain(|checksum| match checksum {
                    None => false,
                    Some(checksum) => {
                        let same = open::checksum_like(checksum, &bytes) == **checksum;
                        if same {
                            checked_by = Some(open::kind(checksum));
                        }
                        !same
                    }
                });
                let digest = Digest::of(&bytes);
                if missing.len() < before {
                    nearest = nearest.or_else(|| Some((root.place(&parts), digest)));
                    taken.insert(digest, Taken { bytes, checked_by });
                } else if !taken.contains_key(&digest) {
                    other = other.or_else(|| Some((root.place(&parts), bytes)));
                }
            }
        }
    }
    let found = other.as_ref().map(|(at, bytes)| (at, bytes.as_slice())).or_else(|| {
        let (at, digest) = nearest.as_ref()?;
        Some((at, taken.get(digest)?.bytes.as_slice()))
    });
    report.wanted = report.wanted.saturating_add(taken.len() as u64);
    match (found, problem, large) {
        (Some((at, bytes)), ..) => {
            report.wanted = report.wanted.saturating_add(missing.len() as u64);
            report.mismatched.extend(missing.into_iter().flatten().map(|expected| MismatchedSource {
                path: path.to_owned(),
                file: place_of(at),
                expected: open::text(expected),
                found: open::text(&open::checksum_like(expected, bytes)),
            }));
        }
        // However many files the path stands for, nothing tells them apart: it is named once.
        (None, problem, large) if !missing.is_empty() => {
            report.wanted = report.wanted.saturating_add(1);
            match (problem, large) {
                (Some(why), _) => report.refuse(path, why),
                (None, Some(bytes)) => report.too_large.push(LargeSource { path: path.to_owned(), bytes }),
                (None, None) => report.not_found.push(path.to_owned()),
            }
        }
        (None, ..) => {}
    }
    Ok(taken)
}
