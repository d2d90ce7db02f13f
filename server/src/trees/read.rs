//! Which ids a file has, or the members of an archive.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use symseal_artifact::{
    ArchiveError, ArchiveReport, BreakpadFile, FileKind as Sniffed, Limits, Member, PassedOver, PassedOverReason,
    Reach, SNIFF_BYTES, Source, read_archive, sniff,
};

use super::split::Units;
use crate::blobs::map_own;
use crate::file_cache::FileCache;
use crate::ingest::{Answer, RefusedLoose, answers};

/// What archives are called in the ways to their members: the index knows where they lie.
pub(super) const ARCHIVE: &str = ".";

/// The largest file that is looked into, in bytes.
const LARGEST: u64 = 16 << 30;

/// Bombs in one archive that are passed over: each costs up to a thousand times its bytes of work.
const BOMBS: u32 = 16;

/// Bytes copied at once.
const BLOCK: usize = 256 << 10;

/// A file that answers for something, or holds split DWARF.
#[derive(Debug)]
pub(super) struct Holder {
    /// The way to it within the archive, and what else is known of it there ([`Way`]); empty for a file by itself, and [`ARCHIVE`] for one that was
    /// compressed by itself.
    pub(super) member: String,
    /// Its own name.
    pub(super) file: String,
    pub(super) sha256: [u8; 32],
    pub(super) size: u64,
    pub(super) answers: Vec<Answer>,
    pub(super) units: Option<Units>,
}

/// Between the way to a member, its place and its signature, of which the last ones may be missing: no way has one in it.
const BETWEEN: char = '\n';

/// How the index tells of a member.
fn joined(member: &Member<'_>) -> String {
    let place = member.reach.map(|reach| reach.to_string());
    let mut text = member.full_path();
    let (place, signature) = (place.as_deref(), member.signature);
    for part in [place.or(signature.map(|_| "")), signature].into_iter().flatten() {
        text.push(BETWEEN);
        text.push_str(part);
    }
    text
}

/// What the index tells of a member.
pub(super) struct Way<'n> {
    pub(super) path: &'n str,
    /// How it is reached without reading what lies before it.
    pub(super) reach: Option<Reach>,
    /// What its package has as the signature of its bytes, in hex.
    pub(super) signature: Option<&'n str>,
}

impl<'n> Way<'n> {
    pub(super) fn of(name: &'n str) -> Self {
        let mut parts = name.split(BETWEEN);
        let path = parts.next().unwrap_or_default();
        Self { path, reach: parts.next().and_then(|place| place.parse().ok()), signature: parts.next() }
    }
}

/// Why an archive is not read to its end.
pub(super) enum Halt {
    /// What was looked for is found.
    Found,
    Archive(ArchiveError),
    Io(io::Error),
}

impl From<ArchiveError> for Halt {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<Halt> for io::Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Io(error) => error,
            Halt::Archive(error) => Self::new(io::ErrorKind::InvalidData, error.to_string()),
            Halt::Found => Self::other("found"),
        }
    }
}

/// What archives may ask for.
pub(super) fn limits() -> Limits {
    Limits { bombs: BOMBS, ..Limits::default() }
}

/// What of archives is not served, since the server started.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Members that were passed over, as they unpack to far more than they are.
    bombs: AtomicU64,
    /// Other members that were passed over: packed in a way that is not read, archives too deep in others, damaged ones.
    passed_over: AtomicU64,
    /// Archives that were not read to their end: a bomb in front of other members, damage, another limit.
    archives: AtomicU64,
}

impl Unread {
    /// Bombs, other members that were passed over, and archives that were not read to their end.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.bombs, &self.passed_over, &self.archives].map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts what of an archive is not served though it might be looked for, and names it in the log.
    fn note(&self, archive: &str, report: &ArchiveReport) {
        for PassedOver { path, reason } in &report.passed_over {
            match reason {
                // Its members are no modules.
                PassedOverReason::StaticLibrary => continue,
                PassedOverReason::Bomb { .. } => {}
                _ => drop(self.passed_over.fetch_add(1, Ordering::Relaxed)),
            }
            let member = path.strip_prefix(ARCHIVE).map_or(path.as_str(), |path| path.trim_start_matches("!/"));
            tracing::warn!(file = archive, member, %reason, "a member is not served: the others are");
        }
        self.bombs.fetch_add(report.bombs.into(), Ordering::Relaxed);
    }
}

/// What a file, or what is in it, answers for. Only what begins like a release file is read; it is copied into a file of ours, as nobody promises that
/// a file of a tree stays as it is while it is mapped. Blocks.
pub(super) fn holders(mut file: File, name: &str, (cache, unread): (&FileCache, &Unread)) -> io::Result<Vec<Holder>> {
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    Read::by_ref(&mut file).take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    let own = name.rsplit('/').next().unwrap_or(name);
    match sniff(&head) {
        Sniffed::Other if !BreakpadFile::is_one(&head) => Ok(Vec::new()),
        Sniffed::Archive(_) => {
            let mut found = Vec::new();
            let visit = &mut |member: &Member<'_>, content: &mut dyn Read| -> Result<(), Halt> {
                // What was compressed by itself is called as the file is.
                let path = if member.outer.is_empty() { own } else { member.path };
                let named = Member { path, ..member.clone() };
                let holder = holder(content, joined(member), named.file_name(), cache).map_err(Halt::Io)?;
                found.extend(holder);
                Ok(())
            };
            match read_archive::<Halt>(ARCHIVE, Source::Seekable(&mut file), &limits(), visit) {
                Ok(report) => {
                    unread.note(name, &report);
                    Ok(found)
                }
                // What came before the damage can be had.
                Err(Halt::Archive(error)) => {
                    unread.archives.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(file = name, %error, "an archive is not read to its end");
                    Ok(found)
                }
                Err(halt) => Err(halt.into()),
            }
        }
        _ => Ok(holder(&mut file, String::new(), own, cache)?.into_iter().collect()),
    }
}

/// `None` where it is no release file, or one that answers for nothing.
fn holder(content: &mut dyn Read, member: String, file: &str, cache: &FileCache) -> io::Result<Option<Holder>> {
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    content.take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
    let is_release_file = !matches!(sniff(&head), Sniffed::Other | Sniffed::Archive(_));
    if !is_release_file && !BreakpadFile::is_one(&head) {
        return Ok(None);
    }
    let mut own = cache.begin()?;
    let (sha256, size) = copy(&mut head.as_slice().chain(content), own.as_file_mut())?;
    let bytes = map_own(own.as_file())?;
    let units = Units::of(&bytes);
    let answers = match answers(&bytes, file) {
        Ok(answers) => answers,
        Err(RefusedLoose::Io(error)) => return Err(error),
        Err(refused) => {
            if units.is_none() {
                tracing::debug!(%member, %refused, "not served");
                return Ok(None);
            }
            // Nobody can ask for it by itself, but for what its units say.
            Vec::new()
        }
    };
    Ok(Some(Holder { member, file: file.to_owned(), sha256, size, answers, units }))
}

/// Copies all of it; digest and bytes.
pub(super) fn copy(from: &mut dyn Read, to: &mut File) -> io::Result<([u8; 32], u64)> {
    let (mut block, mut sha256, mut size) = (vec![0; BLOCK], Sha256::new(), 0_u64);
    loop {
        let read = match from.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let Some(bytes) = block.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        size = size.saturating_add(bytes.len() as u64);
        if size > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {LARGEST} bytes")));
        }
        sha256.update(bytes);
        to.write_all(bytes)?;
    }
    Ok((sha256.finalize().into(), size))
}

/// Copies one member of an archive; `None` when the archive has no such member. Blocks.
pub(super) fn extract(archive: &mut File, member: &str, to: &mut File) -> io::Result<Option<([u8; 32], u64)>> {
    let mut found = None;
    let visit = &mut |visited: &Member<'_>, content: &mut dyn Read| -> Result<(), Halt> {
        if visited.full_path() != member {
            return Ok(());
        }
        found = Some(copy(content, to).map_err(Halt::Io)?);
        Err(Halt::Found)
    };
    match read_archive::<Halt>(ARCHIVE, Source::Seekable(archive), &limits(), visit) {
        Ok(_) | Err(Halt::Found) => Ok(found),
        Err(halt) => Err(halt.into()),
    }
}
