//! From identified files to modules: which debug file belongs to which binary.
//!
//! Files with one debug id are one module. Where there is no id, or where a file is only named, each platform has rules of
//! its own: [`debug_link`], [`elf`], [`split`], [`windows`], [`macho`]. They are told in `docs/formats/pairing.md`.

mod boot_images;
mod choose;
mod contradiction;
mod debug_link;
mod difference;
mod elf;
mod macho;
mod same_build;
mod split;
mod windows;

use std::collections::BTreeMap;

use symseal_bundle::LayoutDir;
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::inputs::{Content, InputFile, ObjectFacts, PdbFacts, Tells};
use crate::report::{Conflict, Mismatch, PairedBy, Superseded};

/// One object file, one slice of a universal file, or a whole file of another kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'f> {
    pub(crate) file: &'f InputFile,
    pub(crate) slice: usize,
}

/// A file that belongs to a module, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paired<'f> {
    pub(crate) part: Part<'f>,
    pub(crate) by: PairedBy,
}

/// The files of one module. Binary or debug file is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Module<'f> {
    /// The file with the code. Without a debug file, what debug information there is, is in it.
    pub(crate) binary: Option<Part<'f>>,
    /// The separate debug file or program database.
    pub(crate) debug: Option<Paired<'f>>,
    /// What dwz made, and its id.
    pub(crate) supplementary: Option<(Paired<'f>, DebugId)>,
    /// `.dwp` and `.dwo` files, by name and digest.
    pub(crate) split: Vec<Paired<'f>>,
    /// The other files of its dSYM bundle.
    pub(crate) dsym_members: Vec<&'f InputFile>,
    /// It is the supplementary file of other modules.
    pub(crate) is_supplementary: bool,
    /// What it names and the inputs do not hold.
    pub(crate) missing: Vec<String>,
}

/// What pairing found.
#[derive(Debug, Default)]
pub(crate) struct Pairing<'f> {
    pub(crate) modules: BTreeMap<DebugId, Module<'f>>,
    pub(crate) mismatches: Vec<Mismatch>,
    /// Files that contradict each other, so that no bundle can be made of all.
    pub(crate) conflicts: Vec<Conflict>,
    pub(crate) superseded: Vec<Superseded>,
    /// Debug files that belong to no module, with the reason.
    pub(crate) loose: Vec<(&'f InputFile, &'static str)>,
}

impl<'f> Part<'f> {
    pub(crate) fn object(&self) -> Option<&'f ObjectFacts> {
        self.file.objects().get(self.slice)
    }

    pub(crate) fn pdb(&self) -> Option<&'f PdbFacts> {
        match &self.file.content {
            Content::Pdb(pdb) => Some(pdb),
            _ => None,
        }
    }

    fn tells(&self) -> Tells {
        let pdb = self.pdb().map(|pdb| pdb.tells);
        self.object().map(|object| object.tells).or(pdb).unwrap_or(Tells::Nothing)
    }

    pub(crate) fn is_binary(&self) -> bool {
        self.object().is_some_and(|object| object.is_binary)
    }
}

impl<'f> Module<'f> {
    /// Every file of it once, the binary first.
    pub(crate) fn files(&self) -> Vec<&'f InputFile> {
        let mut files: Vec<&'f InputFile> = self.binary.iter().map(|part| part.file).collect();
        let paired = self.debug.iter().chain(self.supplementary.iter().map(|(paired, _)| paired)).chain(&self.split);
        files.extend(paired.map(|paired| paired.part.file));
        files.extend(&self.dsym_members);
        let mut seen = std::collections::BTreeSet::new();
        files.retain(|file| seen.insert((file.digest(), file.dsym.as_ref().map(|dsym| &dsym.path))));
        files
    }

    /// Whether a file is one of the other files of its dSYM bundle.
    pub(crate) fn is_dsym_member(&self, file: &InputFile) -> bool {
        self.dsym_members.iter().any(|member| std::ptr::eq(*member, file))
    }

    /// Bytes of all its files as they are stored.
    pub(crate) fn bytes(&self) -> u64 {
        self.files().iter().map(|file| file.measured.size).fold(0, u64::saturating_add)
    }

    /// Bytes of all its files in memory, debug sections decompressed.
    pub(crate) fn weight(&self) -> u64 {
        self.files().iter().map(|file| file.weight()).fold(0, u64::saturating_add)
    }

    /// Whether its symbols are nowhere but in the symbol tables of the binary.
    fn lacks_debug_file(&self) -> bool {
        self.debug.is_none() && self.binary.is_some_and(|binary| binary.tells() < Tells::Lines)
    }

    /// What its debug information is read from.
    pub(crate) fn described(&self) -> Option<Part<'f>> {
        let debug = self.debug.map(|paired| paired.part);
        debug.filter(|part| part.tells() >= Tells::Lines).or(self.binary).or(debug)
    }
}

/// Leaves of equal files one, whose name is the first of their names; returns how many were left out.
///
/// Which of several names counts must not depend on the directories that they lie in.
pub(crate) fn unique(files: Vec<InputFile>) -> (Vec<InputFile>, u64) {
    let (members, mut files): (Vec<InputFile>, Vec<InputFile>) =
        files.into_iter().partition(|file| matches!(file.content, Content::DsymMember));
    let before = files.len();
    files.sort_by(|a, b| {
        let key = |file: &InputFile| {
            (file.digest(), file.name.clone(), file.dsym.is_none(), file.dsym.clone(), file.place.clone())
        };
        key(a).cmp(&key(b))
    });
    files.dedup_by(|double, kept| {
        let is_double = double.digest() == kept.digest();
        if is_double {
            kept.other_dsyms.extend(double.dsym.take());
            kept.other_names.append(&mut double.other_names);
        }
        if is_double && double.name != kept.name {
            kept.other_names.insert(std::mem::take(&mut double.name));
        }
        is_double
    });
    let doubles = before.saturating_sub(files.len()) as u64;
    files.extend(members);
    (files, doubles)
}

/// Joins the files to modules. Those that claim to be the same are read once more, out of `layout` where they have become blobs of it.
pub(crate) fn pair<'f>(files: &'f [InputFile], layout: Option<&LayoutDir>) -> Result<Pairing<'f>, BuildError> {
    let mut groups: BTreeMap<DebugId, choose::Group<'f>> = BTreeMap::new();
    let mut unidentified: Vec<Part<'f>> = Vec::new();
    let mut split_files: Vec<Part<'f>> = Vec::new();
    let mut members: Vec<&'f InputFile> = Vec::new();
    for file in files {
        match &file.content {
            Content::DsymMember => members.push(file),
            Content::Pdb(pdb) => groups.entry(pdb.id.clone()).or_default().debug_files.push(Part { file, slice: 0 }),
            Content::Objects(objects) => {
                for (slice, object) in objects.iter().enumerate() {
                    let part = Part { file, slice };
                    match &object.id {
                        _ if object.split.is_some() => split_files.push(part),
                        Some(id) if object.is_binary => groups.entry(id.clone()).or_default().binaries.push(part),
                        Some(id) => groups.entry(id.clone()).or_default().debug_files.push(part),
                        None => unidentified.push(part),
                    }
                }
            }
        }
    }
    let mut told = choose::Told::default();
    let mut modules = BTreeMap::new();
    for (id, group) in groups {
        let module = choose::choose(&id, group, layout, &mut told)?;
        modules.insert(id, module);
    }
    let choose::Told { superseded, mismatches, conflicts } = told;
    let mut pairing = Pairing { modules, mismatches, conflicts, superseded, loose: Vec::new() };
    debug_link::pair(&mut pairing, unidentified);
    elf::supplementary(&mut pairing);
    split::join(&mut pairing, &split_files, layout)?;
    macho::members(&mut pairing, &members);
    debug_link::pair_without_note(&mut pairing, layout)?;
    elf::mismatches(&mut pairing);
    windows::mismatches(&mut pairing);
    macho::mismatches(&mut pairing);
    pairing.mismatches.sort();
    pairing.mismatches.dedup();
    pairing.conflicts.sort();
    pairing.superseded.sort();
    Ok(pairing)
}

/// Modules with a binary of `format` whose debug file is not among the inputs.
fn lacking<'p, 'f>(
    pairing: &'p Pairing<'f>,
    format: symseal_artifact::Format,
) -> impl Iterator<Item = (&'p DebugId, Part<'f>, &'f ObjectFacts)> {
    pairing.modules.iter().filter(|(_, module)| module.lacks_debug_file()).filter_map(move |(id, module)| {
        let binary = module.binary?;
        let object = binary.object().filter(|object| object.format == format)?;
        Some((id, binary, object))
    })
}

/// Debug files whose binary is not among the inputs.
fn orphans<'p, 'f>(pairing: &'p Pairing<'f>) -> impl Iterator<Item = (&'p DebugId, Part<'f>)> {
    let alone = pairing.modules.iter().filter(|(_, module)| module.binary.is_none() && !module.is_supplementary);
    alone.filter_map(|(id, module)| Some((id, module.debug?.part)))
}

/// Whether a file goes by that name.
fn is_named(file: &InputFile, name: &str) -> bool {
    file.is_named(name)
}
