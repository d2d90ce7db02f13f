//! A kit is read: its seal, then every file against the seal's list, then what is taken out of it. Nothing is written to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use symseal_bundle::oci::{self, ImageIndex};
use symseal_bundle::seal::checks::{Check, id};
use symseal_bundle::seal::kit::{KIT_SEAL_LIMIT, MAX_KIT_FILES, is_kit_path, verify_kit};
use symseal_bundle::seal::{ConsistencyProof, KitStatement, SealedKit, Trust, UtcSeconds};
use symseal_bundle::{Digest, LayoutDir};

use super::{BLOBS, INDEX_FILE, KIT_SEAL, KitError, MAX_SMALL_FILE, output};

/// How many surplus or damaged files are named.
const MAX_NAMED: usize = 20;
/// Folders inside one another: more than any kit has.
const MAX_DEPTH: usize = 16;

/// An opened kit: which files it has. Nothing of them is believed before [`Kit::check_files`].
#[derive(Debug)]
pub struct Kit {
    path: PathBuf,
    files: BTreeMap<String, Place>,
    /// Links, devices, names that no file of a kit has: what they are.
    odd: Vec<String>,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
enum Place {
    File(PathBuf),
    /// In the tar file: offset and size in bytes.
    Tar(u64, u64),
}

/// Whether only the padding of a tar file follows.
fn is_zero_to_the_end(file: &mut File) -> io::Result<bool> {
    let mut block = vec![0; 64 << 10];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(true),
            read if block.get(..read).is_some_and(|read| read.iter().any(|byte| *byte != 0)) => return Ok(false),
            _ => {}
        }
    }
}

impl Kit {
    /// Opens a directory or a tar file.
    ///
    /// # Errors
    /// [`KitError::Io`] where it cannot be read, [`KitError::NotAKit`] where there is no seal of a kit.
    pub fn open(path: &Path) -> Result<Self, KitError> {
        let metadata = fs::metadata(path).map_err(KitError::io("open", path))?;
        let mut kit = Self { path: path.to_owned(), files: BTreeMap::new(), odd: Vec::new() };
        if metadata.is_dir() {
            kit.walk(path, "", MAX_DEPTH)?;
        } else if output::is_tar(path) {
            kit.list_tar()?;
        } else {
            let found = "another file; a kit's name ends in .tar".to_owned();
            return Err(KitError::NotAKit { path: path.to_owned(), found });
        }
        if kit.files.contains_key(KIT_SEAL) {
            return Ok(kit);
        }
        let found = format!("{} files, and no such one", kit.files.len());
        Err(KitError::NotAKit { path: path.to_owned(), found })
    }

    fn add(&mut self, name: &str, place: Place) -> Result<(), KitError> {
        if !is_kit_path(name) {
            return self.note(format!("{name:.120?}"));
        }
        if self.files.insert(name.to_owned(), place).is_some() {
            self.note(format!("{name} twice"))?;
        }
        self.check_count()
    }

    /// Something that no kit has.
    fn note(&mut self, odd: String) -> Result<(), KitError> {
        self.odd.push(odd);
        self.check_count()
    }

    fn check_count(&self) -> Result<(), KitError> {
        if self.files.len().saturating_add(self.odd.len()) > MAX_KIT_FILES {
            let found = format!("more than {MAX_KIT_FILES} files");
            return Err(KitError::NotAKit { path: self.path.clone(), found });
        }
        Ok(())
    }

    fn walk(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), KitError> {
        for entry in fs::read_dir(folder).map_err(KitError::io("list", folder))? {
            let entry = entry.map_err(KitError::io("list", folder))?;
            let path = entry.path();
            // Not followed: where a link leads is not what was packed.
            let kind = entry.file_type().map_err(KitError::io("look at", &path))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if kind.is_dir() && depth > 0 {
                self.walk(&path, &format!("{name}/"), depth - 1)?;
            } else if kind.is_file() {
                self.add(&name, Place::File(path))?;
            } else {
                self.note(format!("{name:.120}, no file"))?;
            }
        }
        Ok(())
    }

    fn list_tar(&mut self) -> Result<(), KitError> {
        let path = self.path.clone();
        let failed = |error| KitError::io("read the archive", &path)(error);
        let mut archive = tar::Archive::new(File::open(&path).map_err(failed)?);
        for entry in archive.entries_with_seek().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
            match entry.header().entry_type() {
                tar::EntryType::Regular => {
                    self.add(&name, Place::Tar(entry.raw_file_position(), entry.size()))?;
                }
                // Other programs list folders; a file in one is listed by itself.
                tar::EntryType::Directory => {}
                _ => self.note(format!("{name:.120}, no file"))?,
            }
        }
        let mut file = archive.into_inner();
        if !is_zero_to_the_end(&mut file).map_err(failed)? {
            self.note("something behind the archive's end, where other programs go on reading".to_owned())?;
        }
        Ok(())
    }

    /// Verifies the seal of the kit, and reads its list of files.
    ///
    /// # Errors
    /// The check that failed.
    pub fn verify_seal(&self, trust: &Trust, at: UtcSeconds) -> Result<SealedKit, Check> {
        let seal = self
            .read(KIT_SEAL, KIT_SEAL_LIMIT as u64)
            .map_err(|error| Check::failed(id::KIT_SEAL, format!("{KIT_SEAL} that can be read"), error.to_string()))?;
        verify_kit(&seal, trust, at)
    }

    /// The check `kit.files`: every file of the list, and no other. `hashed` is told the bytes of each.
    pub fn check_files(&self, statement: &KitStatement, hashed: &(dyn Fn(u64) + Sync)) -> Check {
        let listed: Vec<(&str, Digest)> =
            statement.files().map(|(path, hash)| (path, Digest::from_bytes(hash))).collect();
        let mut problems: Vec<String> = listed
            .par_iter()
            .filter_map(|(path, expected)| match self.digest_of(path) {
                Ok((found, size)) => {
                    hashed(size);
                    (found != *expected).then(|| format!("{path} with {found}"))
                }
                Err(error) => Some(format!("{path}: {error}")),
            })
            .collect();
        let names: std::collections::BTreeSet<&str> = listed.iter().map(|(path, _)| *path).collect();
        let surplus = self.files.keys().filter(|name| *name != KIT_SEAL && !names.contains(name.as_str()));
        problems.extend(surplus.map(|name| format!("{name}, which is not listed")));
        problems.extend(self.odd.iter().cloned());
        if problems.is_empty() {
            return Check::passed(id::KIT_FILES, format!("{} files", listed.len()));
        }
        let more = problems.len().saturating_sub(MAX_NAMED);
        problems.truncate(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = format!("{}{more}", problems.join("; "));
        Check::failed(id::KIT_FILES, format!("the {} files of the signed list alone", listed.len()), found)
            .with_detail(self.path.display().to_string())
    }

    fn open_file(&self, name: &str) -> io::Result<(Box<dyn Read>, u64)> {
        match self.files.get(name) {
            None => Err(io::Error::new(io::ErrorKind::NotFound, "it is not there")),
            Some(Place::File(path)) => {
                let file = File::open(path)?;
                let size = file.metadata()?.len();
                Ok((Box::new(file), size))
            }
            Some(Place::Tar(offset, size)) => {
                let mut file = File::open(&self.path)?;
                file.seek(SeekFrom::Start(*offset))?;
                Ok((Box::new(file.take(*size)), *size))
            }
        }
    }

    fn digest_of(&self, name: &str) -> io::Result<(Digest, u64)> {
        Digest::of_reader(self.open_file(name)?.0)
    }

    /// A file of at most `max` bytes, unchecked.
    fn read(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        let (reader, size) = self.open_file(name)?;
        if size > max {
            return Err(io::Error::other(format!("{size} bytes, more than the {max} that are read")));
        }
        let mut bytes = Vec::new();
        reader.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A file of the list: what is given has the list's sha256, whatever happened to the medium since it was checked.
    fn listed(&self, statement: &KitStatement, name: &str, max: u64) -> Result<Vec<u8>, KitError> {
        let problem = |expected: String, found: String| KitError::File {
            path: self.path.clone(),
            file: name.chars().take(120).collect(),
            expected,
            found,
        };
        let listed = statement.files().find(|(path, _)| *path == name);
        let (_, expected) = listed.ok_or_else(|| problem("a file of the signed list".to_owned(), "none".to_owned()))?;
        let expected = Digest::from_bytes(expected);
        let bytes = self.read(name, max).map_err(|error| problem(expected.to_string(), error.to_string()))?;
        let found = Digest::of(&bytes);
        if found == expected { Ok(bytes) } else { Err(problem(expected.to_string(), found.to_string())) }
    }

    /// The checkpoints that the kit brings: path and text.
    ///
    /// # Errors
    /// [`KitError::File`] for one that is missing, damaged or too large.
    pub fn checkpoints(&self, statement: &KitStatement) -> Result<Vec<(String, String)>, KitError> {
        let text = |name: &String| {
            let bytes = self.listed(statement, name, MAX_SMALL_FILE)?;
            Ok((name.clone(), String::from_utf8_lossy(&bytes).into_owned()))
        };
        statement.predicate.checkpoints.iter().map(text).collect()
    }

    /// The consistency proofs that the kit brings.
    ///
    /// # Errors
    /// [`KitError::File`] for a file that is missing, damaged or none of proofs.
    pub fn consistency(&self, statement: &KitStatement) -> Result<Vec<ConsistencyProof>, KitError> {
        let Some(name) = &statement.predicate.consistency else { return Ok(Vec::new()) };
        let bytes = self.listed(statement, name, MAX_SMALL_FILE)?;
        ConsistencyProof::parse_file(&bytes).map_err(|error| KitError::File {
            path: self.path.clone(),
            file: name.clone(),
            expected: "consistency proofs".to_owned(),
            found: error.to_string(),
        })
    }

    /// Copies every blob into `layout` and lists there what the kit's `index.json` lists, under its tags. Each blob must
    /// have the digest that is its name.
    ///
    /// # Errors
    /// [`KitError`]; what was copied before stays in `layout`.
    pub fn copy_into(
        &self,
        statement: &KitStatement,
        layout: &LayoutDir,
        copied: &dyn Fn(u64),
    ) -> Result<(), KitError> {
        for (path, _) in statement.files() {
            let Some(hex) = path.strip_prefix(BLOBS).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let digest = Digest::from_hex(hex).map_err(|error| KitError::File {
                path: self.path.clone(),
                file: path.to_owned(),
                expected: "a blob".to_owned(),
                found: error.to_string(),
            })?;
            let file = self.path.join(path);
            let (mut reader, size) = self.open_file(path).map_err(KitError::io("open", &file))?;
            let mut writer = layout.writer()?;
            io::copy(&mut reader, &mut writer).map_err(KitError::io("copy", &file))?;
            writer.finish(Some(&digest))?;
            copied(size);
        }
        let index = self.listed(statement, INDEX_FILE, oci::MAX_MANIFEST_BYTES)?;
        let index = ImageIndex::parse(&index)
            .map_err(|source| KitError::Oci { place: self.path.join(INDEX_FILE).display().to_string(), source })?;
        for mut descriptor in index.manifests {
            let tag = descriptor.annotations.remove(oci::REF_NAME);
            layout.add_to_index(descriptor, tag.as_deref())?;
        }
        Ok(())
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        let size = |place: &Place| match place {
            Place::File(path) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
            Place::Tar(_, size) => *size,
        };
        self.files.values().map(size).fold(0, u64::saturating_add)
    }
}
