//! Mutants of a bundle's own bytes: index, page trees, manifests, files, a pulled directory. Other verifiers do not look at
//! them.

use std::path::Path;

use serde_json::Value;
use symseal_bundle::page_hashes::{FilePages, PageHashes, Pages};
use symseal_bundle::verify::{Report, Request, TimeSource, verify};
use symseal_bundle::{Bundle, Digest, FileEntry, FileRole, LayoutDir, SymbolIndex, compose, page_hashes, pages};
use symseal_seal::checks::id;
use symseal_seal::{Parts, Release, Statement, StatementParts, Trust};
use symseal_sealer::seal;

use crate::made;
use crate::mutants::{Mutants, flip, leaves, readable};
use crate::support::{NOW, World, failures, with_policy};

/// A sealed bundle in a layout.
pub struct Sealed {
    dir: tempfile::TempDir,
    layout: LayoutDir,
    digest: Digest,
    seal: Vec<u8>,
    trust: Trust,
}

impl Sealed {
    pub fn make(world: &mut World) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (layout, digest) = made::bundle(&dir.path().join("layout"));
        let bundle = Bundle::open(layout.clone(), Some(&digest)).unwrap();
        let statement = Statement::build(StatementParts {
            bundle: *digest.as_bytes(),
            symbol_index: *bundle.index_digest().as_bytes(),
            release: Release::new("made", "1.0"),
            builder_version: "0.1.0",
            inputs: Vec::new(),
            modules_root: None,
            debug_ids: made::IDS.map(str::to_owned).to_vec(),
            supersedes: Vec::new(),
        })
        .unwrap();
        let seal = seal(&statement, &world.artifact, &mut world.log).unwrap();
        let identity = std::slice::from_ref(world.log.identity());
        let trust = with_policy(world, |policy| policy.keys[0].names = vec!["made".into()], identity).unwrap();
        Self { dir, layout, digest, seal, trust }
    }

    /// Verifies a bundle with these seals.
    pub fn verify(&self, bundle: &Bundle, seals: &[Vec<u8>]) -> Report {
        let request = Request {
            trust: &self.trust,
            expect_name: Some("made"),
            expect_version: Some("1.0"),
            parts: Parts::default(),
            at: NOW,
            time_source: TimeSource::Asked,
            signatures: seals,
            signature_files: &[],
            seen: None,
            consistency: &[],
            fragments: &[],
            identify: &made::identify,
        };
        verify(bundle, &request)
    }

    pub fn open(&self) -> Bundle {
        Bundle::open(self.layout.clone(), Some(&self.digest)).unwrap()
    }

    pub fn seal(&self) -> Vec<u8> {
        self.seal.clone()
    }

    /// What refuses the bundle of this digest in a layout.
    fn refusals(&self, layout: &LayoutDir, digest: Option<&Digest>) -> Vec<&'static str> {
        match Bundle::open(layout.clone(), digest) {
            Err(error) => error.to_check().map(|check| check.id).into_iter().collect(),
            Ok(bundle) => failures(&self.verify(&bundle, std::slice::from_ref(&self.seal)).checks),
        }
    }

    /// A copy of the layout, to be changed.
    fn copy(&self) -> (tempfile::TempDir, LayoutDir) {
        let dir = tempfile::tempdir().unwrap();
        copy(&self.dir.path().join("layout"), dir.path());
        let layout = LayoutDir::open(dir.path()).unwrap();
        (dir, layout)
    }

    /// What refuses the bundle after one of its blobs was changed.
    fn with_blob(&self, blob: &Digest, change: impl FnOnce(&mut Vec<u8>)) -> Vec<&'static str> {
        let (_dir, layout) = self.copy();
        let path = layout.blob_path(blob);
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        self.refusals(&layout, Some(&self.digest))
    }

    /// What refuses a bundle that was composed anew from a changed index, under its own new digest.
    fn with_index(&self, change: impl FnOnce(&mut SymbolIndex, &LayoutDir)) -> Vec<&'static str> {
        let (_dir, layout) = self.copy();
        let mut index = self.open().index().clone();
        change(&mut index, &layout);
        let digest = made::store(&layout, &index, None);
        self.refusals(&layout, Some(&digest))
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn first_file(index: &mut SymbolIndex, role: FileRole) -> &mut FileEntry {
    let module = index.linux.get_mut(made::IDS[0]).unwrap();
    module.files.iter_mut().find(|file| file.role == role).unwrap()
}

pub fn add(mutants: &mut Mutants<'_>, sealed: &Sealed) {
    let bundle = sealed.open();
    assert_eq!(failures(&sealed.verify(&bundle, &[sealed.seal()]).checks), [""; 0]);
    let unsealed = failures(&sealed.verify(&bundle, &[]).checks);
    mutants.ours("envelope", "no seal at all", id::SEAL_PRESENT, unsealed);
    indexes(mutants, sealed, &bundle);
    page_trees(mutants, sealed, &bundle);
    files(mutants, sealed, &bundle);
    pulled(mutants, sealed, &bundle);
}

fn indexes(mutants: &mut Mutants<'_>, sealed: &Sealed, bundle: &Bundle) {
    let value: Value = serde_json::from_slice(bundle.index_bytes()).unwrap();
    // Every field of the index itself, of one module and of one file; the others are alike.
    let chosen =
        |leaf: &String| !leaf.contains(made::IDS[1]) && (!leaf.contains("/files/") || leaf.contains("/files/0/"));
    for leaf in leaves(&value).into_iter().filter(chosen) {
        let mut changed = value.clone();
        flip(changed.pointer_mut(&leaf).unwrap());
        let name = readable(&leaf).replace(made::IDS[0], "…");
        let found = sealed.with_blob(&bundle.index_digest(), |bytes| *bytes = serde_json_bytes(&changed));
        mutants.ours("symbol index", name, id::INDEX_DIGEST, found);
    }
    let found = sealed.with_blob(&bundle.index_digest(), |bytes| bytes.truncate(bytes.len() / 2));
    mutants.ours("symbol index", "cut in the middle", id::INDEX_DIGEST, found);
    // Made anew to the image index, as only the seal can tell.
    let found = sealed.with_index(|index, _| index.version = "2.0".into());
    mutants.ours("symbol index", "made anew: another version", id::STATEMENT_SUBJECT_INDEX, found);
    let found = sealed.with_index(|index, _| index.linux.get_mut(made::IDS[0]).unwrap().name = "other".into());
    mutants.ours("symbol index", "made anew: another name of a module", id::STATEMENT_SUBJECT_BUNDLE, found);
    let found = sealed.with_index(|index, _| {
        let first = index.linux[made::IDS[0]].clone();
        let second = std::mem::replace(index.linux.get_mut(made::IDS[1]).unwrap(), first);
        *index.linux.get_mut(made::IDS[0]).unwrap() = second;
    });
    mutants.ours("symbol index", "made anew: one module's files for the other's", id::MODULE_BUILD_ID, found);
    let found = sealed
        .with_index(|index, _| first_file(index, FileRole::SymbolTable).derived_from = vec![Digest::of(b"other")]);
    mutants.ours("symbol index", "made anew: a table of another file", id::TABLE_DERIVATION, found);
    // A key twice, under digests that are right.
    let (_dir, layout) = sealed.copy();
    let text = String::from_utf8(bundle.index_bytes().to_vec()).unwrap();
    let twice = text.replacen("\"name\":", "\"name\":\"x\",\"name\":", 1);
    let found = replaced(sealed, &layout, bundle, bundle.index_digest(), twice.as_bytes());
    mutants.ours("symbol index", "made anew: a key twice", id::INDEX_SCHEMA, found);
}

fn serde_json_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

/// What refuses a bundle in which one blob is another one, with every digest above it made right again.
fn replaced(sealed: &Sealed, layout: &LayoutDir, bundle: &Bundle, old: Digest, new: &[u8]) -> Vec<&'static str> {
    let rename = |text: String, old: &Digest, old_size: usize, new: &[u8]| {
        let named = text.replace(&old.hex(), &Digest::of(new).hex());
        named.replace(&format!("\"size\":{old_size}"), &format!("\"size\":{}", new.len()))
    };
    layout.write_blob(new).unwrap();
    let old_size = std::fs::metadata(layout.blob_path(&old)).unwrap().len() as usize;
    let image_index = std::fs::read(layout.blob_path(&sealed.digest)).unwrap();
    let mut image_text = String::from_utf8(image_index).unwrap();
    let composed = compose::compose(bundle.index()).unwrap();
    for manifest in composed.manifests {
        let changed = rename(String::from_utf8(manifest.clone()).unwrap(), &old, old_size, new).into_bytes();
        layout.write_blob(&changed).unwrap();
        image_text = rename(image_text, &Digest::of(&manifest), manifest.len(), &changed);
    }
    let digest = layout.write_blob(image_text.as_bytes()).unwrap();
    sealed.refusals(layout, Some(&digest))
}

fn own(pages: Pages<'_>) -> FilePages {
    FilePages { sha256: pages.sha256, page_size: pages.page_size, size: pages.size, leaves: pages.leaves() }
}

fn page_trees(mutants: &mut Mutants<'_>, sealed: &Sealed, bundle: &Bundle) {
    let part = "page tree";
    let tree = bundle.index().shards[0].page_hashes.sha256;
    mutants.ours(part, "a bit", id::BLOB_DIGEST, sealed.with_blob(&tree, |bytes| *bytes.last_mut().unwrap() ^= 1));
    mutants.ours(part, "cut short", id::BLOB_DIGEST, sealed.with_blob(&tree, |bytes| bytes.truncate(bytes.len() - 1)));
    let theirs = another_tree();
    let found = sealed.with_blob(&tree, |bytes| bytes.clone_from(&theirs));
    mutants.ours(part, "another bundle's", id::BLOB_DIGEST, found);
    let found = sealed.with_index(|index, _| first_file(index, FileRole::Executable).page_root.0[0] ^= 1);
    mutants.ours(part, "another root in the index", id::PAGE_ROOT, found);
    let found =
        sealed.with_index(|index, _| first_file(index, FileRole::SymbolTable).piece_root.as_mut().unwrap().0[0] ^= 1);
    mutants.ours(part, "another root of pieces in the index", id::PIECE_ROOT, found);
    let with_tree = |change: &dyn Fn(&mut Vec<FilePages>)| {
        sealed.with_index(|index, layout| {
            let bytes = std::fs::read(layout.blob_path(&tree)).unwrap();
            let mut all: Vec<FilePages> = PageHashes::parse(&bytes).unwrap().files().map(own).collect();
            change(&mut all);
            let bytes = page_hashes::write(&all).unwrap();
            layout.write_blob(&bytes).unwrap();
            let measured = pages::measure(&bytes, 16384);
            let file = &mut index.shards[0].page_hashes;
            (file.size, file.sha256, file.page_root) = (measured.size, measured.digest, measured.root);
        })
    };
    mutants.ours(
        part,
        "made anew: another hash of a page",
        id::PAGE_ROOT,
        with_tree(&|all| all[0].leaves[0].0[0] ^= 1),
    );
    mutants.ours(
        part,
        "made anew: two pages in another order",
        id::PAGE_ROOT,
        with_tree(&|all| {
            let long = all.iter_mut().find(|file| file.leaves.len() > 1).unwrap();
            long.leaves.swap(0, 1);
        }),
    );
    mutants.ours(part, "made anew: a file left out", id::PAGE_ROOT, with_tree(&|all| drop(all.remove(0))));
    let theirs = with_tree(&|all| *all = PageHashes::parse(&another_tree()).unwrap().files().map(own).collect());
    mutants.ours(part, "made anew: another bundle's", id::PAGE_ROOT, theirs);
}

/// The page hashes of a bundle with one other file.
fn another_tree() -> Vec<u8> {
    let bytes = [7; 100_000];
    let leaves = pages::leaves(&bytes, 16384);
    page_hashes::write(&[FilePages { sha256: Digest::of(&bytes), page_size: 16384, size: bytes.len() as u64, leaves }])
        .unwrap()
}

fn files(mutants: &mut Mutants<'_>, sealed: &Sealed, bundle: &Bundle) {
    let part = "files";
    let module = &bundle.index().linux[made::IDS[0]];
    let executable = module.file(FileRole::Executable).unwrap().sha256;
    let table = module.file(FileRole::SymbolTable).unwrap().sha256;
    let middle = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    mutants.ours(part, "a bit of a binary", id::BLOB_DIGEST, sealed.with_blob(&executable, middle));
    mutants.ours(part, "a bit of a symbol table", id::BLOB_DIGEST, sealed.with_blob(&table, middle));
    mutants.ours(
        part,
        "a binary cut short",
        id::BLOB_DIGEST,
        sealed.with_blob(&executable, |bytes| bytes.truncate(bytes.len() - 1)),
    );
    let other = std::fs::read(sealed.layout.blob_path(&table)).unwrap();
    mutants.ours(
        part,
        "another file in its place",
        id::BLOB_DIGEST,
        sealed.with_blob(&executable, |bytes| *bytes = other),
    );
    mutants.ours(part, "the image index: a bit", id::INDEX_DIGEST, sealed.with_blob(&sealed.digest, middle));
    let manifest = Digest::of(&compose::compose(bundle.index()).unwrap().manifests[1]);
    mutants.ours(part, "a manifest: a bit", id::MANIFEST_DIGEST, sealed.with_blob(&manifest, middle));
    // A title unlike the path in the index, all digests being right.
    let (_dir, layout) = sealed.copy();
    let path = &module.file(FileRole::Executable).unwrap().path;
    let text = std::fs::read_to_string(layout.blob_path(&manifest)).unwrap();
    let retitled = text.replacen(&format!("{path}\""), &format!("{}X\"", &path[..path.len() - 1]), 1);
    assert_ne!(text, retitled);
    layout.write_blob(retitled.as_bytes()).unwrap();
    let image = std::fs::read_to_string(layout.blob_path(&sealed.digest)).unwrap();
    let image = image.replace(&manifest.hex(), &Digest::of(retitled.as_bytes()).hex());
    let digest = layout.write_blob(image.as_bytes()).unwrap();
    let found = sealed.refusals(&layout, Some(&digest));
    mutants.ours(part, "a title unlike the index's path", id::MANIFEST_DIGEST, found);
}

fn pulled(mutants: &mut Mutants<'_>, sealed: &Sealed, bundle: &Bundle) {
    let part = "pulled directory";
    let with = |change: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        for file in bundle.index().files() {
            let path = dir.path().join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(sealed.layout.blob_path(&file.sha256), path).unwrap();
        }
        std::fs::write(dir.path().join("symbol_index.json"), bundle.index_bytes()).unwrap();
        change(dir.path());
        match Bundle::open_dir(dir.path()) {
            Err(error) => error.to_check().map(|check| check.id).into_iter().collect(),
            Ok(opened) => failures(&sealed.verify(&opened, &[sealed.seal()]).checks),
        }
    };
    assert_eq!(with(&|_| ()), [""; 0]);
    let path = &bundle.index().linux[made::IDS[0]].files[0].path;
    mutants.ours(part, "an extra file", id::BLOB_EXTRA, with(&|dir| std::fs::write(dir.join("extra"), "x").unwrap()));
    mutants.ours(
        part,
        "a link beside the files",
        id::BLOB_EXTRA,
        with(&|dir| {
            std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
        }),
    );
    mutants.ours(part, "a file missing", id::BLOB_DIGEST, with(&|dir| std::fs::remove_file(dir.join(path)).unwrap()));
    mutants.ours(
        part,
        "a longer file",
        id::BLOB_DIGEST,
        with(&|dir| {
            let mut bytes = std::fs::read(dir.join(path)).unwrap();
            bytes.push(0);
            std::fs::write(dir.join(path), bytes).unwrap();
        }),
    );
    mutants.ours(
        part,
        "another index",
        id::STATEMENT_SUBJECT_INDEX,
        with(&|dir| {
            let mut index = bundle.index().clone();
            index.linux.get_mut(made::IDS[0]).unwrap().name = "other".into();
            std::fs::write(dir.join("symbol_index.json"), compose::compose(&index).unwrap().symbol_index).unwrap();
        }),
    );
}
