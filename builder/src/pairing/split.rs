//! Split DWARF: `.dwo` files and `.dwp` packages, by the ids of the units that the modules' skeletons ask for. (DWARF 5,
//! section 7.3.2; GNU's `DW_AT_GNU_dwo_id` before)

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::{ObjectFile, ReleaseFile, SplitContents, SplitMisfits, escaped};
use symseal_bundle::{FileRole, LayoutDir};
use symseal_module::DebugId;

use super::contradiction::Contradiction;
use super::{Module, Paired, Pairing, Part, is_named};
use crate::error::BuildError;
use crate::inputs::InputFile;
use crate::inputs::file::SplitAsked;
use crate::report::{Mismatch, NamedBy, PairedBy, Side, Superseded};

/// A module whose split DWARF is not all there.
struct Suspect<'f> {
    /// What asks for it.
    described: Part<'f>,
    /// What a package of it may be called after.
    names: Vec<&'f str>,
    /// The units, and what their files are called.
    lacking: Vec<(u64, String)>,
}

impl<'f> Suspect<'f> {
    fn new(module: &Module<'f>, described: Part<'f>) -> Self {
        let binary = module.binary.map(|binary| binary.file.name.as_str());
        let names = std::iter::once(described.file.name.as_str()).chain(binary).collect();
        Self { described, names, lacking: Vec::new() }
    }
}

/// A file that has units of a module's ids, and of another build of their sources.
struct Stale<'f> {
    id: DebugId,
    described: Part<'f>,
    file: usize,
    /// The first of the units, and in what it contradicts the module's code.
    unit: u64,
    first: Option<(u64, u64)>,
    /// How many units.
    units: usize,
}

/// Bytes of split files that are compared with a module's code at a time, where no single one is larger.
const COMPARED_AT_ONCE: u64 = 256 << 20;

/// Gives each module the split files that hold a unit which it asks for. A file may belong to several modules. Two files that give
/// different units under one id, one of which nothing takes, are an error that names both. A file whose
/// units contradict the code of the modules that ask for them is a mismatch.
pub(super) fn join<'f>(
    pairing: &mut Pairing<'f>,
    files: &[Part<'f>],
    layout: Option<&LayoutDir>,
) -> Result<(), BuildError> {
    let mut by_unit: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, part) in files.iter().enumerate() {
        for unit in units(*part) {
            by_unit.entry(*unit).or_default().push(at);
        }
    }
    let mut used = vec![false; files.len()];
    let mut suspects: BTreeMap<DebugId, Suspect<'f>> = BTreeMap::new();
    // Binaries in which nothing asks for split DWARF.
    let mut without_skeletons: Vec<&'f InputFile> = Vec::new();
    let mut stale: Vec<Stale<'f>> = Vec::new();
    // Which file was taken for which unit.
    let mut taken_for: BTreeSet<(u64, usize)> = BTreeSet::new();
    for (id, module) in &mut pairing.modules {
        let Some(described) = module.described() else { continue };
        let asked = described.object().map(|object| object.split_asked.as_slice()).unwrap_or_default();
        if asked.is_empty() {
            without_skeletons.extend(module.binary.map(|binary| binary.file));
        }
        let mut taken = BTreeSet::new();
        let mut missing = 0_usize;
        let called_after: Vec<String> =
            module.binary.iter().chain([&described]).map(|part| format!("{}.dwp", part.file.name)).collect();
        let holders = |unit: &SplitAsked| by_unit.get(&unit.id).map(Vec::as_slice).unwrap_or_default();
        let candidates = |unit: &SplitAsked| candidates(holders(unit), files, &called_after);
        let mut misfits = misfits(described, asked.iter().flat_map(candidates), files, layout)?;
        // Where what comes first is of another build, one of the others may be right.
        let is_stale = |misfits: &Misfits, unit: &SplitAsked, at: usize| {
            misfits.get(&(unit.id, at)).is_some_and(|misfits| misfits.functions > 0)
        };
        let without = |unit: &&SplitAsked| candidates(unit).iter().all(|at| is_stale(&misfits, unit, *at));
        let others: Vec<usize> = asked.iter().filter(without).flat_map(holders).copied().collect();
        if !others.is_empty() {
            misfits.extend(self::misfits(described, others.into_iter(), files, layout)?);
        }
        for unit in asked {
            let rank = |at: &usize| {
                let part = files.get(*at)?;
                let alike = shared_ending(&part.file.place, &unit.path());
                let near = shared_beginning(&part.file.place, &described.file.place);
                let misfits = misfits.get(&(unit.id, *at));
                let misfits = (misfits.is_none(), misfits.map(|misfits| (misfits.functions, misfits.unmet)));
                Some((misfits, Reverse(alike), Reverse(near), part.file.name.clone(), part.file.digest()))
            };
            let best = |of: &[usize]| of.iter().copied().filter(|at| !is_stale(&misfits, unit, *at)).min_by_key(rank);
            match best(&candidates(unit)).or_else(|| best(holders(unit))) {
                Some(at) => {
                    taken.insert(at);
                    taken_for.insert((unit.id, at));
                }
                None if !holders(unit).is_empty() => {
                    missing += 1;
                    for &file in holders(unit) {
                        let first = misfits.get(&(unit.id, file)).and_then(|misfits| misfits.first);
                        Stale { id: id.clone(), described, file, unit: unit.id, first, units: 1 }.join(&mut stale);
                    }
                }
                None => {
                    missing += 1;
                    let name = unit.name.rsplit('/').next().unwrap_or(&unit.name);
                    let suspect = suspects.entry(id.clone()).or_insert_with(|| Suspect::new(module, described));
                    suspect.lacking.push((unit.id, name.to_owned()));
                }
            }
        }
        if missing > 0 {
            module.missing.push(format!("split DWARF of {missing} of {} units", asked.len()));
        }
        for at in taken {
            if let (Some(part), Some(used)) = (files.get(at), used.get_mut(at)) {
                module.split.push(Paired { part: *part, by: PairedBy::DwoId });
                *used = true;
            }
        }
        module.split.sort_by_key(|paired| (paired.part.file.name.clone(), paired.part.file.digest()));
    }
    // What is right for one module is not called wrong for another.
    stale.retain(|stale| !taken_for.contains(&(stale.unit, stale.file)));
    for stale in &stale {
        let Some(part) = files.get(stale.file) else { continue };
        pairing.mismatches.push(stale.mismatch(*part));
    }
    // What a file that was taken holds, read once for all that it stands for: a package stands for as many as a program has sources.
    let mut taken_contents: BTreeMap<usize, Contents> = BTreeMap::new();
    for (at, part) in files.iter().enumerate() {
        if used.get(at).copied().unwrap_or_default() {
            continue;
        }
        let holders = units(*part).iter().filter_map(|unit| by_unit.get(unit)).flatten().copied();
        let instead: BTreeSet<usize> = holders.filter(|at| used.get(*at).copied().unwrap_or_default()).collect();
        let mut instead = instead.into_iter().filter_map(|at| Some((at, *files.get(at)?))).peekable();
        if let Some((_, first)) = instead.peek() {
            let rule = match (is_package(*first), is_package(*part)) {
                (true, false) => "split DWARF of the same unit; a package comes first",
                _ => {
                    "split DWARF of the same unit; the file is taken that describes the unit's code, of several that whose path fits the unit's name, then the one nearest to the binary, then the first by name"
                }
            };
            let (place, by) = (part.file.place.clone(), first.file.place.clone());
            let superseded = Superseded { place, debug_id: None, by, rule };
            let contents = contents(*part, layout)?;
            let before = pairing.conflicts.len();
            for (at, taken) in instead {
                let theirs = match taken_contents.entry(at) {
                    Entry::Occupied(read) => read.into_mut(),
                    Entry::Vacant(unread) => unread.insert(self::contents(taken, layout)?),
                };
                if let Some((unit, found)) = other_unit(&contents, theirs) {
                    let id = format!("unit {unit:016x}");
                    pairing.conflicts.push(found.conflict(id, FileRole::SplitDwarf, *part, taken));
                }
            }
            if pairing.conflicts.len() == before {
                pairing.superseded.push(superseded);
            }
            continue;
        }
        let is_package_of =
            |binary: &&InputFile| is_package(*part) && is_named(part.file, &format!("{}.dwp", binary.name));
        let reason = match without_skeletons.iter().any(is_package_of) {
            _ if stale.iter().any(|stale| stale.file == at) => "split DWARF of another build of a module's sources",
            true => "split DWARF whose binary was stripped of the units that ask for it",
            false => "split DWARF that no module asks for",
        };
        pairing.loose.push((part.file, reason));
        for (id, suspect) in &suspects {
            let Suspect { described, names, lacking } = suspect;
            let is_its_package =
                is_package(*part) && names.iter().any(|name| is_named(part.file, &format!("{name}.dwp")));
            let unit = lacking.iter().find(|(_, name)| is_its_package || is_named(part.file, name));
            let Some((unit, _)) = unit else { continue };
            // One line for each file: a package has as many units as a program has sources.
            let more = if is_its_package { lacking.len().saturating_sub(1) } else { 0 };
            let others = if more == 0 { String::new() } else { format!(" and {more} more") };
            pairing.mismatches.push(Mismatch {
                named_by: NamedBy::DwoName,
                binary: Side { place: described.file.place.clone(), debug_id: Some(id.clone()) },
                debug_file: Side { place: part.file.place.clone(), debug_id: None },
                expected: format!("unit {unit:016x}{others}"),
                found: match units(*part) {
                    [] => "no unit".to_owned(),
                    [found] => format!("unit {found:016x}"),
                    [found, rest @ ..] => format!("unit {found:016x} and {} more", rest.len()),
                },
            });
        }
    }
    Ok(())
}

impl Stale<'_> {
    /// Adds it to those that are known, where the file is one for the module already as a unit more.
    fn join(self, known: &mut Vec<Self>) {
        match known.iter_mut().find(|known| known.file == self.file && known.id == self.id) {
            Some(known) => known.units += self.units,
            None => known.push(self),
        }
    }

    fn mismatch(&self, part: Part<'_>) -> Mismatch {
        let others = match self.units.saturating_sub(1) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let function =
            self.first.map_or_else(String::new, |(start, end)| format!(" with a function at {start:#x}..{end:#x}"));
        Mismatch {
            named_by: NamedBy::DwoId,
            binary: Side { place: self.described.file.place.clone(), debug_id: Some(self.id.clone()) },
            debug_file: Side { place: part.file.place.clone(), debug_id: None },
            expected: format!("unit {:016x}{others} as it was linked", self.unit),
            found: format!("split DWARF of another build of that source{function}"),
        }
    }
}

/// Of the files that hold a unit those of which one is taken: a package is before single files, as it is what debuggers look for, and of packages those that are called
/// after the module's own files.
fn candidates(holders: &[usize], files: &[Part<'_>], called_after: &[String]) -> Vec<usize> {
    let packages = holders.iter().copied().filter(|at| files.get(*at).is_some_and(|part| is_package(*part)));
    let packages: Vec<usize> = packages.collect();
    let is_own =
        |at: &usize| files.get(*at).is_some_and(|part| called_after.iter().any(|name| is_named(part.file, name)));
    let own: Vec<usize> = packages.iter().copied().filter(is_own).collect();
    [own, packages].into_iter().find(|found| !found.is_empty()).unwrap_or_else(|| holders.to_vec())
}

/// Where units contradict the module's code, by unit and file.
type Misfits = BTreeMap<(u64, usize), SplitMisfits>;

/// Where the units of these files contradict the module's code. Compilers give one id to what they make of one source with other options,
/// for other processors of a kind, and to versions of a source that differ little.
fn misfits(
    described: Part<'_>,
    compared: impl Iterator<Item = usize>,
    files: &[Part<'_>],
    layout: Option<&LayoutDir>,
) -> Result<Misfits, BuildError> {
    let compared: BTreeSet<usize> = compared.collect();
    let compared: Vec<_> = compared.into_iter().filter_map(|at| Some((at, *files.get(at)?))).collect();
    let mut found = Misfits::new();
    if compared.is_empty() {
        return Ok(found);
    }
    let own = described.file.read(layout)?;
    let Some(own) = object(&own, described)? else { return Ok(found) };
    let mut weight = 0_u64;
    let batches = compared.chunk_by(|_, (_, part)| {
        weight = weight.saturating_add(part.file.weight());
        let fits = weight <= COMPARED_AT_ONCE;
        weight = if fits { weight } else { 0 };
        fits
    });
    for batch in batches {
        let read: Vec<_> = batch.iter().map(|(_, part)| part.file.read(layout)).collect::<Result<_, _>>()?;
        let mut objects = Vec::with_capacity(batch.len());
        for (bytes, (at, part)) in read.iter().zip(batch) {
            objects.extend(object(bytes, *part)?.map(|object| (*at, object)));
        }
        let split: Vec<&ObjectFile<'_>> = objects.iter().map(|(_, object)| object).collect();
        let of_batch = own.split_misfits(&split).into_iter();
        found.extend(of_batch.filter_map(|((unit, file), misfits)| Some(((unit, objects.get(file)?.0), misfits))));
    }
    Ok(found)
}

fn object<'d>(bytes: &'d [u8], part: Part<'_>) -> Result<Option<ObjectFile<'d>>, BuildError> {
    let parsed =
        ReleaseFile::parse(bytes).map_err(|source| BuildError::Artifact { place: part.file.place.clone(), source })?;
    Ok(match parsed {
        ReleaseFile::Object(object) => Some(object),
        _ => None,
    })
}

/// How many names two paths share at their ends.
fn shared_ending(one: &str, other: &str) -> usize {
    let names = |path| str::rsplit(path, '/').filter(|name| !matches!(*name, "" | "."));
    names(one).zip(names(other)).take_while(|(one, other)| one == other).count()
}

/// How many names two paths share at their beginnings.
fn shared_beginning(one: &str, other: &str) -> usize {
    one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other).count()
}

/// What the units of a file are, by id.
type Contents = BTreeMap<u64, SplitContents>;

fn contents(part: Part<'_>, layout: Option<&LayoutDir>) -> Result<Contents, BuildError> {
    let bytes = part.file.read(layout)?;
    Ok(object(&bytes, part)?.map(|object| object.split_contents()).unwrap_or_default())
}

/// The first unit that both files have and that is another one in each, and in what it differs.
fn other_unit(one: &Contents, other: &Contents) -> Option<(u64, Contradiction)> {
    one.iter().find_map(|(id, first)| {
        let second = other.get(id).filter(|second| *second != first)?;
        let text = |bytes: &[u8]| escaped(bytes).into_owned();
        let only = |of: &SplitContents, without: &SplitContents| {
            let only = of.functions.difference(&without.functions).next();
            only.map_or_else(|| "no other function".to_owned(), |name| format!("the function {}", text(name)))
        };
        let source = |of: &SplitContents| format!("what was made of {} in {:?}", text(&of.name), text(&of.comp_dir));
        let is_of_another = first.name != second.name || first.comp_dir != second.comp_dir;
        let (expected, found) = match is_of_another {
            true => (source(first), source(second)),
            false => (only(first, second), only(second, first)),
        };
        Some((*id, Contradiction { expected, found }))
    })
}

fn units<'f>(part: Part<'f>) -> &'f [u64] {
    part.object().and_then(|object| object.split.as_ref()).map(|split| split.units.as_slice()).unwrap_or_default()
}

fn is_package(part: Part<'_>) -> bool {
    part.object().and_then(|object| object.split.as_ref()).is_some_and(|split| split.is_package)
}
