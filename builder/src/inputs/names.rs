//! Which names the files of an archive have in the end: those that unpacking it would give them, in whichever order it was packed.

use std::collections::{HashMap, HashSet};

use symseal_artifact::ArchiveReport as Walked;

use super::file::{self, Content, InputFile};
use super::identify::reason;
use super::loose;
use super::{Found, Reading, archive};

/// Leaves of several members with one path the last, which is what unpacking leaves (`tar --append`, `tar --update`); returns how many
/// were left out.
pub(super) fn replace(found: &mut Found) -> u64 {
    let before = found.files.len();
    let mut places = HashSet::new();
    found.files.reverse();
    found.files.retain(|file| places.insert(file.place.clone()));
    found.files.reverse();
    let replaced = before.saturating_sub(found.files.len()) as u64;
    found.skip(reason::REPLACED, replaced);
    replaced
}

/// Adds the files that were kept under each further name that they have; returns how many names that are.
///
/// The bytes have gone by when a name comes up, so that a file which is left out under the name that has them cannot be kept
/// under another: that is reported.
pub(super) fn link(walked: &Walked, reading: &Reading<'_>, found: &mut Found) -> u64 {
    let mut by_place: HashMap<String, usize> =
        found.files.iter().enumerate().map(|(at, file)| (file.place.clone(), at)).collect();
    let mut taken = 0;
    for link in &walked.hard_link_names {
        let known = by_place.get(&link.target).copied();
        if archive::is_excluded(&link.path, reading, &mut found.excluded) {
            continue;
        }
        let Some((at, file)) = known.and_then(|at| Some((at, found.files.get(at)?))) else {
            if reading.exclude.matching(&link.target).is_some() {
                let reason =
                    format!("hard link to {}, which is left out: leave out both names or neither", link.target);
                found.leave_unread(link.path.clone(), reason);
            }
            continue;
        };
        let (name, dsym) = (name_of(&link.path, &link.target, &file.name), file::dsym_place(&link.path));
        let is_known = !matches!(file.content, Content::DsymMember);
        if loose::is_script(&name, dsym.as_ref(), is_known) {
            found.refuse(link.path.clone(), loose::SCRIPT);
            continue;
        }
        let named = InputFile { place: link.path.clone(), name, dsym, ..file.clone() };
        // Later links may name this one.
        by_place.insert(link.path.clone(), at);
        found.files.push(named);
        found.seen += 1;
        found.linked += 1;
        taken += 1;
    }
    taken
}

/// Gives files the names of symbolic links to them, each with the place that it leads to. By such a name a file is found by what names it; what
/// it is called itself stays, as do the files of a bundle.
pub(super) fn give(files: &mut [InputFile], links: impl Iterator<Item = (String, String)>) {
    let mut links = links.peekable();
    if links.peek().is_none() {
        return;
    }
    let by_place: HashMap<String, usize> =
        files.iter().enumerate().map(|(at, file)| (file.place.clone(), at)).collect();
    for (place, name) in links {
        let file = by_place.get(&place).and_then(|at| files.get_mut(*at));
        if let Some(file) = file.filter(|file| file.name != name) {
            file.other_names.insert(name);
        }
    }
}

/// The names of an archive's symbolic links and the places that they lead to in the end, links over links within a bound.
pub(super) fn symbolic(walked: &Walked) -> impl Iterator<Item = (String, String)> {
    const MAX_LINKS: usize = 8;
    let targets: HashMap<&str, &str> =
        walked.symbolic_link_names.iter().map(|link| (link.path.as_str(), link.target.as_str())).collect();
    walked.symbolic_link_names.iter().map(move |link| {
        let mut target = link.target.as_str();
        for _ in 0..MAX_LINKS {
            target = targets.get(target).copied().unwrap_or(target);
        }
        (target.to_owned(), link.path.rsplit('/').next().unwrap_or_default().to_owned())
    })
}

/// What the file is called under the path of a link: as its target is, without the suffix of what it was packed with.
fn name_of(path: &str, target: &str, target_name: &str) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let (name, target) = (base(path), base(target));
    let packed = target.strip_prefix(target_name).unwrap_or_default();
    file::usable_name(name.strip_suffix(packed).filter(|rest| !rest.is_empty()).unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_packed_file_goes_by_its_inner_name() {
        assert_eq!(name_of("a!/x/b.ko.xz", "a!/x/a.ko.xz", "a.ko"), "b.ko");
        assert_eq!(name_of("a!/x/b.so", "a!/y/a.so", "a.so"), "b.so");
        assert_eq!(name_of("a!/.xz", "a!/a.xz", "a"), ".xz");
    }
}
