//! `symseal bundle export`: trees of files that debuggers read, and that any static web server serves.

mod sources;
mod target;
mod tree;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_bundle::{Bundle, Digest, FileEntry, Hasher};
use tempfile::TempPath;

use self::sources::{Packs, SourceFiles};
use self::target::{Target, There};
use self::tree::{Content, Place, Tree};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::{outln, visible};
use crate::progress::bytes_bar;

/// Bytes that are read and written at once.
const BLOCK: usize = 256 << 10;
/// The permission that everybody may read a file.
#[cfg(unix)]
const EVERYBODY: u32 = 0o444;
/// Files in the way that are named.
const NAMED: usize = 10;

/// Lay a bundle's files out as debuggers look for them, for a directory or any static web server.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle export ./bundle --debuginfod /srv/www            DEBUGINFOD_URLS=https://HOST/
  symseal bundle export ./bundle --symstore /srv/www/symbols      srv*C:\\symbols*https://HOST/symbols
  symseal bundle export ./bundle --build-id ./debug               gdb -iex 'set debug-file-directory ./debug'
  symseal bundle export ./bundle --lldb ./debug                   settings append target.debug-file-search-paths ./debug

Several bundles may go into one tree, and one bundle into several trees at once. Every file is compared with its digest. A file is a hard link
to the one in the bundle where both are on one file system and everybody may read it (--copy: never), so do not write into the tree. Each becomes
visible whole; what is in its place and is no file with its bytes, and a link or a file in the place of a folder, is left as it is and named (exit
status 1, and nothing is written): below DIR no link is followed. The seal is not looked at: symseal bundle verify does that, and debuggers do not.

--debuginfod has debuginfo, executable and the section .gdb_index, which gdb may ask for before the whole; other sections are in the files.
It has source/PATH too, of the sources that lie beside the bundle (symseal bundle pull REF.sources --output BUNDLE), for whoever reads the tree:
--without-sources leaves them out. PATH is as web servers have it that decode, and take dots and doubled slashes for what they are (nginx).
--symstore has PE files and PDBs as WinDbg asks for them, ELF and Mach-O files by SSQP's keys, and everything in lower case too, as web
servers tell cases apart. --lldb has .build-id for ELF files, dSYM bundles, and their UUIDs in folders (DBGFileMappedPaths).")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// buildid/ID/debuginfo, executable and source/PATH, as debuginfod clients ask.
    #[arg(long, value_name = "DIR")]
    debuginfod: Option<PathBuf>,
    /// app.pdb/GUID and age/app.pdb and its kin, as symbol server clients ask.
    #[arg(long, value_name = "DIR")]
    symstore: Option<PathBuf>,
    /// .build-id/ab/cdef….debug, as gdb and elfutils look.
    #[arg(long, value_name = "DIR")]
    build_id: Option<PathBuf>,
    /// .build-id, dSYM bundles and UUID folders, as lldb looks.
    #[arg(long, value_name = "DIR")]
    lldb: Option<PathBuf>,
    /// Write no sources into the tree of --debuginfod.
    #[arg(long, requires = "debuginfod")]
    without_sources: bool,
    /// Copy files also where they could be hard links.
    #[arg(long)]
    copy: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Default)]
struct Done {
    linked: u64,
    copied: u64,
    existing: u64,
    bytes: u64,
}

pub fn run(args: &Args) -> Result<Answer> {
    let bundle = bundle_ref::open(&args.bundle, args.store.as_ref())?.bundle;
    let asked = [
        (Tree::Debuginfod, &args.debuginfod),
        (Tree::SymbolStore, &args.symstore),
        (Tree::BuildId, &args.build_id),
        (Tree::Lldb, &args.lldb),
    ];
    let asked: Vec<(Tree, &PathBuf)> =
        asked.into_iter().filter_map(|(tree, dir)| Some((tree, dir.as_ref()?))).collect();
    if asked.is_empty() {
        bail!("expected at least one of --debuginfod DIR, --symstore DIR, --build-id DIR and --lldb DIR");
    }
    let mut places = Vec::new();
    // Files of split DWARF that have no place.
    let mut units_left_out = 0;
    for (tree, dir) in asked {
        let found = tree.places(&bundle).with_context(|| format!("bundle {}", args.bundle))?;
        if matches!(tree, Tree::BuildId | Tree::Lldb) {
            units_left_out = tree::left_out(&bundle, &found).max(units_left_out);
        }
        places.extend(found.into_iter().map(|place| (dir.clone(), place)));
    }
    let mut left_out = None;
    if let Some(dir) = args.debuginfod.as_ref().filter(|_| !args.without_sources) {
        match SourceFiles::of(&bundle).with_context(|| format!("bundle {}", args.bundle))? {
            None => {}
            Some(Err(digest)) => left_out = Some(digest),
            Some(Ok(sources)) => places.extend(sources.places(&bundle)?.into_iter().map(|place| (dir.clone(), place))),
        }
    }
    let is_source = |place: &Place| matches!(place.content, Content::Source(..));
    let sources = places.iter().filter(|(_, place)| is_source(place)).count();
    if places.is_empty() {
        bail!("bundle {}: it has no file that such a tree holds", args.bundle);
    }
    // Nothing is written before it is known that nothing is in the way.
    let contested = contested(&mut places);
    if !contested.is_empty() {
        for path in contested.iter().take(NAMED) {
            eprintln!("{}: two files of the bundle that differ belong there", visible(&path.display().to_string()));
        }
        eprintln!(
            "{} places have two files; nothing was written: export them into trees of their own",
            contested.len()
        );
        return Ok(Answer::No);
    }
    let mut in_the_way = Vec::new();
    let mut missing = Vec::new();
    let mut done = Done::default();
    let mut targets = HashMap::new();
    for (dir, place) in places {
        let target = match targets.entry(dir.clone()) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(new) => new.insert(Target::open(&dir)?),
        };
        match target.there(&place.path)? {
            There::Nothing => missing.push((dir, place)),
            There::File(digest) if digest == place.digest => done.existing += 1,
            // Of another bundle in this tree: who looks by name finds that one's.
            There::File(_) if place.is_optional => {}
            There::File(_) => in_the_way.push((dir.join(&place.path), "other bytes are there".to_owned())),
            There::InTheWay(at, what) => in_the_way.push((at, format!("{what} is there"))),
        }
    }
    // One link keeps out all that belongs below it.
    in_the_way.dedup();
    if !in_the_way.is_empty() {
        for (path, what) in in_the_way.iter().take(NAMED) {
            eprintln!("{}: {what}", visible(&path.display().to_string()));
        }
        eprintln!(
            "{} files are in the way; nothing was written: move them, or name another directory",
            in_the_way.len()
        );
        return Ok(Answer::No);
    }
    let bar = bytes_bar("exporting");
    bar.inc_length(missing.iter().map(|(_, place)| place.bytes).sum());
    let mut export = Export {
        bundle: &bundle,
        copies: args.copy,
        compared: HashSet::new(),
        written: HashMap::new(),
        packs: Packs::default(),
        targets,
        done,
    };
    for (dir, place) in &missing {
        bar.set_message(visible(&place.path));
        export.place(place, dir).with_context(|| dir.join(&place.path).display().to_string())?;
        bar.inc(place.bytes);
    }
    bar.finish_and_clear();
    if units_left_out > 0 {
        eprintln!(
            "warning: {units_left_out} files of split DWARF are left out: their place is another's, or their names are no paths below it. Pack them with llvm-dwp"
        );
    }
    let Done { linked, copied, existing, bytes } = export.done;
    if args.json {
        let bundle = bundle.digest();
        outln!(
            "{}",
            json!({
                "bundle": bundle, "linked": linked, "copied": copied, "existing": existing, "bytes": bytes,
                "left_out": units_left_out, "sources": sources, "sources_left_out": left_out,
            })
        );
    } else {
        outln!(
            "{linked} files linked, {copied} copied, {existing} were there; {bytes} bytes; {sources} of them sources"
        );
    }
    if let Some(digest) = left_out {
        eprintln!(
            "the sources {digest} do not lie beside the bundle and were left out: pull them into the same directory"
        );
    }
    Ok(Answer::Yes)
}

/// Sorts the places and takes out those that are named twice; the ones where two files differ.
fn contested(places: &mut Vec<(PathBuf, Place)>) -> Vec<PathBuf> {
    let key = |(dir, place): &(PathBuf, Place)| (dir.clone(), place.path.clone(), place.is_optional, place.digest);
    places.sort_by_cached_key(key);
    places.dedup_by(|(dir, a), (other, b)| dir == other && a.path == b.path && (a.digest == b.digest || a.is_optional));
    let pairs = places.iter().zip(places.iter().skip(1));
    let same = pairs.filter(|((dir, a), (other, b))| dir == other && a.path == b.path);
    same.map(|((dir, place), _)| dir.join(&place.path)).collect()
}

/// What puts files into trees.
struct Export<'b> {
    bundle: &'b Bundle,
    /// Whether nothing is linked.
    copies: bool,
    /// Files of the bundle that were compared as a whole.
    compared: HashSet<PathBuf>,
    /// Sources that were written, by tree and digest: those of other modules are links to them.
    written: HashMap<(PathBuf, Digest), String>,
    packs: Packs,
    targets: HashMap<PathBuf, Target>,
    done: Done,
}

impl Export<'_> {
    /// Puts one file in its place, whole and compared.
    fn place(&mut self, place: &Place, dir: &Path) -> Result<()> {
        self.target(dir)?.made()?;
        self.done.bytes += place.bytes;
        let linked = match &place.content {
            Content::File(file) if !self.copies => self.link(file, dir)?,
            Content::Source(..) if !self.copies => self.link_source(place, dir),
            _ => None,
        };
        let is_linked = linked.is_some();
        let staged = match linked {
            Some(staged) => staged,
            None => self.copy(place, dir)?,
        };
        // A file that came there meanwhile is not replaced.
        match self.target(dir)?.place(staged, &place.path)? {
            There::Nothing if is_linked => self.done.linked += 1,
            There::Nothing => self.done.copied += 1,
            // On a file system that ignores case two places may be one.
            There::File(digest) if digest == place.digest => self.done.existing += 1,
            There::File(_) => bail!("other bytes came there meanwhile"),
            There::InTheWay(at, what) => bail!("{}: {what} came there meanwhile", at.display()),
        }
        if let Content::Source(..) = place.content {
            self.written.entry((dir.to_owned(), place.digest)).or_insert_with(|| place.path.clone());
        }
        Ok(())
    }

    fn target(&mut self, dir: &Path) -> Result<&mut Target> {
        self.targets.get_mut(dir).context("a directory that was opened")
    }

    /// Links a source that was written for another module; none where that cannot be.
    fn link_source(&mut self, place: &Place, dir: &Path) -> Option<TempPath> {
        let written = self.written.get(&(dir.to_owned(), place.digest))?.clone();
        let target = self.target(dir).ok()?;
        let staged = staging().make_in(dir, |staged| target.link(&written, staged)).ok()?;
        Some(staged.into_temp_path())
    }

    /// Links a file of the bundle, after its bytes were compared; none where it is on another file system, or must not be linked.
    fn link(&mut self, file: &FileEntry, dir: &Path) -> Result<Option<TempPath>> {
        let path = self.bundle.file_path(file);
        // What a link leads to is another's to change; and a web server that runs as somebody else must be able to read the file, whose permissions
        // are the bundle's.
        let found = fs::symlink_metadata(&path)?;
        if !found.is_file() || !is_readable(&found) {
            return Ok(None);
        }
        let Ok(staged) = staging().make_in(dir, |staged| fs::hard_link(&path, staged)) else { return Ok(None) };
        let staged = staged.into_temp_path();
        self.compare(file, &staged, &path)?;
        Ok(Some(staged))
    }

    fn copy(&mut self, place: &Place, dir: &Path) -> Result<TempPath> {
        let (file, start) = match &place.content {
            Content::File(file) => (file, 0),
            Content::Section(file, start) => (file, *start),
            Content::Source(sources, file) => {
                let mut staged = staging().tempfile_in(dir).with_context(|| dir.display().to_string())?;
                staged.write_all(self.packs.read(sources, file).with_context(|| file.path.clone())?)?;
                readable(staged.path())?;
                staged.as_file().sync_all()?;
                return Ok(staged.into_temp_path());
            }
        };
        let path = self.bundle.file_path(file);
        if let Content::Section(..) = place.content {
            self.compare(file, &path, &path)?;
        }
        let staged = staging().tempfile_in(dir).with_context(|| dir.display().to_string())?;
        let mut from = File::open(&path).with_context(|| path.display().to_string())?;
        from.seek(SeekFrom::Start(start)).with_context(|| path.display().to_string())?;
        let found = copy_blocks(&mut from.take(place.bytes), staged.as_file(), &path)?;
        if found != place.digest {
            bail!("{}: expected {}, found {found}", path.display(), place.digest);
        }
        readable(staged.path())?;
        staged.as_file().sync_all()?;
        Ok(staged.into_temp_path())
    }

    /// Compares the whole file at `at` with its digest, once.
    fn compare(&mut self, file: &FileEntry, at: &Path, named: &Path) -> Result<()> {
        if self.compared.contains(named) {
            return Ok(());
        }
        let found = digest_of(at)?;
        if found != Some(file.sha256) {
            let found = found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
            bail!("{}: expected {}, found {found}", named.display(), file.sha256);
        }
        self.compared.insert(named.to_owned());
        Ok(())
    }
}

/// How files are called before they are whole.
fn staging() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".symseal-export-");
    builder
}

/// The digest of what was copied.
fn copy_blocks(from: &mut impl Read, mut into: &File, path: &Path) -> Result<Digest> {
    let (mut hasher, mut block) = (Hasher::default(), vec![0; BLOCK]);
    loop {
        let read = match from.read(&mut block) {
            Ok(0) => return Ok(hasher.finish().0),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let bytes = block.get(..read).unwrap_or_default();
        hasher.update(bytes);
        into.write_all(bytes)?;
    }
}

/// The digest of a file; `None` where nothing is there.
fn digest_of(path: &Path) -> Result<Option<Digest>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
        Ok(file) => {
            let read = Digest::of_reader(&file).with_context(|| path.display().to_string())?;
            Ok(Some(read.0))
        }
    }
}

/// Whether a web server that runs as somebody else may read the file.
fn is_readable(found: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        found.permissions().mode() & EVERYBODY == EVERYBODY
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        true
    }
}

/// Lets a web server that runs as somebody else read the file.
fn readable(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    }
    let _ = path;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_for_two_files_is_found_before_anything_is_written() {
        let place = |path: &str, bytes: &[u8]| {
            let file = symseal_bundle::FileEntry {
                role: symseal_bundle::FileRole::Debuginfo,
                path: path.into(),
                size: 0,
                sha256: Digest::of(bytes),
                media_type: "a/b".into(),
                page_size: 1,
                page_root: symseal_bundle::pages::Hash([0; 32]),
                piece_root: None,
                derived_from: Vec::new(),
            };
            let (digest, content) = (file.sha256, Content::File(file));
            Place { path: path.into(), content, digest, bytes: 0, is_optional: false }
        };
        let tree = |dir: &str, path: &str, bytes: &[u8]| (PathBuf::from(dir), place(path, bytes));
        let mut places = vec![tree("d", "a", b"1"), tree("d", "b", b"2"), tree("d", "a", b"1"), tree("e", "b", b"3")];
        assert!(contested(&mut places).is_empty());
        assert_eq!(places.len(), 3);
        places.push(tree("d", "b", b"4"));
        assert_eq!(contested(&mut places), [PathBuf::from("d/b")]);
    }
}
