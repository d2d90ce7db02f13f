//! Verification of a bundle's contents: a sound one passes, and whatever is changed is found by the check that is meant for it.

use crate::made;
use symseal_bundle::seal::checks::{Check, CheckStatus, id};
use symseal_bundle::verify::verify_contents;
use symseal_bundle::{Bundle, Digest, FileRole, LayoutDir, SymbolIndex};
use symseal_module::DebugId;

fn contents(bundle: &Bundle) -> Vec<Check> {
    verify_contents(bundle, &made::identify).checks
}

fn failed(checks: &[Check]) -> Vec<&'static str> {
    let mut ids: Vec<&'static str> = checks.iter().filter(|check| check.is_failed()).map(|check| check.id).collect();
    ids.dedup();
    ids
}

/// Makes a bundle, lets `change` alter its index, and checks which check fails.
#[track_caller]
fn check_changed_index(expected: &[&str], change: impl FnOnce(&mut SymbolIndex, &LayoutDir)) {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    let mut index = Bundle::open(layout.clone(), Some(&digest)).unwrap().index().clone();
    change(&mut index, &layout);
    let changed = made::store(&layout, &index, None);
    let checks = contents(&Bundle::open(layout, Some(&changed)).unwrap());
    assert_eq!(failed(&checks), expected, "{checks:#?}");
}

fn first_file(index: &mut SymbolIndex, role: FileRole) -> &mut symseal_bundle::FileEntry {
    let module = index.linux.get_mut(made::IDS[0]).unwrap();
    module.files.iter_mut().find(|file| file.role == role).unwrap()
}

#[test]
fn a_sound_bundle_passes_every_content_check() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _) = made::bundle(dir.path());
    let checks = contents(&Bundle::open(layout, None).unwrap());
    assert!(checks.iter().all(|check| check.status == CheckStatus::Passed), "{checks:#?}");
    let ids: Vec<&str> = checks.iter().map(|check| check.id).collect();
    assert_eq!(
        ids,
        [
            id::INDEX_DIGEST,
            id::INDEX_SCHEMA,
            id::MANIFEST_DIGEST,
            id::BLOB_DIGEST,
            id::PAGE_ROOT,
            id::PIECE_ROOT,
            id::MODULE_BUILD_ID,
            id::TABLE_DERIVATION
        ]
    );
}

#[test]
fn a_flipped_bit_in_any_blob_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    let blobs: Vec<_> =
        std::fs::read_dir(dir.path().join("blobs/sha256")).unwrap().map(|blob| blob.unwrap().path()).collect();
    assert!(blobs.len() > 8);
    for blob in blobs {
        let sound = std::fs::read(&blob).unwrap();
        let mut flipped = sound.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        std::fs::write(&blob, &flipped).unwrap();
        let refused = match Bundle::open(layout.clone(), Some(&digest)) {
            Err(error) => vec![error.to_check().expect("a check that names the refusal").id],
            Ok(bundle) => failed(&contents(&bundle)),
        };
        assert!(!refused.is_empty(), "{} was changed and nobody noticed", blob.display());
        let known = [
            id::INDEX_DIGEST,
            id::MANIFEST_DIGEST,
            id::BLOB_DIGEST,
            id::PAGE_ROOT,
            id::PIECE_ROOT,
            id::MODULE_BUILD_ID,
            id::TABLE_DERIVATION,
        ];
        assert!(refused.iter().all(|check| known.contains(check)), "{refused:?}");
        std::fs::write(&blob, &sound).unwrap();
    }
    assert_eq!(failed(&contents(&Bundle::open(layout, Some(&digest)).unwrap())), [""; 0]);
}

#[test]
fn a_missing_or_longer_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    let bundle = Bundle::open(layout.clone(), Some(&digest)).unwrap();
    let file = bundle.module(&made::IDS[0].parse().unwrap()).unwrap().file(FileRole::SymbolTable).unwrap();
    let path = layout.blob_path(&file.sha256);
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&sound[..], b"more"].concat()).unwrap();
    assert!(failed(&contents(&bundle)).contains(&id::BLOB_DIGEST));
    std::fs::remove_file(&path).unwrap();
    let checks = contents(&bundle);
    assert_eq!(failed(&checks), [id::BLOB_DIGEST]);
    assert!(checks.iter().any(|check| check.detail.contains(&file.path)), "{checks:#?}");
}

#[test]
fn what_the_index_claims_wrongly_is_found() {
    check_changed_index(&[id::PAGE_ROOT], |index, _| first_file(index, FileRole::Executable).page_root.0[0] ^= 1);
    check_changed_index(&[id::TABLE_DERIVATION], |index, _| {
        first_file(index, FileRole::SymbolTable).derived_from = vec![Digest::of(b"other")];
    });
    check_changed_index(&[id::TABLE_DERIVATION], |index, _| {
        first_file(index, FileRole::SymbolTable).derived_from.clear()
    });
    check_changed_index(&[id::BLOB_DIGEST, id::PAGE_ROOT], |index, layout| {
        // A blob that is there, and is another one.
        layout.write_blob(b"short").unwrap();
        first_file(index, FileRole::ModuleIndex).sha256 = Digest::of(b"short");
    });
}

#[test]
fn a_table_of_another_module_is_found() {
    check_changed_index(&[id::TABLE_DERIVATION], |index, _| {
        let other = index.linux[made::IDS[1]].file(FileRole::SymbolTable).unwrap().clone();
        let own = first_file(index, FileRole::SymbolTable);
        let path = own.path.clone();
        *own = other;
        own.path = path;
    });
}

#[test]
fn a_binary_under_another_id_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _) = made::bundle(dir.path());
    let wrong: DebugId = made::IDS[1].parse().unwrap();
    let bundle = Bundle::open(layout, None).unwrap();
    let checks = verify_contents(&bundle, &|_| vec![wrong.clone()]).checks;
    assert_eq!(failed(&checks), [id::MODULE_BUILD_ID]);
}

#[test]
fn page_hashes_that_leave_out_a_file_are_found() {
    check_changed_index(&[id::PIECE_ROOT], |index, _| {
        if let Some(root) = &mut first_file(index, FileRole::SymbolTable).piece_root {
            root.0[0] ^= 1;
        }
    });
    check_changed_index(&[id::PAGE_ROOT], |index, layout| {
        let bytes = symseal_bundle::page_hashes::write(&[]).unwrap();
        layout.write_blob(&bytes).unwrap();
        let measured = symseal_bundle::pages::measure(&bytes, 16384);
        let file = &mut index.shards[0].page_hashes;
        (file.size, file.sha256, file.page_root) = (measured.size, measured.digest, measured.root);
    });
}

#[test]
fn a_pulled_directory_is_verified_by_titles() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _) = made::bundle(&dir.path().join("layout"));
    let bundle = Bundle::open(layout.clone(), None).unwrap();
    let pulled = dir.path().join("pulled");
    for file in bundle.index().files() {
        let path = pulled.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(layout.blob_path(&file.sha256), path).unwrap();
    }
    std::fs::copy(layout.blob_path(&bundle.index_digest()), pulled.join("symbol_index.json")).unwrap();
    let opened = Bundle::open_dir(&pulled).unwrap();
    assert_eq!((opened.digest(), opened.index_digest()), (None, bundle.index_digest()));
    let checks = contents(&opened);
    assert_eq!(failed(&checks), [""; 0], "{checks:#?}");
    assert_eq!(checks.iter().filter(|check| check.status == CheckStatus::Skipped).count(), 2);
    std::fs::remove_file(pulled.join(&opened.index().linux[made::IDS[1]].files[0].path)).unwrap();
    assert_eq!(failed(&contents(&opened)), [id::BLOB_DIGEST]);
}
