//! `symseal bundle export`: trees of files that debuggers read, and that any static web server serves.

mod tree;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_bundle::{Bundle, Digest, FileEntry, Hasher};
use tempfile::TempDir;

use self::tree::{Content, Place, Tree};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::{outln, visible};
use crate::progress::bytes_bar;

/// Bytes that are read and written at once.
const BLOCK: usize = 256 << 10;
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
to the one in the bundle where both are on one file system (--copy: never), so do not write into the tree. Each becomes
visible whole; a file with other bytes in its place is left as it is and named (exit status 1, and nothing is written). The seal is
not looked at: symseal bundle verify does that, and debuggers do not.

--debuginfod has debuginfo, executable and the section .gdb_index, which gdb may ask for before the whole; other sections are in the files.
--symstore has PE files and PDBs as WinDbg asks for them, ELF and Mach-O files by SSQP's keys, and everything in lower case too, as web
servers tell cases apart. --lldb has .build-id for ELF files, dSYM bundles, and their UUIDs in folders (DBGFileMappedPaths).")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    /// buildid/ID/debuginfo and executable, as debuginfod clients ask.
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
    for (tree, dir) in asked {
        let found = tree.places(&bundle).with_context(|| format!("bundle {}", args.bundle))?;
        places.extend(found.into_iter().map(|place| (dir.clone(), place)));
    }
    if places.is_empty() {
        bail!("bundle {}: it has no file that such a tree holds", args.bundle);
    }
    // Nothing is written before it is known that nothing is in the way.
    let mut in_the_way = Vec::new();
    let mut missing = Vec::new();
    let mut done = Done::default();
    for (dir, place) in places {
        let target = dir.join(&place.path);
        match digest_of(&target)? {
            None => missing.push((dir, place)),
            Some(digest) if digest == place.digest => done.existing += 1,
            Some(_) => in_the_way.push(target),
        }
    }
    if !in_the_way.is_empty() {
        for path in in_the_way.iter().take(NAMED) {
            eprintln!("{}: other bytes are there", visible(&path.display().to_string()));
        }
        eprintln!(
            "{} files are in the way; nothing was written: move them, or name another directory",
            in_the_way.len()
        );
        return Ok(Answer::No);
    }
    let bar = bytes_bar("exporting");
    bar.inc_length(missing.iter().map(|(_, place)| place.bytes).sum());
    let mut staging: Vec<(PathBuf, TempDir)> = Vec::new();
    for (dir, place) in &missing {
        if !staging.iter().any(|(known, _)| known == dir) {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            let folder = tempfile::Builder::new().prefix(".symseal-export-").tempdir_in(dir);
            staging.push((dir.clone(), folder.with_context(|| dir.display().to_string())?));
        }
        let Some((_, folder)) = staging.iter().find(|(known, _)| known == dir) else { continue };
        bar.set_message(place.path.clone());
        let target = dir.join(&place.path);
        export(&bundle, place, folder.path(), &target, args.copy, &mut done)
            .with_context(|| target.display().to_string())?;
        bar.inc(place.bytes);
    }
    bar.finish_and_clear();
    let Done { linked, copied, existing, bytes } = done;
    if args.json {
        let bundle = bundle.digest();
        outln!(
            "{}",
            json!({ "bundle": bundle, "linked": linked, "copied": copied, "existing": existing, "bytes": bytes })
        );
    } else {
        outln!("{linked} files linked, {copied} copied, {existing} were there; {bytes} bytes");
    }
    Ok(Answer::Yes)
}

/// Puts one file in its place, whole and compared.
fn export(bundle: &Bundle, place: &Place, staging: &Path, target: &Path, copy: bool, done: &mut Done) -> Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    done.bytes += place.bytes;
    let staged = staging.join("file");
    let is_linked = match &place.content {
        Content::File(file) => !copy && link(bundle, file, &staged)?,
        Content::Section(..) => false,
    };
    if !is_linked {
        let mut into = File::create_new(&staged)?;
        match &place.content {
            Content::File(file) => copy_file(bundle, file, &mut into)?,
            Content::Section(bytes) => into.write_all(bytes)?,
        }
        into.sync_all()?;
    }
    readable(&staged)?;
    // A link fails where something is in the way by now; a rename would replace it.
    let placed = fs::hard_link(&staged, target);
    fs::remove_file(&staged)?;
    match placed {
        Ok(()) if is_linked => done.linked += 1,
        Ok(()) => done.copied += 1,
        // On a file system that ignores case two places may be one.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && digest_of(target)? == Some(place.digest) => {
            done.existing += 1;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Links a file of the bundle, after its bytes were compared; false where it is on another file system, or must not be linked.
fn link(bundle: &Bundle, file: &FileEntry, staged: &Path) -> Result<bool> {
    let path = bundle.file_path(file);
    // What a link leads to is another's to change.
    if !fs::symlink_metadata(&path)?.is_file() || fs::hard_link(&path, staged).is_err() {
        return Ok(false);
    }
    let found = digest_of(staged)?;
    if found != Some(file.sha256) {
        fs::remove_file(staged)?;
        bail!(
            "{}: expected {}, found {}",
            path.display(),
            file.sha256,
            found.map_or_else(String::new, |found| found.to_string())
        );
    }
    Ok(true)
}

fn copy_file(bundle: &Bundle, file: &FileEntry, into: &mut File) -> Result<()> {
    let path = bundle.file_path(file);
    let mut from = File::open(&path).with_context(|| path.display().to_string())?;
    let (mut hasher, mut block) = (Hasher::default(), vec![0; BLOCK]);
    loop {
        let read = match from.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let bytes = block.get(..read).unwrap_or_default();
        hasher.update(bytes);
        into.write_all(bytes)?;
    }
    let (found, _) = hasher.finish();
    if found != file.sha256 {
        bail!("{}: expected {}, found {found}", path.display(), file.sha256);
    }
    Ok(())
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

/// Lets a web server that runs as somebody else read the file.
fn readable(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mut permissions = fs::metadata(path)?.permissions();
        if permissions.mode() & 0o444 != 0o444 {
            permissions.set_mode(permissions.mode() | 0o444);
            fs::set_permissions(path, permissions)?;
        }
    }
    Ok(())
}
