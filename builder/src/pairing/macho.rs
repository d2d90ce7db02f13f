//! macOS: the files of dSYM bundles, and dSYM bundles of another build. A slice and its slice of a dSYM have one UUID, and
//! are one module before this is asked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::{Arch, Format};
use symseal_bundle::Digest;
use symseal_module::DebugId;

use super::{Pairing, Part, is_named, lacking, orphans};
use crate::inputs::InputFile;
use crate::report::{Mismatch, NamedBy, Side, Superseded};

/// A file of a dSYM bundle: its place in there, its digest, and which of the members it is.
type Member<'p> = (&'p [String], Digest, usize);

/// Gives each module the other files of the dSYM bundle that its debug information is in. Of copies of one bundle with other lists
/// or maps the one is taken whose files have the smallest digests: the directories around them decide nothing.
pub(super) fn members<'f>(pairing: &mut Pairing<'f>, members: &[&'f InputFile]) {
    let mut used = vec![false; members.len()];
    // A universal bundle is that of several modules.
    let mut superseded = BTreeSet::new();
    for module in pairing.modules.values_mut() {
        let Some(debug) = module.debug.map(|debug| debug.part.file) else { continue };
        let Some(dsym) = &debug.dsym else { continue };
        let copies =
            debug.other_dsyms.iter().filter(|other| (&other.bundle, &other.path) == (&dsym.bundle, &dsym.path));
        let mut roots: BTreeMap<&str, Vec<Member<'_>>> =
            copies.chain([dsym]).map(|place| (place.root.as_str(), Vec::new())).collect();
        for (at, member) in members.iter().enumerate() {
            let Some(place) = &member.dsym else { continue };
            if let Some(files) = roots.get_mut(place.root.as_str()) {
                files.push((&place.path, member.digest(), at));
            }
        }
        roots.values_mut().for_each(|files| files.sort_unstable());
        let said =
            |files: &[Member<'f>]| -> Vec<_> { files.iter().map(|(path, digest, _)| (*path, *digest)).collect() };
        // Most first: a copy that lacks a file says less.
        let Some(taken) = roots.values().min_by_key(|files| (Reverse(files.len()), said(files))) else { continue };
        for files in roots.values() {
            for (path, digest, at) in files {
                let (Some(member), Some(used)) = (members.get(*at), used.get_mut(*at)) else { continue };
                if std::ptr::eq(files, taken) {
                    module.dsym_members.push(member);
                    *used = true;
                    continue;
                }
                let instead = taken.iter().find(|(other, _, _)| other == path);
                // An equal file of a copy is a double.
                if instead.is_some_and(|(_, other, _)| other == digest) {
                    continue;
                }
                let instead = instead.and_then(|(_, _, at)| members.get(*at)).copied().unwrap_or(debug);
                *used = true;
                superseded.insert(Superseded {
                    place: member.place.clone(),
                    debug_id: None,
                    by: instead.place.clone(),
                    rule: "a file of another copy of the same dSYM bundle",
                });
            }
        }
        module.dsym_members.sort_by_key(|member| (&member.dsym, member.digest()));
    }
    pairing.superseded.extend(superseded);
    let unused = members.iter().zip(used).filter(|(_, used)| !used);
    pairing.loose.extend(unused.map(|(member, _)| (*member, "a file of a dSYM bundle without debug information")));
}

/// dSYM bundles that go by the name of a binary without one, or hold a file of its name. One for another processor counts where there is
/// none for the binary's, and where the binary has no slice for that one.
pub(super) fn mismatches(pairing: &mut Pairing<'_>) {
    let mut found = Vec::new();
    for (id, binary, object) in lacking(pairing, Format::Macho) {
        let bundle = format!("{}.dSYM", binary.file.name);
        let is_of_name = |part: &Part<'_>| {
            is_named(part.file, &binary.file.name) || part.file.dsym.as_ref().is_some_and(|dsym| dsym.bundle == bundle)
        };
        let named = orphans(pairing).filter(|(_, part)| is_of_name(part));
        let named = named.filter_map(|(other, part)| Some((other, part, part.object()?)));
        let (own, foreign): (Vec<_>, Vec<_>) = named
            .filter(|(.., debug)| debug.format == Format::Macho)
            .partition(|(.., debug)| debug.arch == object.arch);
        let side = || Side { place: binary.file.place.clone(), debug_id: Some(id.clone()) };
        let debug_file =
            |other: &DebugId, part: Part<'_>| Side { place: part.file.place.clone(), debug_id: Some(other.clone()) };
        if !own.is_empty() {
            found.extend(own.into_iter().map(|(other, part, _)| {
                Mismatch::of_ids(NamedBy::DsymName, side(), debug_file(other, part), id.to_string())
            }));
            continue;
        }
        let has_slice = |arch: Arch| binary.file.objects().iter().any(|slice| slice.arch == arch);
        for (other, part, debug) in foreign.into_iter().filter(|(.., debug)| !has_slice(debug.arch)) {
            found.push(Mismatch {
                binary: side(),
                debug_file: debug_file(other, part),
                named_by: NamedBy::DsymName,
                expected: format!("{id} for {}", object.arch),
                found: format!("{other} for {}", debug.arch),
            });
        }
    }
    pairing.mismatches.extend(found);
}
