//! Opening source files below a directory, and never beside it.
//!
//! The directory is opened once, and every file is opened relative to that handle by cap-std, which resolves links itself:
//! on Linux by `openat2` with `RESOLVE_BENEATH`, elsewhere part by part with handles. So what is checked and what is read are
//! one file, whatever is renamed or linked meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use symseal_artifact::Checksum;
use symseal_bundle::sources::{CheckedBy, MAX_SOURCE_BYTES};

use super::GatherError;

/// An opened directory of sources.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    path: PathBuf,
    /// The absolute texts of the directory, for paths that name it.
    places: Vec<String>,
    /// Names in directories that were asked for without regard to case, by their lower case.
    listed: RefCell<BTreeMap<String, BTreeMap<String, Vec<String>>>>,
}

/// So many places that differ in case alone are looked at for one path.
const MOST_WAYS: usize = 64;

/// What lies at a place.
pub(super) enum Found {
    /// No file.
    Nothing,
    /// Something that is not read, and why.
    Refused(String),
    /// A file of at least so many bytes, more than a source may have.
    TooLarge(u64),
    /// A file's bytes.
    File(Vec<u8>),
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, GatherError> {
        let error = |source| GatherError::Root { path: path.to_owned(), source };
        let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(error)?;
        let absolute = [std::path::absolute(path).map_err(error)?, path.canonicalize().map_err(error)?];
        // A directory whose own path is no text can still be looked into; no line table names it.
        let mut places: Vec<String> = absolute.iter().filter_map(|path| path.to_str().map(str::to_owned)).collect();
        places.dedup();
        Ok(Self { dir, path: path.to_owned(), places, listed: RefCell::default() })
    }

    pub(super) fn places(&self) -> Vec<String> {
        self.places.clone()
    }

    /// The path of what lies there, to be shown.
    pub(super) fn place(&self, parts: &[String]) -> PathBuf {
        self.path.join(parts.join("/"))
    }

    /// Reads the file that lies there, or else, where letters count without case from one of the parts on, the only one that differs in
    /// case alone; with the way to it as the directories have it.
    pub(super) fn find(
        &self,
        parts: &[String],
        any_case_from: Option<usize>,
    ) -> Result<(Vec<String>, Found), GatherError> {
        let exact = self.read(parts)?;
        let Some(first) = any_case_from.filter(|_| matches!(exact, Found::Nothing)) else {
            return Ok((parts.to_vec(), exact));
        };
        let (fixed, rest) = parts.split_at_checked(first).unwrap_or((parts, &[]));
        let mut ways = vec![fixed.to_vec()];
        for part in rest {
            ways = ways.iter().flat_map(|way| self.like(way, part)).take(MOST_WAYS).collect();
        }
        let mut files = Vec::new();
        for way in ways {
            match self.read(&way)? {
                Found::Nothing => {}
                found => files.push((way, found)),
            }
        }
        if files.len() < 2 {
            return Ok(files.pop().unwrap_or((parts.to_vec(), Found::Nothing)));
        }
        let names: Vec<String> = files.iter().map(|(way, _)| crate::error::place_of(&self.place(way))).collect();
        Ok((
            parts.to_vec(),
            Found::Refused(format!("several files differ from it in case alone: {}", names.join(", "))),
        ))
    }

    /// The ways to what is called like that in a directory, in the order of the names.
    fn like(&self, directory: &[String], name: &str) -> Vec<Vec<String>> {
        let directory_path = if directory.is_empty() { ".".to_owned() } else { directory.join("/") };
        let mut listed = self.listed.borrow_mut();
        let names = listed.entry(directory_path).or_insert_with_key(|path| {
            let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
            // What cannot be listed holds nothing that we may read; names that are no text are those of no line table.
            for entry in self.dir.read_dir(path).into_iter().flatten().flatten() {
                if let Ok(name) = entry.file_name().into_string() {
                    names.entry(name.to_ascii_lowercase()).or_default().push(name);
                }
            }
            names.values_mut().for_each(|names| names.sort_unstable());
            names
        });
        let found = names.get(&name.to_ascii_lowercase()).into_iter().flatten();
        found.map(|name| directory.iter().chain([name]).cloned().collect()).collect()
    }

    /// Reads the file that lies there.
    pub(super) fn read(&self, parts: &[String]) -> Result<Found, GatherError> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt as _;
            // A pipe that nobody writes to would hold us for ever.
            options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        }
        let file = match self.dir.open_with(parts.join("/"), &options) {
            Ok(file) => file,
            Err(error) => return Ok(not_opened(&error)),
        };
        let read_error = |source| GatherError::Read { path: self.place(parts), source };
        let metadata = file.metadata().map_err(read_error)?;
        if metadata.is_dir() {
            return Ok(Found::Nothing);
        }
        if !metadata.is_file() {
            return Ok(Found::Refused("it is a device, pipe or socket".to_owned()));
        }
        if metadata.len() > MAX_SOURCE_BYTES {
            return Ok(Found::TooLarge(metadata.len()));
        }
        let mut bytes = Vec::new();
        // The file may grow while it is read.
        file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes).map_err(read_error)?;
        if bytes.len() as u64 > MAX_SOURCE_BYTES {
            return Ok(Found::TooLarge(bytes.len() as u64));
        }
        Ok(Found::File(bytes))
    }
}

/// Names that cannot be names here, such as a Windows path's, are those of no file.
fn not_opened(error: &std::io::Error) -> Found {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidFilename => Found::Nothing,
        // cap-std's own answer has no number of the operating system.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            Found::Refused("a link leads out of the directory of sources".to_owned())
        }
        _ => Found::Refused(error.to_string()),
    }
}

/// The checksum of `bytes` of the same kind as `like`.
pub(super) fn checksum_like(like: &Checksum, bytes: &[u8]) -> Checksum {
    match like {
        Checksum::Md5(_) => Checksum::Md5(Md5::digest(bytes).into()),
        Checksum::Sha1(_) => Checksum::Sha1(Sha1::digest(bytes).into()),
        Checksum::Sha256(_) => Checksum::Sha256(Sha256::digest(bytes).into()),
    }
}

/// Which kind a checksum is.
pub(super) fn kind(checksum: &Checksum) -> CheckedBy {
    match checksum {
        Checksum::Md5(_) => CheckedBy::Md5,
        Checksum::Sha1(_) => CheckedBy::Sha1,
        Checksum::Sha256(_) => CheckedBy::Sha256,
    }
}

/// `md5:` and hex digits.
pub(super) fn text(checksum: &Checksum) -> String {
    let bytes: &[u8] = match checksum {
        Checksum::Md5(bytes) => bytes,
        Checksum::Sha1(bytes) => bytes,
        Checksum::Sha256(bytes) => bytes,
    };
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", kind(checksum).code())
}
