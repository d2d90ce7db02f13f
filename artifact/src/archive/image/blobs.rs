//! An image's blobs by their path: small ones that are JSON, and layers, whose headers are read once.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::digests::{Hashed, Passed, digest_like};
use super::overlay::{Changes, Held};
use crate::archive::decompress::{Counted, unpack};
use crate::archive::error::{ArchiveError, Halt, LimitKind};
use crate::archive::kind::{ArchiveKind, archive_kind};
use crate::archive::limits::Account;
use crate::archive::member::{joined, reported};

/// Bytes of one index, manifest or configuration; registries take manifests up to 4 MiB.
pub(super) const MAX_JSON_BYTES: u64 = 4 << 20;
/// Symbolic links that `docker save` of old made between layers with the same content.
const MAX_LINKS: u32 = 8;
const HEAD_BYTES: u64 = 512;

/// A layer as a manifest names it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) path: String,
    /// Of its blob.
    pub(super) digest: Option<String>,
    /// Of its blob, in bytes.
    pub(super) size: Option<u64>,
    /// Digest of the tar that is packed in it.
    pub(super) diff_id: Option<String>,
}

/// A layer whose headers were read.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) digest: String,
    size: u64,
    /// What is packed in it.
    tar: Passed,
    pub(super) changes: Changes,
}

/// Why a blob is no layer.
#[derive(Debug, Clone)]
pub(super) enum NoLayer {
    /// It is no tar.
    NoTar,
    /// It is a damaged one.
    Damaged(ArchiveError),
}

/// Opens a file of an image layout by its path.
pub(in crate::archive) type Open<'o> = dyn FnMut(&str) -> io::Result<Box<dyn Read>> + 'o;

/// The blobs of one archive or layout.
pub(super) struct Blobs<'b> {
    pub(super) archive: String,
    pub(super) account: &'b Account<'b>,
    /// For a layout: how its files are opened. An archive's were all seen before.
    pub(super) open: Option<&'b mut Open<'b>>,
    json: BTreeMap<String, Vec<u8>>,
    layers: BTreeMap<String, Result<Rc<Layer>, NoLayer>>,
    links: BTreeMap<String, String>,
    held: Held,
}

impl<'b> Blobs<'b> {
    pub(super) fn new(archive: String, account: &'b Account<'b>, open: Option<&'b mut Open<'b>>) -> Self {
        Self {
            archive,
            account,
            open,
            json: BTreeMap::new(),
            layers: BTreeMap::new(),
            links: BTreeMap::new(),
            held: Held::default(),
        }
    }

    /// Where a layout has a blob.
    pub(super) fn path_of(&self, digest: &str) -> String {
        format!("blobs/{}", digest.replacen(':', "/", 1))
    }

    /// Takes a file of a saved archive: keeps it if it is small JSON, reads its headers if it is a tar.
    pub(super) fn take(&mut self, path: String, size: u64, input: &mut dyn Read) -> Result<(), Halt> {
        let mut head = Vec::new();
        let read = input.take(HEAD_BYTES).read_to_end(&mut head);
        read.map_err(|error| self.account.halt(&self.archive, "more of a blob", &error))?;
        if matches!(head.first(), Some(b'{' | b'[')) && size <= MAX_JSON_BYTES {
            let read = input.read_to_end(&mut head);
            read.map_err(|error| self.account.halt(&self.archive, "more of a blob", &error))?;
            self.held.add(self.account, &self.archive, head.len().saturating_add(path.len()))?;
            self.json.insert(path, head);
        } else if archive_kind(&head).is_some_and(|kind| kind == ArchiveKind::Tar || kind.is_compression()) {
            let layer = self.scan(&path, &head, input)?;
            self.layers.insert(path, layer.map(Rc::new));
        }
        Ok(())
    }

    /// Takes a link of a saved archive, to a path from its root.
    pub(super) fn take_link(&mut self, path: String, target: String) -> Result<(), Halt> {
        self.held.add(self.account, &self.archive, path.len().saturating_add(target.len()))?;
        self.links.insert(path, target);
        Ok(())
    }

    /// The bytes of a JSON file; none where it is not there.
    pub(super) fn json(&mut self, path: &str) -> Result<Option<Vec<u8>>, Halt> {
        let path = self.resolved(path);
        if let Some(bytes) = self.json.get(&path) {
            return Ok(Some(bytes.clone()));
        }
        let Some(input) = self.opened(&path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = input.take(MAX_JSON_BYTES.saturating_add(1)).read_to_end(&mut bytes);
        let read = read.map_err(|error| self.unreadable(&path, &error))?;
        self.account.within(&self.archive, LimitKind::HeaderBytes, MAX_JSON_BYTES, read as u64)?;
        Ok(Some(bytes))
    }

    /// The bytes of a JSON blob with that digest and size, which are checked.
    pub(super) fn blob_json(&mut self, digest: &str, size: u64) -> Result<Option<Vec<u8>>, Halt> {
        let Some(bytes) = self.json(&self.path_of(digest))? else { return Ok(None) };
        self.check_bytes(digest, size, &bytes)?;
        Ok(Some(bytes))
    }

    /// The bytes of a JSON blob that stands in its descriptor, in base64. They are checked in the same way.
    pub(super) fn embedded_json(&self, digest: &str, size: u64, data: &str) -> Result<Vec<u8>, Halt> {
        let decoded = STANDARD.decode(data);
        let bytes =
            decoded.map_err(|error| self.damaged(digest, "base64 as its descriptor's data", error.to_string()))?;
        self.check_bytes(digest, size, &bytes)?;
        Ok(bytes)
    }

    fn check_bytes(&self, digest: &str, size: u64, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.check(digest, digest, &digest_like(digest, bytes))?;
        self.check(digest, &bytes_told(size), &bytes_told(bytes.len() as u64))
    }

    /// A layer, checked against what its manifest says.
    pub(super) fn layer(&mut self, wanted: &Wanted) -> Result<Option<Result<Rc<Layer>, NoLayer>>, Halt> {
        let path = self.resolved(&wanted.path);
        if !self.layers.contains_key(&path) {
            let Some(mut input) = self.opened(&path)? else { return Ok(None) };
            self.account.member(&self.archive, &path, path.len())?;
            let mut head = Vec::new();
            let read = input.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
            read.map_err(|error| self.unreadable(&path, &error))?;
            let mut input = Unfailing { input, blobs: (&self.archive, &path), account: self.account };
            let layer = Self::scan_with(&self.archive, self.account, &mut self.held, &path, &head, &mut input)?;
            self.layers.insert(path.clone(), layer.map(Rc::new));
        }
        let Some(layer) = self.layers.get(&path) else { return Ok(None) };
        let layer = match layer {
            Ok(layer) => Rc::clone(layer),
            Err(no_layer) => return Ok(Some(Err(no_layer.clone()))),
        };
        if let Some(digest) = &wanted.digest {
            self.check(digest, digest, &layer.digest)?;
        }
        if let Some(size) = wanted.size {
            self.check(&layer.digest, &bytes_told(size), &bytes_told(layer.size))?;
        }
        if let Some(diff_id) = wanted.diff_id.as_ref().filter(|diff_id| !layer.tar.is_padded_to(diff_id)) {
            self.check(&format!("{} unpacked", layer.digest), diff_id, &layer.tar.digest())?;
        }
        Ok(Some(Ok(layer)))
    }

    /// The digest of the layer at a path.
    pub(super) fn digest_at(&self, path: &str) -> Option<&str> {
        self.layers.get(path)?.as_ref().ok().map(|layer| layer.digest.as_str())
    }

    /// Whether a file is one of the image's own: a list, a layer or a link.
    pub(super) fn has(&self, path: &str) -> bool {
        self.json.contains_key(path) || self.layers.contains_key(path) || self.links.contains_key(path)
    }

    /// The path where a layer's bytes lie.
    pub(super) fn resolved(&self, path: &str) -> String {
        let mut path = reported(path.as_bytes());
        for _ in 0..MAX_LINKS {
            match self.links.get(&path) {
                Some(target) => target.clone_into(&mut path),
                None => break,
            }
        }
        path
    }

    /// Opens a file of a layout; none where it is not there, or in an archive.
    pub(super) fn opened(&mut self, path: &str) -> Result<Option<Box<dyn Read>>, Halt> {
        let Some(open) = self.open.as_mut() else { return Ok(None) };
        match open(path) {
            Ok(input) => Ok(Some(Box::new(Counted::new(input, self.account.read())))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unreadable(path, &error)),
        }
    }

    fn scan(&mut self, path: &str, head: &[u8], input: &mut dyn Read) -> Result<Result<Layer, NoLayer>, Halt> {
        Self::scan_with(&self.archive, self.account, &mut self.held, path, head, input)
    }

    fn scan_with(
        archive: &str,
        account: &Account<'_>,
        held: &mut Held,
        path: &str,
        head: &[u8],
        rest: &mut dyn Read,
    ) -> Result<Result<Layer, NoLayer>, Halt> {
        let label = joined(&[archive.to_owned()], path);
        let mut packed = Hashed::of(path, head.chain(rest));
        let kind = archive_kind(head).filter(|kind| kind.is_compression()).unwrap_or(ArchiveKind::Tar);
        let result = (|| {
            let mut stream = unpack(kind, &label, &mut packed, account);
            let mut head = Vec::new();
            let read = (&mut stream).take(HEAD_BYTES).read_to_end(&mut head);
            read.map_err(|error| account.halt(&label, "more of a layer", &error))?;
            // A layer without any entry is zeros alone.
            let is_empty = head.iter().all(|byte| *byte == 0);
            if !is_empty && archive_kind(&head) != Some(ArchiveKind::Tar) {
                return Ok(None);
            }
            let mut unpacked = Hashed::of(path, head.chain(stream));
            let changes = Changes::read(&mut unpacked, &label, account, held)?;
            drain(&mut unpacked, &label, account)?;
            Ok(Some((changes, unpacked.passed)))
        })();
        match result {
            Ok(Some((changes, tar))) => {
                drain(&mut packed, &label, account)?;
                Ok(Ok(Layer { size: packed.passed.bytes, digest: packed.digest(), tar, changes }))
            }
            Ok(None) => Ok(Err(NoLayer::NoTar)),
            // Not every file of an archive that is packed is a layer: it counts when a manifest wants it.
            Err(Halt::Archive(error @ ArchiveError::Damaged { .. })) if is_of(&error, &label) => {
                account.forgive();
                Ok(Err(NoLayer::Damaged(error)))
            }
            Err(halt) => Err(halt),
        }
    }

    pub(super) fn check(&self, blob: &str, expected: &str, found: &str) -> Result<(), ArchiveError> {
        if expected == found {
            return Ok(());
        }
        Err(ArchiveError::Mismatch {
            archive: self.archive.clone(),
            blob: crate::escaped(blob.as_bytes()).into_owned(),
            expected: crate::escaped(expected.as_bytes()).into_owned(),
            found: found.to_owned(),
        })
    }

    pub(super) fn damaged(&self, member: &str, expected: &str, found: String) -> ArchiveError {
        ArchiveError::Damaged {
            archive: self.archive.clone(),
            member: crate::escaped(member.as_bytes()).into_owned(),
            expected: expected.to_owned(),
            found,
        }
    }

    fn unreadable(&self, path: &str, error: &io::Error) -> Halt {
        let archive = joined(std::slice::from_ref(&self.archive), path);
        ArchiveError::Unreadable { archive, reason: error.to_string() }.into()
    }
}

fn is_of(error: &ArchiveError, label: &str) -> bool {
    matches!(error, ArchiveError::Damaged { archive, .. } if archive == label)
}

fn bytes_told(bytes: u64) -> String {
    format!("{bytes} bytes")
}

pub(super) fn drain(input: &mut dyn Read, label: &str, account: &Account<'_>) -> Result<(), Halt> {
    let rest = io::copy(input, &mut io::sink());
    rest.map(|_| ()).map_err(|error| account.halt(label, "a sound end of the layer", &error))
}

/// A reader of the caller, whose errors are told from damage.
pub(super) struct Unfailing<'a, R> {
    pub(super) input: R,
    pub(super) blobs: (&'a str, &'a str),
    pub(super) account: &'a Account<'a>,
}

impl<R: Read> Read for Unfailing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let archive = joined(&[self.blobs.0.to_owned()], self.blobs.1);
                    let reason = error.to_string();
                    return Err(self.account.fail(ArchiveError::Unreadable { archive, reason }));
                }
                Ok(read) => return Ok(read),
            }
        }
    }
}
