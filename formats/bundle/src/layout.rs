//! An OCI image layout on disk: the one module of this crate that touches the file system.
//!
//! Files become visible by rename, complete and synced; `index.json` is rewritten under a lock on `oci-layout`.
//! Temporary files lie in `ingest/`, which readers ignore.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::digest::{Digest, Hasher};
use crate::durable::sync_directory;
use crate::ingest;
use crate::oci::{self, Descriptor, ImageIndex, Manifest, OciError};
use crate::plain_file::open_file;

const LAYOUT_FILE: &str = "oci-layout";
const LAYOUT_JSON: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// The largest `index.json` that is read, in bytes. It is no manifest: tools that copy referrers repeat there what the manifests of
/// all of them say, and a manifest's annotations alone may be as large as a manifest.
const MAX_INDEX_FILE_BYTES: u64 = 16 * oci::MAX_MANIFEST_BYTES;
const INDEX_FILE: &str = "index.json";
const INGEST: &str = "ingest";

/// What can go wrong with a layout. Every variant names the path.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The operating system said no.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The directory holds no OCI image layout.
    #[error("{path} is no OCI image layout: {problem}")]
    NotALayout {
        /// The directory.
        path: PathBuf,
        /// What is missing or wrong.
        problem: String,
    },
    /// The blob is not in the layout.
    #[error("{path} holds no blob {digest}")]
    Missing {
        /// The layout.
        path: PathBuf,
        /// The blob.
        digest: Digest,
    },
    /// The bytes are not those that the digest names.
    #[error("{path}: expected {expected}, found {found}; fetch or build it again")]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest that it should have.
        expected: Digest,
        /// The digest that it has.
        found: Digest,
    },
    /// Larger than the reader accepts.
    #[error("{path} has {size} bytes, more than the {max} that are accepted")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The bound.
        max: u64,
    },
    /// `index.json` or a manifest cannot be read.
    #[error("{path}: {source}")]
    Oci {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: OciError,
    },
    /// Not a tag.
    #[error("expected a tag ([a-zA-Z0-9_][a-zA-Z0-9._-]{{0,127}}), found {found:?}")]
    Tag {
        /// The text.
        found: String,
    },
}

/// Lists of modules, by the hexadecimal digits of their bundle's digest.
const MODULES: &str = "modules/sha256";

/// A directory with an OCI image layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutDir {
    root: PathBuf,
    /// Another layout, whose blobs need not be written here.
    beside: Option<PathBuf>,
    /// Somebody else makes the blobs durable, all of them together.
    synced_later: bool,
}

impl LayoutDir {
    /// Opens an existing layout.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, LayoutError> {
        let root = dir.into();
        let path = root.join(LAYOUT_FILE);
        let problem = match fs::metadata(&root) {
            Err(source) => return Err(LayoutError::Io { action: "open", path: root, source }),
            Ok(metadata) if !metadata.is_dir() => Some("it is not a directory".to_owned()),
            Ok(_) => match read_bounded(&path, 4096) {
                Ok(bytes) => layout_problem(&bytes),
                Err(LayoutError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    Some("there is no file oci-layout".to_owned())
                }
                Err(error) => return Err(error),
            },
        };
        match problem {
            None => Ok(Self::at(root)),
            Some(problem) => Err(LayoutError::NotALayout { path: root, problem }),
        }
    }

    /// Opens the layout in `dir`, or makes an empty one there. A directory with other content is refused.
    pub fn create(dir: impl Into<PathBuf>) -> Result<Self, LayoutError> {
        let root = dir.into();
        if root.join(LAYOUT_FILE).exists() {
            ingest::remove_orphans(&root.join(INGEST));
            return Self::open(root);
        }
        if let Err(source) = fs::create_dir_all(&root) {
            // "File exists (os error 17)" would tell nobody what to do.
            if matches!(source.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) {
                let found = if fs::metadata(&root).is_ok() {
                    "a file"
                } else {
                    "a file, or a link to nothing, on the way to it"
                };
                let problem = format!("expected a directory, found {found}; name an empty or new directory");
                return Err(LayoutError::NotALayout { path: root, problem });
            }
            return Err(LayoutError::Io { action: "create the directory", path: root, source });
        }
        let mut entries = fs::read_dir(&root).map_err(io_error("list", &root))?;
        // Another process may be making the same layout at this moment.
        let foreign = entries
            .by_ref()
            .flatten()
            .map(|entry| entry.file_name())
            .find(|name| ![LAYOUT_FILE, INDEX_FILE, INGEST, "blobs"].iter().any(|own| name == own));
        if let Some(name) = foreign {
            let problem = format!("it holds {name:?} but no file oci-layout; name an empty or new directory");
            return Err(LayoutError::NotALayout { path: root, problem });
        }
        let this = Self::at(root);
        for dir in [this.blobs(), this.root.join(INGEST)] {
            fs::create_dir_all(&dir).map_err(io_error("create the directory", &dir))?;
        }
        if !this.root.join(INDEX_FILE).exists() {
            let empty = ImageIndex::new(None, Vec::new());
            let bytes = empty.to_bytes().map_err(|source| this.oci_error(source))?;
            this.place(INDEX_FILE, &bytes)?;
        }
        this.place(LAYOUT_FILE, LAYOUT_JSON)?;
        Ok(this)
    }

    /// The layout's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the blob lies, or would lie.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    /// Whether a blob of this digest is here. Its bytes are not read.
    pub fn has(&self, digest: &Digest) -> bool {
        fs::metadata(self.blob_path(digest)).is_ok_and(|metadata| metadata.is_file())
    }

    /// The blob's size in bytes; `None` where it is not here.
    pub fn blob_size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.blob_path(digest)).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// The blob's bytes, at most `max` of them. Their digest is checked.
    pub fn read_blob(&self, digest: &Digest, max: u64) -> Result<Vec<u8>, LayoutError> {
        let path = self.blob_path(digest);
        let bytes = read_bounded(&path, max).map_err(|error| match error {
            LayoutError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                LayoutError::Missing { path: self.root.clone(), digest: *digest }
            }
            error => error,
        })?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(LayoutError::Digest { path, expected: *digest, found });
        }
        Ok(bytes)
    }

    /// Writes a blob. One that is here already and sound is left as it is; a damaged one is replaced.
    pub fn write_blob(&self, bytes: &[u8]) -> Result<Digest, LayoutError> {
        let digest = Digest::of(bytes);
        let beside = self.beside.iter().map(|root| Self::at(root.clone()));
        let has = |layout: &Self| layout.blob_size(&digest) == Some(bytes.len() as u64) && layout.is_sound(&digest);
        if has(self) || beside.into_iter().any(|layout| has(&layout)) {
            return Ok(digest);
        }
        let mut writer = self.writer()?;
        writer.write_all(bytes).map_err(|source| writer.error(source))?;
        writer.finish(Some(&digest)).map(|(digest, _)| digest)
    }

    /// Copies a file into the layout, whatever its size, and gives its digest.
    pub fn put_file(&self, path: &Path) -> Result<Digest, LayoutError> {
        let mut file = open_file(path).map_err(io_error("open", path))?;
        let mut writer = self.writer()?;
        let mut chunk = vec![0; crate::digest::READ_CHUNK];
        loop {
            let read = match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(LayoutError::Io { action: "read", path: path.to_owned(), source }),
            };
            writer.write_all(chunk.get(..read).unwrap_or_default()).map_err(|source| writer.error(source))?;
        }
        writer.finish(None).map(|(digest, _)| digest)
    }

    /// A writer for one blob whose bytes come in pieces.
    pub fn writer(&self) -> Result<BlobWriter<'_>, LayoutError> {
        let (file, path) = self.temporary()?;
        Ok(BlobWriter { layout: self, file: Some(file), path, hasher: Hasher::default() })
    }

    /// Makes `path`, a file on the layout's file system (such as a download that was resumed), the blob `expected`.
    /// Its bytes are hashed first; where they are others, the file stays where it is.
    pub fn adopt(&self, path: &Path, expected: &Digest) -> Result<(), LayoutError> {
        let file = open_file(path).map_err(io_error("open", path))?;
        let (found, _) = Digest::of_reader(&file).map_err(io_error("read", path))?;
        if found != *expected {
            return Err(LayoutError::Digest { path: path.to_owned(), expected: *expected, found });
        }
        if !self.synced_later {
            file.sync_all().map_err(io_error("sync", path))?;
        }
        self.publish(path, expected)
    }

    /// Where the list of a bundle's modules is kept, in a store of our own (`docs/formats/stored_modules.md`).
    pub fn modules_path(&self, bundle: &Digest) -> PathBuf {
        self.root.join(MODULES).join(bundle.hex())
    }

    /// Keeps the list of a bundle's modules, in one step. It is not synced: it can be made again.
    pub fn keep_modules(&self, bundle: &Digest, bytes: &[u8]) -> Result<(), LayoutError> {
        let target = self.modules_path(bundle);
        let folder = self.root.join(MODULES);
        fs::create_dir_all(&folder).map_err(io_error("create the directory", &folder))?;
        let (mut file, path) = self.temporary()?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&path, &target));
        written.map_err(|source| {
            // The error that matters is the first one.
            let _ = fs::remove_file(&path);
            LayoutError::Io { action: "write", path: target, source }
        })
    }

    /// The descriptors of `index.json`, in its order.
    pub fn manifests(&self) -> Result<Vec<Descriptor>, LayoutError> {
        Ok(self.read_index()?.manifests)
    }

    /// Adds a descriptor to `index.json`, under a tag if one is given. A descriptor that had the tag loses it; a
    /// digest that is listed already is not listed twice.
    pub fn add_to_index(&self, descriptor: Descriptor, tag: Option<&str>) -> Result<(), LayoutError> {
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(LayoutError::Tag { found: tag.chars().take(140).collect() });
        }
        let _lock = self.lock_index()?;
        let mut index = self.read_index()?;
        let before = index.clone();
        for other in &mut index.manifests {
            if tag.is_some() && other.ref_name() == tag && other.digest != descriptor.digest {
                other.annotations.remove(oci::REF_NAME);
            }
        }
        let listed = index.manifests.iter().position(|other| {
            other.digest == descriptor.digest
                && (tag.is_none() || other.ref_name().is_none_or(|name| Some(name) == tag))
        });
        let mut descriptor = descriptor;
        if let Some(name) = tag.or_else(|| listed.and_then(|at| index.manifests.get(at)?.ref_name())) {
            descriptor.annotations.insert(oci::REF_NAME.to_owned(), name.to_owned());
        }
        match listed.and_then(|at| index.manifests.get_mut(at)) {
            Some(slot) => *slot = descriptor,
            None => index.manifests.push(descriptor),
        }
        if index == before {
            return Ok(());
        }
        let bytes = index.to_bytes().map_err(|source| self.oci_error(source))?;
        self.place(INDEX_FILE, &bytes)
    }

    /// Names `new` in `index.json` in the place of `old`, under the same tag.
    pub fn replace_in_index(&self, old: &Digest, new: Descriptor) -> Result<(), LayoutError> {
        let _lock = self.lock_index()?;
        let mut index = self.read_index()?;
        let tag = index.manifests.iter().find(|listed| listed.digest == *old).and_then(Descriptor::ref_name);
        let new = match tag {
            Some(tag) => new.clone().with(oci::REF_NAME, tag),
            None => new,
        };
        index.manifests.retain(|listed| listed.digest != *old && listed.digest != new.digest);
        index.manifests.push(new);
        let bytes = index.to_bytes().map_err(|source| self.oci_error(source))?;
        self.place(INDEX_FILE, &bytes)
    }

    /// The manifests in `index.json` whose subject is `subject`, as descriptors with artifact type and annotations.
    /// A listed manifest whose blob is absent is passed over, as layouts may be sparse; one that is no manifest, or larger than
    /// manifests are, too, as other tools bring along whatever somebody added.
    pub fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>, LayoutError> {
        let mut found: Vec<Descriptor> = Vec::new();
        for listed in self.manifests()? {
            if listed.media_type != oci::MANIFEST || found.iter().any(|other| other.digest == listed.digest) {
                continue;
            }
            let bytes = match self.read_blob(&listed.digest, oci::MAX_MANIFEST_BYTES) {
                Err(LayoutError::Missing { .. } | LayoutError::TooLarge { .. }) => continue,
                bytes => bytes?,
            };
            let Ok(manifest) = Manifest::parse(&bytes) else { continue };
            if manifest.subject.as_ref().is_some_and(|other| other.digest == *subject) {
                let mut descriptor = Descriptor::of(oci::MANIFEST, &bytes);
                descriptor.artifact_type = manifest.artifact_type.or(Some(manifest.config.media_type));
                descriptor.annotations = manifest.annotations;
                found.push(descriptor);
            }
        }
        Ok(found)
    }

    /// Removes a layout that lists nothing and holds no blob, and in which nobody is at work; another one stays as it is.
    ///
    /// # Errors
    /// [`LayoutError`] where it is not empty, or cannot be removed.
    pub fn remove_if_empty(self) -> Result<(), LayoutError> {
        let remove = |path: &Path| std::fs::remove_dir(path).map_err(io_error("remove", path));
        let _lock = self.lock_index()?;
        if !self.manifests()?.is_empty() {
            return Ok(());
        }
        // A directory in which something lies is not removed; whoever is at work has one in `ingest/`.
        if self.ingest().exists() {
            remove(&self.ingest())?;
        }
        remove(&self.blobs())?;
        remove(&self.root.join("blobs"))?;
        for name in [INDEX_FILE, LAYOUT_FILE] {
            let path = self.root.join(name);
            std::fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
        remove(&self.root)
    }

    /// Keeps others from rewriting `index.json` while the file lives, and makes the blobs durable that it will name.
    fn lock_index(&self) -> Result<File, LayoutError> {
        let path = self.root.join(LAYOUT_FILE);
        let lock = File::open(&path).map_err(io_error("open", &path))?;
        // Released when the file is closed, so also when this process dies.
        lock.lock().map_err(io_error("lock", &path))?;
        sync_directory(&self.blobs())?;
        Ok(lock)
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs").join("sha256")
    }

    pub(crate) fn ingest(&self) -> PathBuf {
        self.root.join(INGEST)
    }

    /// The same, where what `other` has need not be written, and whose blobs are not durable before the caller makes them so.
    pub(crate) fn staged_beside(self, other: &Self) -> Self {
        Self { beside: Some(other.root.clone()), synced_later: true, ..self }
    }

    fn at(root: PathBuf) -> Self {
        Self { root, beside: None, synced_later: false }
    }

    /// Moves a blob of another layout on the same file system here, unless it is here already and sound.
    pub(crate) fn take_blob(&self, path: &Path) -> Result<(), LayoutError> {
        let target = self.blobs().join(path.file_name().unwrap_or_default());
        let digest = target.file_name().and_then(|name| format!("sha256:{}", name.to_str()?).parse().ok());
        if digest.is_some_and(|digest| self.has(&digest) && self.is_sound(&digest)) {
            return Ok(());
        }
        fs::rename(path, &target).map_err(io_error("rename a file to", &target))
    }

    /// Makes the directory of blobs, which layouts that other tools made may lack.
    pub(crate) fn create_blobs(&self) -> Result<(), LayoutError> {
        fs::create_dir_all(self.blobs()).map_err(io_error("create the directory", &self.blobs()))
    }

    fn read_index(&self) -> Result<ImageIndex, LayoutError> {
        let bytes = read_bounded(&self.root.join(INDEX_FILE), MAX_INDEX_FILE_BYTES)?;
        ImageIndex::parse_list(&bytes).map_err(|source| self.oci_error(source))
    }

    fn oci_error(&self, source: OciError) -> LayoutError {
        LayoutError::Oci { path: self.root.join(INDEX_FILE), source }
    }

    /// Whether a blob of this digest is here and has it: its bytes are read.
    pub fn is_sound(&self, digest: &Digest) -> bool {
        open_file(&self.blob_path(digest)).and_then(Digest::of_reader).is_ok_and(|(found, _)| found == *digest)
    }

    /// A new file in `ingest/`.
    fn temporary(&self) -> Result<(File, PathBuf), LayoutError> {
        let ingest = self.root.join(INGEST);
        match ingest::temporary_file(&ingest) {
            // Layouts that other tools made have no such directory.
            Err(source) if source.kind() == io::ErrorKind::NotFound && !ingest.exists() => {
                fs::create_dir_all(&ingest).map_err(io_error("create the directory", &ingest))?;
                let blobs = self.blobs();
                fs::create_dir_all(&blobs).map_err(io_error("create the directory", &blobs))?;
                ingest::temporary_file(&ingest).map_err(io_error("create a file in", &ingest))
            }
            made => made.map_err(io_error("create a file in", &ingest)),
        }
    }

    /// Writes a file of the layout's root, replacing what was there in one step.
    fn place(&self, name: &str, bytes: &[u8]) -> Result<(), LayoutError> {
        let target = self.root.join(name);
        let (mut file, path) = self.temporary()?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&path, &target));
        if let Err(source) = written {
            // The error that matters is the first one.
            let _ = fs::remove_file(&path);
            return Err(LayoutError::Io { action: "write", path: target, source });
        }
        sync_directory(&self.root)
    }

    fn publish(&self, path: &Path, digest: &Digest) -> Result<(), LayoutError> {
        let target = self.blob_path(digest);
        fs::rename(path, &target).map_err(io_error("rename a file to", &target))
    }
}

/// Takes the bytes of one blob. Dropped before [`BlobWriter::finish`] it leaves nothing.
#[derive(Debug)]
pub struct BlobWriter<'l> {
    layout: &'l LayoutDir,
    file: Option<File>,
    path: PathBuf,
    hasher: Hasher,
}

impl BlobWriter<'_> {
    /// Syncs the bytes (in a [`Staging`](crate::Staging) all of them together, later) and makes them visible under their digest, which
    /// must be `expected` where that is given.
    /// Returns digest and size.
    pub fn finish(mut self, expected: Option<&Digest>) -> Result<(Digest, u64), LayoutError> {
        let (found, size) = std::mem::take(&mut self.hasher).finish();
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            let path = self.layout.blob_path(expected);
            return Err(LayoutError::Digest { path, expected: *expected, found });
        }
        // Held until it has its name.
        let file = self.file.take();
        if let Some(file) = file.as_ref().filter(|_| !self.layout.synced_later) {
            file.sync_all().map_err(|source| self.error(source))?;
        }
        self.layout.publish(&self.path, &found)?;
        self.path = PathBuf::new();
        Ok((found, size))
    }

    fn error(&self, source: io::Error) -> LayoutError {
        LayoutError::Io { action: "write", path: self.path.clone(), source }
    }
}

impl Write for BlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let written = file.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BlobWriter<'_> {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // A file that is left behind is only untidy: readers ignore `ingest/`.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether `text` is a tag by the OCI distribution specification.
pub fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().enumerate().all(|(at, byte)| word(byte) || at > 0 && matches!(byte, b'.' | b'-'))
}

/// A whole file of at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, LayoutError> {
    let file = open_file(path).map_err(io_error("open", path))?;
    let size = file.metadata().map_err(io_error("read", path))?.len();
    let too_large = |size| LayoutError::TooLarge { path: path.to_owned(), size, max };
    if size > max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // What cannot be allocated is an error like any other: the size is another's word.
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX)).map_err(|_| too_large(size))?;
    // The file may grow while it is read.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(io_error("read", path))?;
    if bytes.len() as u64 > max {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

fn layout_problem(bytes: &[u8]) -> Option<String> {
    // As nearly everybody writes it.
    if bytes == LAYOUT_JSON {
        return None;
    }
    let value: serde_json::Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Some(format!("oci-layout is not JSON: {error}")),
    };
    match value.get("imageLayoutVersion").and_then(|version| version.as_str()) {
        Some(version) if version.starts_with("1.") => None,
        version => Some(format!("expected imageLayoutVersion 1.x, found {version:?}")),
    }
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    let path = path.to_owned();
    move |source| LayoutError::Io { action, path, source }
}
