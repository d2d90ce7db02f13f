//! The fixed bounds of `docs/formats/inputs.md`, each with the last thing that is read and the first one that is not.

use std::io::Cursor;

use serde_json::{Value, json};
use symseal_artifact::{ArchiveError, ArchiveReport, LimitKind, Limits, PassedOverReason, Source};

use crate::archive_images::{Layout, digest, gzip, layer};
use crate::made_archives::{tar_of, zip_of};
use crate::support::archives::{Members, read_bytes, read_source};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// A megabyte that compresses to little.
const MEGABYTE: usize = 1 << 20;

fn read_within(name: &str, bytes: &[u8], limits: &Limits) -> (Members, ArchiveReport) {
    read_source(name, Source::Seekable(&mut Cursor::new(bytes)), limits).expect("a sound archive")
}

/// An image of so many times the same layer.
fn image_of_layers(count: usize) -> Result<(Members, ArchiveReport), ArchiveError> {
    let mut layout = Layout::default();
    let image = layout.image("amd64", &vec![layer(&[("tool", "one")]); count], gzip);
    layout.index(&[image]);
    layout.read()
}

#[test]
fn an_image_has_4096_layers_at_most() {
    let (members, report) = image_of_layers(4096).expect("an image");
    assert_eq!((members.len(), report.images[0].layers.len()), (1, 4096));
    let error = image_of_layers(4097).expect_err("one more").to_string();
    assert!(error.contains("at most 4096") && error.contains("found 4097 layers"), "{error}");
}

/// A layout whose index names so many manifests, none of which is there.
fn index_of_manifests(count: usize) -> Result<(Members, ArchiveReport), ArchiveError> {
    let mut layout = Layout::default();
    let named = |number: usize| json!({"digest": digest(&number.to_le_bytes()), "size": 2});
    layout.index(&(0..count).map(named).collect::<Vec<Value>>());
    layout.read()
}

#[test]
fn an_index_has_10_000_manifests_at_most() {
    let (_, report) = index_of_manifests(10_000).expect("an index");
    assert_eq!((report.passed_over.len(), report.passed_over_more), (10_000, 0));
    let error = index_of_manifests(10_001).expect_err("one more").to_string();
    assert!(error.contains("expected at most 10000 manifests") && error.contains("found 10001 manifests"), "{error}");
}

/// An image below so many indexes, `index.json` among them.
fn image_below(indexes: usize) -> Result<(Members, ArchiveReport), ArchiveError> {
    let mut layout = Layout::default();
    let mut inner = layout.image("amd64", &[layer(&[("tool", "one")])], gzip);
    for _ in 1..indexes {
        inner = layout.blob(INDEX, json!({"schemaVersion": 2, "manifests": [inner]}).to_string().into_bytes());
    }
    layout.index(&[inner]);
    layout.read()
}

#[test]
fn indexes_name_further_indexes_to_a_depth_of_four() {
    let (members, report) = image_below(4).expect("an image");
    assert_eq!((members.len(), report.images.len()), (1, 1));
    let error = image_below(5).expect_err("one more").to_string();
    assert!(error.contains("4 levels deep, found"), "{error}");
}

#[test]
fn artifacts_that_are_no_images_are_told_once_for_each_type() {
    let mut layout = Layout::default();
    let image = layout.image("amd64", &[layer(&[("tool", "one")])], gzip);
    let mut artifact = |kind: &str, number: u32| {
        let manifest = json!({"schemaVersion": 2, "artifactType": kind, "layers": [], "annotations": {"number": number.to_string()}});
        layout.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes())
    };
    let mut manifests: Vec<Value> = (0..1000).map(|number| artifact("application/x.many", number)).collect();
    manifests.push(artifact("application/x.one", 0));
    let first = manifests[0]["digest"].as_str().expect("a digest").to_owned();
    manifests.push(image);
    layout.index(&manifests);
    let (members, report) = layout.read().expect("an image");
    assert_eq!((members.len(), report.passed_over_more), (1, 0));
    let told: Vec<(&str, String)> =
        report.passed_over.iter().map(|one| (one.path.as_str(), one.reason.to_string())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].0.ends_with(&first) && told[0].1.ends_with("image, and 999 more of its type"), "{told:?}");
    assert!(
        told[1].1.ends_with("not supported: an artifact (application/x.one) that is no container image"),
        "{told:?}"
    );
}

#[test]
fn what_was_passed_over_is_told_10_000_times_and_counted_beyond() {
    const LIBRARIES: usize = 10_005;
    let names: Vec<String> = (0..LIBRARIES).map(|number| format!("lib{number}.a")).collect();
    let library = format!("!<arch>\n{:<48}{:<10}`\n", "a.o/", 0);
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), library.as_bytes())).collect();
    let (_, report) = read_bytes("x.tar", &tar_of(&members)).expect("a tar");
    assert_eq!((report.passed_over.len(), report.passed_over_more), (10_000, 5));
    assert_eq!(report.static_libraries, LIBRARIES as u64);
}

/// A file of pax form 1.0 with so many parts of no bytes: its map is the first of its data.
fn sparse_file(parts: usize) -> Vec<u8> {
    let mut data = format!("{parts}\n{}", "0\n0\n".repeat(parts)).into_bytes();
    data.resize(data.len().next_multiple_of(512), 0);
    let mut tar = tar::Builder::new(Vec::new());
    let pax = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "holes"),
        ("GNU.sparse.realsize", "4096"),
    ];
    tar.append_pax_extensions(pax.map(|(key, value)| (key, value.as_bytes()))).expect("extensions");
    let mut header = tar::Header::new_ustar();
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "GNUSparseFile.0/holes", &data[..]).expect("a file");
    tar.into_inner().expect("a tar")
}

#[test]
fn a_sparse_file_has_1_048_576_parts_at_most() {
    let (members, _) = read_bytes("x.tar", &sparse_file(1 << 20)).expect("a sparse file");
    assert_eq!(members.values().map(|(size, _)| *size).collect::<Vec<_>>(), [4096], "{members:?}");
    match read_bytes("x.tar", &sparse_file((1 << 20) + 1)) {
        Err(ArchiveError::Limit { limit: LimitKind::HeaderBytes, allowed, found, .. }) => {
            assert_eq!((allowed, found), (16 << 20, (16 << 20) + 16));
        }
        other => panic!("{other:?}"),
    }
}

/// A megabyte, a file of that name, and a hole of 200 MiB behind them.
fn hole_behind(name: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut append = |name: &str, data: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, data).expect("a file");
    };
    append("before", &vec![b'x'; MEGABYTE]);
    append(name, b"[]");
    let size = (200 * MEGABYTE).to_string();
    let pax = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "holes"),
        ("GNU.sparse.realsize", size.as_str()),
    ];
    tar.append_pax_extensions(pax.map(|(key, value)| (key, value.as_bytes()))).expect("extensions");
    let mut map = b"1\n0\n0\n".to_vec();
    map.resize(512, 0);
    let mut header = tar::Header::new_ustar();
    header.set_size(map.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "GNUSparseFile.0/holes", &map[..]).expect("a file");
    tar.into_inner().expect("a tar")
}

/// What may be an image is read before it is known that it is none.
#[test]
fn how_often_an_archive_is_read_says_nothing_of_what_its_holes_may_be() {
    for (ratio, is_read) in [(150, false), (201, true)] {
        let limits = Limits { ratio, ..Limits::default() };
        for name in ["plain.json", "manifest.json"] {
            for bytes in [hole_behind(name), gzip(&hole_behind(name))] {
                let is_packed = bytes.len() < MEGABYTE;
                let read = read_source("x.tar", Source::Seekable(&mut Cursor::new(bytes)), &limits);
                let is_refused = matches!(read, Err(ArchiveError::Limit { limit: LimitKind::Ratio, .. }));
                // A packed one has fewer bytes still.
                assert_eq!(is_refused, is_packed || !is_read, "{name}, {ratio}: {read:?}");
            }
        }
    }
}

#[test]
fn a_zip_in_a_stream_is_held_up_to_buffer_bytes() {
    let zip = zip_of(&[("inner", 0)], &vec![b'x'; MEGABYTE]);
    let tar = gzip(&tar_of(&[("before", b"1"), ("one.zip", &zip), ("behind", b"2")]));
    let exact = Limits { buffer_bytes: zip.len() as u64, ..Limits::default() };
    let (members, report) = read_within("x.tgz", &tar, &exact);
    assert_eq!((members.len(), report.passed_over.len()), (3, 0));
    let less = Limits { buffer_bytes: zip.len() as u64 - 1, ..Limits::default() };
    let (members, report) = read_within("x.tgz", &tar, &less);
    // What lies behind it is read all the same.
    assert_eq!(members.keys().collect::<Vec<_>>(), ["x.tgz!/before", "x.tgz!/behind"]);
    assert_eq!(report.passed_over[0].path, "x.tgz!/one.zip");
    assert_eq!(report.passed_over[0].reason, PassedOverReason::TooLargeToHold { allowed: less.buffer_bytes });
    // Compressed once more its size is not known beforehand.
    let packed = tar_of(&[("one.zip.gz", &gzip(&zip)), ("behind", b"2")]);
    let (members, report) = read_within("x.tar", &packed, &less);
    assert_eq!(members.keys().collect::<Vec<_>>(), ["x.tar!/behind"]);
    assert_eq!(report.passed_over[0].reason, PassedOverReason::TooLargeToHold { allowed: less.buffer_bytes });
}

#[test]
fn images_within_an_archive_are_held_up_to_buffer_bytes_and_told_beyond() {
    let mut layout = Layout::default();
    let below = layer(&[("old", "one"), ("tool", &"x".repeat(MEGABYTE))]);
    let image = layout.image("amd64", &[below, layer(&[(".wh.old", "")])], gzip);
    layout.index(&[image]);
    let image = layout.as_tar();
    let zip = zip_of(&[("image.tar", 0)], &image);
    let exact = Limits { buffer_bytes: image.len() as u64, ..Limits::default() };
    let (members, report) = read_within("x.zip", &zip, &exact);
    assert_eq!((members.len(), report.images.len(), report.passed_over.len()), (1, 1, 0), "{members:?}");
    let less = Limits { buffer_bytes: image.len() as u64 - 1, ..Limits::default() };
    let (members, report) = read_within("x.zip", &zip, &less);
    // A tar of tars, which lie too deep in it: neither that it is not read as an image nor its layers go without a word.
    assert_eq!(report.images.len(), 0);
    assert!(members.keys().all(|path| !path.ends_with("/old") && !path.ends_with("/tool")), "{members:?}");
    let told: Vec<&str> = report.passed_over.iter().map(|one| one.path.as_str()).collect();
    assert!(told.contains(&"x.zip!/image.tar"), "{told:?}");
    assert_eq!(told.iter().filter(|path| path.starts_with("x.zip!/image.tar!/blobs/sha256/")).count(), 2, "{told:?}");
}
