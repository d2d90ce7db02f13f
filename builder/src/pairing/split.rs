//! Split DWARF: `.dwo` files and `.dwp` packages, by the ids of the units that the modules' skeletons ask for. (DWARF 5,
//! section 7.3.2; GNU's `DW_AT_GNU_dwo_id` before)

use std::collections::{BTreeMap, BTreeSet};

use symseal_module::DebugId;

use super::{Module, Paired, Pairing, Part, is_named};
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

/// Gives each module the split files that hold a unit which it asks for. A file may belong to several modules.
pub(super) fn join<'f>(pairing: &mut Pairing<'f>, files: &[Part<'f>]) {
    let mut by_unit: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, part) in files.iter().enumerate() {
        for unit in units(*part) {
            by_unit.entry(*unit).or_default().push(at);
        }
    }
    let mut used = vec![false; files.len()];
    let mut suspects: BTreeMap<DebugId, Suspect<'f>> = BTreeMap::new();
    for (id, module) in &mut pairing.modules {
        let Some(described) = module.described() else { continue };
        let asked = described.object().map(|object| object.split_asked.as_slice()).unwrap_or_default();
        let mut taken = BTreeSet::new();
        let mut missing = 0_usize;
        for unit in asked {
            let holders = by_unit.get(&unit.id).map(Vec::as_slice).unwrap_or_default();
            // A package before single files: it is what debuggers look for.
            let holder = holders.iter().min_by_key(|at| {
                files.get(**at).map(|part| (!is_package(*part), part.file.name.clone(), part.file.digest()))
            });
            match holder {
                Some(at) => drop(taken.insert(*at)),
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
    for (at, part) in files.iter().enumerate() {
        if used.get(at).copied().unwrap_or_default() {
            continue;
        }
        let instead = units(*part).iter().find_map(|unit| {
            let holders = by_unit.get(unit)?.iter();
            holders.filter(|at| used.get(**at).copied().unwrap_or_default()).find_map(|at| files.get(*at))
        });
        if let Some(instead) = instead {
            let (place, by) = (part.file.place.clone(), instead.file.place.clone());
            pairing.superseded.push(Superseded {
                place,
                by,
                rule: "split DWARF of the same unit; a package comes first",
            });
            continue;
        }
        pairing.loose.push((part.file, "split DWARF that no module asks for"));
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
}

fn units<'f>(part: Part<'f>) -> &'f [u64] {
    part.object().and_then(|object| object.split.as_ref()).map(|split| split.units.as_slice()).unwrap_or_default()
}

fn is_package(part: Part<'_>) -> bool {
    part.object().and_then(|object| object.split.as_ref()).is_some_and(|split| split.is_package)
}
