//! Container images: an OCI layout in a folder or in a tar, and what `docker save` writes.
//!
//! What is visited is what the image has in the end: a first pass reads the headers of all layers and lays them upon one
//! another, whiteouts honoured; a second one visits the files that are left. Digests of manifests, configurations and layers
//! are checked in the first pass, those of the layers' blobs in the second again. Of an index for several platforms every
//! image is read; a file that several images share is visited once.
//!
//! Paths are compared as the layers have them: a file that a layer puts below a symbolic link of the layers beneath is not
//! seen as the file that the link leads to.

mod blobs;
mod manifest;
mod overlay;

use std::collections::BTreeMap;
use std::io::{self, Read, SeekFrom};

use super::ReadSeek;
use super::decompress::unpack;
use super::error::Halt;
use super::kind::{ArchiveKind, archive_kind};
use super::limits::Account;
use super::member::{Inside, Place, joined, normalised, reported};
use super::report::{ImageReport, PassedOverReason};
use super::tar::{Item, TarStream};
use super::walk::Walk;
use blobs::{Blobs, Hashed, NoLayer, Unfailing, Wanted, drain};
use manifest::{Image, Images};
use overlay::Overlay;

pub(super) use blobs::Open;

const HEAD_BYTES: u64 = 512;
/// Hex digits of a SHA-256.
const DIGEST_DIGITS: usize = 64;

/// The images of an archive or layout, ready to be visited.
struct Plan {
    images: Vec<Image>,
    reports: Vec<ImageReport>,
    passed_over: Vec<(String, PassedOverReason)>,
    /// Digests of the layers' blobs and where they lie.
    layers: Vec<(String, String)>,
    /// Of which image a layer's entry is, and under which path: by the layer's number and the entry's.
    files: BTreeMap<(usize, u64), (usize, Vec<u8>)>,
}

/// Visits the images of a tar, compressed or not, that holds some; false, with the tar as it was, where it holds none.
pub(super) fn read_saved(walk: &mut Walk<'_>, place: &Place, input: &mut dyn ReadSeek) -> Result<bool, Halt> {
    let account = walk.account;
    let label = place.label();
    let mut blobs = Blobs::new(label.clone(), account, None);
    let plan = match with_tar(account, &label, input, |stream| saved_plan(&mut blobs, stream))? {
        Some(Some(plan)) => plan,
        Some(None) | None => {
            account.restart();
            return Ok(false);
        }
    };
    account.restart();
    let mut pending: Vec<bool> = plan.layers.iter().enumerate().map(|(at, _)| plan.has_files(at)).collect();
    plan.report(walk, &label);
    with_tar(account, &label, input, |stream| {
        while let Some(entry) = stream.next()? {
            let path = reported(&entry.path);
            let Some(digest) = blobs.digest_at(&path) else { continue };
            let layer = plan.layers.iter().position(|(known, _)| known == digest);
            let Some((at, is_pending)) = layer.and_then(|at| Some((at, pending.get_mut(at)?))) else { continue };
            if std::mem::take(is_pending) && entry.item == Item::File {
                visit_layer(walk, &blobs, &plan, at, stream)?;
            }
        }
        Ok(())
    })?;
    Ok(true)
}

/// Visits the images of a layout in a folder.
pub(super) fn read_layout<'o>(walk: &mut Walk<'_>, name: &str, open: &'o mut Open<'o>) -> Result<(), Halt> {
    let account = walk.account;
    let label = Place::outermost(name).label();
    // The blobs live shorter than the walk, and so does what they borrow.
    read_layout_with(walk, account, &label, open)
}

fn read_layout_with<'o>(
    walk: &mut Walk<'_>,
    account: &'o Account<'o>,
    label: &str,
    open: &'o mut Open<'o>,
) -> Result<(), Halt> {
    let mut blobs = Blobs::new(label.to_owned(), account, Some(open));
    let images = Images::of(&mut blobs)?;
    let Some(images) = images else {
        return Err(blobs.damaged("index.json", "an image layout's index", "no such file".to_owned()).into());
    };
    let plan = Plan::of(&mut blobs, images)?;
    account.restart();
    plan.report(walk, label);
    for (at, (_, path)) in plan.layers.iter().enumerate() {
        if !plan.has_files(at) {
            continue;
        }
        let input =
            blobs.opened(path)?.ok_or_else(|| blobs.damaged(path, "the layer that was there", "none".into()))?;
        let mut input = Unfailing { input, blobs: (label, path), account };
        visit_layer(walk, &blobs, &plan, at, &mut input)?;
    }
    Ok(())
}

/// Reads a tar from its beginning, unpacked where it is compressed; none where it is no tar.
fn with_tar<T>(
    account: &Account<'_>,
    label: &str,
    input: &mut dyn ReadSeek,
    read: impl FnOnce(&mut TarStream<'_>) -> Result<T, Halt>,
) -> Result<Option<T>, Halt> {
    let halt = |error: &io::Error| account.halt(label, "a tar", error);
    let mut head = Vec::new();
    input.seek(SeekFrom::Start(0)).map_err(|error| halt(&error))?;
    (&mut *input).take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| halt(&error))?;
    input.seek(SeekFrom::Start(0)).map_err(|error| halt(&error))?;
    let kind = archive_kind(&head).filter(|kind| kind.is_compression()).unwrap_or(ArchiveKind::Tar);
    let mut input: &mut dyn Read = &mut { input };
    let mut stream = unpack(kind, label, &mut input, account);
    let mut head = Vec::new();
    if (&mut stream).take(HEAD_BYTES).read_to_end(&mut head).is_err() || archive_kind(&head) != Some(ArchiveKind::Tar) {
        // Not a tar, or damaged at once: the reading that follows says so.
        account.forgive();
        return Ok(None);
    }
    let mut stream = head.chain(stream);
    let mut stream = TarStream::new(&mut stream, label, account);
    read(&mut stream).map(Some)
}

/// The plan for a tar of images; none where it is another tar.
fn saved_plan(blobs: &mut Blobs<'_>, stream: &mut TarStream<'_>) -> Result<Option<Plan>, Halt> {
    let mut is_first = true;
    loop {
        let entry = match stream.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(_) if is_first => {
                blobs.account.forgive();
                return Ok(None);
            }
            Err(halt) => return Err(halt),
        };
        let path = normalised(&entry.path);
        if is_first && !begins_saved_images(&path) && !path.is_empty() {
            return Ok(None);
        }
        is_first = is_first && path.is_empty();
        let told = reported(&path);
        blobs.account.member(&blobs.archive, &told, entry.path.len())?;
        match entry.item {
            Item::File => blobs.take(told, entry.size, stream)?,
            Item::HardLink { target } => blobs.take_link(told, reported(&target))?,
            Item::SymbolicLink { target } => {
                let folder = path.iter().rposition(|byte| *byte == b'/').and_then(|at| path.get(..at));
                let target = [folder.unwrap_or_default(), b"/", &target].concat();
                blobs.take_link(told, reported(&target))?;
            }
            Item::Folder | Item::Special => {}
        }
    }
    match Images::of(blobs)? {
        Some(images) => Plan::of(blobs, images).map(Some),
        None => Ok(None),
    }
}

/// Whether a tar that begins with this member may hold images: what docker, podman, skopeo, BuildKit, kaniko, Bazel and Nix
/// write first. Only such a tar is read twice.
fn begins_saved_images(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    let known: [&[u8]; 6] = [b"blobs", b"oci-layout", b"index.json", b"manifest.json", b"repositories", b"config.json"];
    let digest = first.strip_prefix(b"sha256:").unwrap_or(first);
    let is_digest = digest.get(..DIGEST_DIGITS).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    known.contains(&first) || is_digest
}

impl Plan {
    fn of(blobs: &mut Blobs<'_>, images: Images) -> Result<Self, Halt> {
        let Images { images, passed_over, .. } = images;
        let mut plan =
            Self { images: Vec::new(), reports: Vec::new(), passed_over, layers: Vec::new(), files: BTreeMap::new() };
        for image in images {
            plan.add(blobs, image)?;
        }
        Ok(plan)
    }

    fn add(&mut self, blobs: &mut Blobs<'_>, image: Image) -> Result<(), Halt> {
        let mut overlay = Overlay::default();
        let mut layers = Vec::new();
        let mut digests = Vec::new();
        for (at, wanted) in image.layers.iter().enumerate() {
            let layer = match blobs.layer(wanted)? {
                Some(Ok(layer)) => layer,
                Some(Err(NoLayer::Damaged(error))) => return Err(error.into()),
                Some(Err(NoLayer::NoTar)) => {
                    let reason = PassedOverReason::Unsupported(format!("layer {} is no tar", wanted.told()));
                    self.passed_over.push((image.told(), reason));
                    return Ok(());
                }
                None => {
                    self.passed_over.push((image.told(), PassedOverReason::Missing(wanted.told())));
                    return Ok(());
                }
            };
            overlay.lay(at, &layer.changes);
            digests.push(layer.digest.clone());
            let known = self.layers.iter().position(|(digest, _)| *digest == layer.digest);
            let number = known.unwrap_or(self.layers.len());
            if known.is_none() {
                self.layers.push((layer.digest.clone(), blobs.resolved(&wanted.path)));
            }
            layers.push((number, layer));
        }
        let number = self.images.len();
        let mut files = 0_u64;
        for (path, layer, entry) in overlay.files() {
            files = files.saturating_add(1);
            let Some((layer, content)) = layers.get(layer) else { continue };
            let key = (*layer, entry);
            // Of several names the one that the layer gave the file first.
            let is_own = content.changes.is_path_of(entry, path);
            match self.files.get(&key) {
                Some((image, _)) if *image != number || !is_own => {}
                _ => drop(self.files.insert(key, (number, path.to_vec()))),
            }
        }
        let (platform, name) = (image.platform.clone(), image.name.clone());
        self.reports.push(ImageReport { platform, name, layers: digests, files });
        self.images.push(image);
        Ok(())
    }

    fn has_files(&self, layer: usize) -> bool {
        self.files.range((layer, 0)..=(layer, u64::MAX)).next().is_some()
    }

    fn report(&self, walk: &mut Walk<'_>, label: &str) {
        walk.report.archives = walk.report.archives.saturating_add(1);
        walk.report.images.clone_from(&self.reports);
        for (what, reason) in &self.passed_over {
            walk.pass_over(joined(&[label.to_owned()], what), reason.clone());
        }
    }
}

impl Image {
    fn told(&self) -> String {
        let parts = [self.name.as_str(), self.platform.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }
}

impl Wanted {
    fn told(&self) -> String {
        self.digest.as_deref().map_or_else(|| reported(self.path.as_bytes()), |digest| reported(digest.as_bytes()))
    }
}

/// Visits what is left of one layer, and checks its digest once more: the file may have changed in between.
fn visit_layer(
    walk: &mut Walk<'_>,
    blobs: &Blobs<'_>,
    plan: &Plan,
    layer: usize,
    input: &mut dyn Read,
) -> Result<(), Halt> {
    let account = walk.account;
    let Some((digest, _)) = plan.layers.get(layer) else { return Ok(()) };
    let label = joined(std::slice::from_ref(&blobs.archive), digest);
    let mut packed = Hashed::new(input);
    let mut head = Vec::new();
    let read = (&mut packed).take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|error| account.halt(&label, "more of a layer", &error))?;
    let kind = archive_kind(&head).filter(|kind| kind.is_compression()).unwrap_or(ArchiveKind::Tar);
    {
        let mut input = head.chain(&mut packed);
        let mut unpacked = unpack(kind, &label, &mut input, account);
        let mut stream = TarStream::new(&mut unpacked, &label, account);
        let mut number = 0_u64;
        while let Some(entry) = stream.next()? {
            if let Some((image, path)) = plan.files.get(&(layer, number))
                && let Some(image) = plan.images.get(*image)
            {
                let mut outer = vec![blobs.archive.clone()];
                outer.extend((!image.platform.is_empty()).then(|| image.platform.clone()));
                outer.push(digest.clone());
                let inside = Inside { label: label.clone(), outer, depth: 1 };
                let place = walk.begin(&inside, path.clone(), Some(entry.size))?;
                walk.member(&place, &mut stream)?;
            }
            number = number.saturating_add(1);
        }
        drain(&mut unpacked, &label, account)?;
    }
    drain(&mut packed, &label, account)?;
    Ok(blobs.check(digest, digest, &packed.digest())?)
}
