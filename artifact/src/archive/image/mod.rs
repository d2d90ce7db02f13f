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
mod digests;
mod manifest;
mod overlay;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, SeekFrom};

use super::ReadSeek;
use super::decompress::unpack;
use super::error::Halt;
use super::kind::{ArchiveKind, archive_kind};
use super::limits::Account;
use super::member::{Inside, Place, joined, normalised, reported};
use super::report::{ImageReport, PassedOverReason};
use super::tar::{self, Entry, Item, TarStream, beside};
use super::walk::Walk;
use blobs::{Blobs, NoLayer, Unfailing, Wanted, drain};
use digests::{Hashed, unread_algorithm};
use manifest::{Image, Images};
use overlay::Overlay;
use survey::within;

pub(super) use blobs::Open;
pub(super) use overlay::is_whiteout;
pub(super) use survey::{BEGINNING, Signs, is_worth_a_look};

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
    /// Hard links whose file is nowhere in their image, by the image's number: path and target.
    lost: BTreeSet<(usize, Vec<u8>, Vec<u8>)>,
    /// How many more of them there are: many images may have one layer.
    more_lost: u64,
}

/// As many names of links are kept; the others are counted.
const MOST_LOST: usize = 1 << 16;

/// Visits the images of a tar, compressed or not, that holds some, and its files beside them; false, with the tar as it was, where it holds
/// none. The images may lie in the tar's root or in folders of it, and their files in any order.
pub(super) fn read_saved(walk: &mut Walk<'_>, place: &Place, input: &mut dyn ReadSeek) -> Result<bool, Halt> {
    let account = walk.account;
    let label = place.label();
    let folders = folders(account, &label, input)?;
    if folders.is_empty() {
        return Ok(false);
    }
    let mark = account.mark();
    let mut all: Vec<Found<'_>> = folders.into_iter().map(|folder| Found::new(folder, &label, account)).collect();
    let seen = with_tar(account, &label, input, |stream| take_all(&mut all, account, &label, stream))?;
    account.back_to(mark);
    if seen.is_none() {
        return Ok(false);
    }
    let mut images = Vec::new();
    for mut found in all {
        if let Some(plan) = found.plan()? {
            images.push((found, plan));
        }
    }
    if images.is_empty() {
        account.back_to(mark);
        return Ok(false);
    }
    account.back_to(mark);
    walk.report.archives = walk.report.archives.saturating_add(1);
    for (found, plan) in &images {
        plan.report(walk, &found.blobs.archive);
    }
    let mut pending: Vec<Vec<bool>> =
        images.iter().map(|(_, plan)| (0..plan.layers.len()).map(|at| plan.has_files(at)).collect()).collect();
    let inside = place.as_outer();
    with_tar(account, &label, input, |stream| {
        while let Some(entry) = stream.next()? {
            let path = normalised(&entry.path);
            let at = images.iter().position(|(found, _)| within(&path, &found.folder).is_some());
            let Some((image, pending)) = at.and_then(|at| Some((images.get(at)?, pending.get_mut(at)?))) else {
                visit_beside(walk, &inside, entry, stream)?;
                continue;
            };
            let (Found { folder, blobs }, plan) = image;
            let below = within(&path, folder).unwrap_or_default();
            let told = reported(below);
            let digest = blobs.digest_at(&told);
            let layer = digest.and_then(|digest| plan.layers.iter().position(|(known, _)| known == digest));
            match layer.and_then(|at| Some((at, pending.get_mut(at)?))) {
                Some((at, is_pending)) => {
                    if std::mem::take(is_pending) && entry.item == Item::File {
                        visit_layer(walk, blobs, plan, (at, inside.depth), stream)?;
                    }
                }
                None if blobs.has(&told) || is_of_images(below) => {}
                None => visit_beside(walk, &inside, entry, stream)?,
            }
        }
        Ok(())
    })?;
    Ok(true)
}

/// A folder of a tar that may hold images, and what it holds.
struct Found<'b> {
    folder: Vec<u8>,
    blobs: Blobs<'b>,
}

impl<'b> Found<'b> {
    fn new(folder: Vec<u8>, label: &str, account: &'b Account<'b>) -> Self {
        let archive = joined(&[label.to_owned()], &reported(&folder));
        Self { folder, blobs: Blobs::new(archive, account, None) }
    }

    fn plan(&mut self) -> Result<Option<Plan>, Halt> {
        Images::of(&mut self.blobs)?.map(|images| Plan::of(&mut self.blobs, images)).transpose()
    }
}

/// The folders of a tar that may hold images. Of a plain one the headers are read alone; one that is compressed is unpacked to its end where its
/// beginning looks like images.
fn folders(account: &Account<'_>, label: &str, input: &mut dyn ReadSeek) -> Result<Vec<Vec<u8>>, Halt> {
    let halt = |error: &io::Error| account.halt(label, "a tar", error);
    let mark = account.mark();
    let mut head = Vec::new();
    input.seek(SeekFrom::Start(0)).map_err(|error| halt(&error))?;
    (&mut *input).take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| halt(&error))?;
    if archive_kind(&head) == Some(ArchiveKind::Tar)
        && let Some(folders) = survey::of_file(input, account.limits.members).map_err(|error| halt(&error))?
    {
        account.back_to(mark);
        return Ok(folders);
    }
    let beginning = with_unpacked(account, label, input, |stream| {
        let mut beginning = Vec::new();
        // What is damaged there is told by the reading that follows.
        let _ = stream.take(survey::BEGINNING as u64).read_to_end(&mut beginning);
        beginning
    })?;
    account.forgive();
    account.back_to(mark);
    if !survey::is_worth_a_look(&beginning) {
        return Ok(Vec::new());
    }
    let names = with_tar(account, label, input, |stream| {
        let mut signs = Signs::default();
        // As far as it can be read.
        while let Ok(Some(entry)) = stream.next() {
            if account.member(label, "", 0).is_err() {
                break;
            }
            if entry.item == Item::File {
                signs.see(&entry.path);
            }
        }
        Ok(signs.folders())
    });
    account.forgive();
    account.back_to(mark);
    Ok(names.ok().flatten().unwrap_or_default())
}

/// A member of a tar of images that is none of theirs.
fn visit_beside(walk: &mut Walk<'_>, inside: &Inside, entry: Entry, stream: &mut TarStream<'_>) -> Result<(), Halt> {
    let size = matches!(entry.item, Item::File).then_some(entry.size);
    let place = walk.begin(inside, entry.path, size)?;
    match entry.item {
        Item::File => walk.member(&place, stream)?,
        other => tar::count(&mut walk.report, inside, &place, other),
    }
    Ok(())
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
    let mark = account.mark();
    let mut blobs = Blobs::new(label.to_owned(), account, Some(open));
    let images = Images::of(&mut blobs)?;
    let Some(images) = images else {
        return Err(blobs.damaged("index.json", "an image layout's index", "no such file".to_owned()).into());
    };
    let plan = Plan::of(&mut blobs, images)?;
    account.back_to(mark);
    walk.report.archives = walk.report.archives.saturating_add(1);
    plan.report(walk, label);
    for (at, (_, path)) in plan.layers.iter().enumerate() {
        if !plan.has_files(at) {
            continue;
        }
        let input =
            blobs.opened(path)?.ok_or_else(|| blobs.damaged(path, "the layer that was there", "none".into()))?;
        let mut input = Unfailing { input, blobs: (label, path), account };
        visit_layer(walk, &blobs, &plan, (at, 1), &mut input)?;
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
    with_unpacked(account, label, input, |stream| {
        let mut head = Vec::new();
        if stream.take(HEAD_BYTES).read_to_end(&mut head).is_err() || archive_kind(&head) != Some(ArchiveKind::Tar) {
            // Not a tar, or damaged at once: the reading that follows says so.
            account.forgive();
            return Ok(None);
        }
        let mut stream = head.chain(stream);
        let mut stream = TarStream::new(&mut stream, label, account);
        read(&mut stream).map(Some)
    })?
}

/// Reads a file from its beginning, unpacked where it is compressed.
fn with_unpacked<T>(
    account: &Account<'_>,
    label: &str,
    input: &mut dyn ReadSeek,
    read: impl FnOnce(&mut dyn Read) -> T,
) -> Result<T, Halt> {
    let halt = |error: &io::Error| account.halt(label, "a tar", error);
    let mut head = Vec::new();
    input.seek(SeekFrom::Start(0)).map_err(|error| halt(&error))?;
    (&mut *input).take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| halt(&error))?;
    input.seek(SeekFrom::Start(0)).map_err(|error| halt(&error))?;
    let kind = archive_kind(&head).filter(|kind| kind.is_compression()).unwrap_or(ArchiveKind::Tar);
    let mut input: &mut dyn Read = &mut { input };
    let mut stream = unpack(kind, label, &mut input, account);
    Ok(read(&mut stream))
}

/// Takes the files of each folder out of a tar.
fn take_all(all: &mut [Found<'_>], account: &Account<'_>, label: &str, stream: &mut TarStream<'_>) -> Result<(), Halt> {
    while let Some(entry) = stream.next()? {
        let path = normalised(&entry.path);
        account.member(label, &reported(&path), entry.path.len())?;
        let Some(Found { folder, blobs }) = all.iter_mut().find(|found| within(&path, &found.folder).is_some()) else {
            continue;
        };
        let Some(below) = within(&path, folder) else { continue };
        let told = reported(below);
        // A target is told from the tar's root.
        let link = |target: &[u8]| {
            let target = normalised(target);
            within(&target, folder).map(reported)
        };
        match entry.item {
            Item::File => blobs.take(told, entry.size, stream)?,
            Item::HardLink { target } => {
                if let Some(target) = link(&target) {
                    blobs.take_link(told, target)?;
                }
            }
            Item::SymbolicLink { target } => {
                if let Some(target) = link(&beside(&path, &target)) {
                    blobs.take_link(told, target)?;
                }
            }
            Item::Folder | Item::Special => {}
        }
    }
    Ok(())
}

/// Whether a file is one that programs put beside an image's blobs.
fn is_of_images(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    first == b"blobs" || first == b"oci-layout" || first == b"ingest" || survey::is_digest(first)
}

impl Plan {
    fn of(blobs: &mut Blobs<'_>, images: Images) -> Result<Self, Halt> {
        let Images { images, passed_over, .. } = images;
        let mut plan = Self {
            images: Vec::new(),
            reports: Vec::new(),
            passed_over,
            layers: Vec::new(),
            files: BTreeMap::new(),
            lost: BTreeSet::new(),
            more_lost: 0,
        };
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
            if let Some(reason) = wanted.digest.as_deref().and_then(unread) {
                self.passed_over.push((image.told(), reason));
                return Ok(());
            }
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
        let mut lost = overlay.lost();
        let room = MOST_LOST.saturating_sub(self.lost.len());
        self.lost.extend(lost.by_ref().take(room).map(|(path, target)| (number, path.to_vec(), target.to_vec())));
        self.more_lost = self.more_lost.saturating_add(lost.count() as u64);
        let (platform, name) = (image.platform.clone(), image.name.clone());
        self.reports.push(ImageReport { platform, name, layers: digests, files });
        self.images.push(image);
        Ok(())
    }

    fn has_files(&self, layer: usize) -> bool {
        self.files.range((layer, 0)..=(layer, u64::MAX)).next().is_some()
    }

    fn report(&self, walk: &mut Walk<'_>, label: &str) {
        walk.report.images.extend(self.reports.iter().cloned());
        for (what, reason) in &self.passed_over {
            walk.pass_over(joined(&[label.to_owned()], what), reason.clone());
        }
        for (image, path, target) in &self.lost {
            let mut outer = vec![label.to_owned()];
            let platform = self.images.get(*image).map(|image| image.platform.clone());
            outer.extend(platform.filter(|platform| !platform.is_empty()));
            let place = |path: &[u8]| joined(&outer, &reported(path));
            walk.report.hard_link(place(path), place(target));
        }
        walk.report.hard_links = walk.report.hard_links.saturating_add(self.more_lost);
    }
}

/// Why a blob is passed over whose digest nobody can check here.
fn unread(digest: &str) -> Option<PassedOverReason> {
    let algorithm = crate::escaped(unread_algorithm(digest)?.as_bytes()).into_owned();
    Some(PassedOverReason::Unsupported(format!("a digest of the algorithm {algorithm} (sha256 and sha512 are read)")))
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

/// Visits what is left of one layer, by its number, within so many archives, and checks its digest once more: the file may have changed in
/// between.
fn visit_layer(
    walk: &mut Walk<'_>,
    blobs: &Blobs<'_>,
    plan: &Plan,
    (layer, depth): (usize, u32),
    input: &mut dyn Read,
) -> Result<(), Halt> {
    let account = walk.account;
    let Some((digest, _)) = plan.layers.get(layer) else { return Ok(()) };
    let label = joined(std::slice::from_ref(&blobs.archive), digest);
    let mut packed = Hashed::of(digest, input);
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
                let inside = Inside { label: label.clone(), outer, depth };
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
