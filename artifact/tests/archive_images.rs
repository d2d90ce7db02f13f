//! Container images: layouts and saved archives made by hand and by skopeo and umoci, and the files that they have in the end.

use crate::support;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::made_archives::tar_of;
use crate::support::archives::{Members, assert_same, content, files_below, read_bytes, shell};
use crate::support::have;
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};
use symseal_artifact::{ArchiveError, ArchiveReport, Limits, PassedOverReason, read_image_layout};

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn long_digest(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().fold("sha512:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A layer: paths with their bytes; `->` makes a hard link, a path that ends in `/` a folder.
pub(crate) fn layer(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        if let Some(target) = text.strip_prefix("-> ") {
            header.set_entry_type(tar::EntryType::Link);
            header.set_size(0);
            tar.append_link(&mut header, path, target).expect("a link");
        } else if path.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            tar.append_data(&mut header, path, io::empty()).expect("a folder");
        } else {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, path, text.as_bytes()).expect("a file");
        }
    }
    tar.into_inner().expect("a tar")
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, bytes).expect("bytes");
    gzip.finish().expect("gzip")
}

/// As `pzstd` writes: a skippable frame with the next one's size, and a frame; here of blocks that are not
/// compressed. (RFC 8878, 3.1.1 and 3.1.2)
fn zstd_behind_a_frame_that_is_skipped(bytes: &[u8]) -> Vec<u8> {
    const LARGEST: usize = 128 << 10;
    // No checksum, a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    let blocks: Vec<&[u8]> = bytes.chunks(LARGEST).collect();
    for (number, block) in (1..).zip(&blocks) {
        let header = (block.len() as u32) << 3 | u32::from(number == blocks.len());
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(*block);
    }
    let mut packed = vec![0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0];
    packed.extend((frame.len() as u32).to_le_bytes());
    packed.extend(frame);
    packed
}

/// Blobs of a layout by their path.
#[derive(Default, Clone)]
pub(crate) struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    pub(crate) fn blob(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        self.blob_as(kind, digest(&bytes), bytes)
    }

    fn blob_as(&mut self, kind: &str, digest: String, bytes: Vec<u8>) -> Value {
        let descriptor = json!({"mediaType": kind, "digest": digest, "size": bytes.len()});
        self.0.insert(format!("blobs/{}", digest.replace(':', "/")), bytes);
        descriptor
    }

    /// An image of these tars, packed as `pack` says; its manifest's descriptor.
    pub(crate) fn image(&mut self, architecture: &str, tars: &[Vec<u8>], pack: fn(&[u8]) -> Vec<u8>) -> Value {
        let diff_ids: Vec<String> = tars.iter().map(|tar| digest(tar)).collect();
        let config =
            json!({"os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let layers: Vec<Value> =
            tars.iter().map(|tar| self.blob("application/vnd.oci.image.layer.v1.tar+gzip", pack(tar))).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes())
    }

    /// An image of one layer whose digests are made by another algorithm: of its manifest, its configuration, the layer, and what is packed in it.
    fn image_as(&mut self, tar: &[u8], digests: [fn(&[u8]) -> String; 4]) -> Value {
        let [of_manifest, of_config, of_layer, of_tar] = digests;
        let root = json!({"type": "layers", "diff_ids": [of_tar(tar)]});
        let config = json!({"os": "linux", "architecture": "amd64", "rootfs": root}).to_string().into_bytes();
        let config = self.blob_as("application/vnd.oci.image.config.v1+json", of_config(&config), config);
        let packed = gzip(tar);
        let layer = self.blob_as("application/vnd.oci.image.layer.v1.tar+gzip", of_layer(&packed), packed);
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]}).to_string().into_bytes();
        self.blob_as("application/vnd.oci.image.manifest.v1+json", of_manifest(&manifest), manifest)
    }

    pub(crate) fn index(&mut self, manifests: &[Value]) {
        self.0.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        self.0.insert("index.json".to_owned(), index.to_string().into_bytes());
    }

    pub(crate) fn as_tar(&self) -> Vec<u8> {
        let members: Vec<(&str, &[u8])> =
            self.0.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        tar_of(&members)
    }

    /// Read as a folder, and as a tar.
    pub(crate) fn read(&self) -> Result<(Members, ArchiveReport), ArchiveError> {
        let open = |path: &str| match self.0.get(path) {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes.clone())) as Box<dyn Read>),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let folder = read_layout(open);
        let tar = read_as_file(&self.as_tar());
        match (&folder, &tar) {
            (Ok(folder), Ok(tar)) => {
                assert_eq!(folder.0, tar.0);
                assert_eq!(folder.1.images, tar.1.images);
            }
            (Err(folder), Err(tar)) => assert_eq!(folder.to_string(), tar.to_string()),
            other => panic!("{other:?}"),
        }
        folder
    }
}

fn read_layout(
    mut open: impl FnMut(&str) -> io::Result<Box<dyn Read>>,
) -> Result<(Members, ArchiveReport), ArchiveError> {
    let mut members = Members::new();
    let report = read_image_layout::<ArchiveError>("image", &mut open, &Limits::default(), &mut |member, content| {
        let mut bytes = Vec::new();
        let _ = content.read_to_end(&mut bytes);
        members.insert(member.full_path(), support::archives::content(&bytes));
        Ok(())
    })?;
    Ok((members, report))
}

fn read_as_file(bytes: &[u8]) -> Result<(Members, ArchiveReport), ArchiveError> {
    let source = symseal_artifact::Source::Seekable(&mut Cursor::new(bytes));
    support::archives::read_source("image", source, &Limits::default())
}

/// The members' paths within their layers.
fn paths(members: &Members) -> Vec<&str> {
    members.keys().filter_map(|path| path.rsplit("!/").next()).collect()
}

fn below() -> Vec<u8> {
    layer(&[
        ("usr/", ""),
        ("usr/bin/", ""),
        ("usr/bin/tool", "one"),
        ("usr/bin/old", "two"),
        ("opt/a", "three"),
        ("opt/b", "four"),
        ("same", "five"),
        ("link", "-> same"),
    ])
}

fn above() -> Vec<u8> {
    layer(&[
        ("usr/bin/tool", "new"),
        ("usr/bin/.wh.old", ""),
        ("opt/c", "six"),
        ("opt/.wh..wh..opq", ""),
        (".wh.same", ""),
    ])
}

#[test]
fn the_files_of_an_image_are_those_that_its_layers_leave() {
    for pack in [gzip as fn(&[u8]) -> Vec<u8>, <[u8]>::to_vec, zstd_behind_a_frame_that_is_skipped] {
        let mut layout = Layout::default();
        let manifest = layout.image("amd64", &[below(), above()], pack);
        layout.index(&[manifest]);
        let (members, report) = layout.read().expect("an image");
        let layers = [digest(&pack(&below())), digest(&pack(&above()))];
        let expected: Members = [(0, "link", "five"), (1, "opt/c", "six"), (1, "usr/bin/tool", "new")]
            .iter()
            .map(|(at, path, text)| (format!("image!/linux/amd64!/{}!/{path}", layers[*at]), content(text.as_bytes())))
            .collect();
        assert_same("image", &members, &expected);
        assert_eq!((report.images.len(), report.images[0].files, report.files), (1, 3, 3));
        assert_eq!((report.images[0].platform.as_str(), &report.images[0].layers[..]), ("linux/amd64", &layers[..]));
    }
}

#[test]
fn a_hard_link_keeps_the_file_whose_name_its_own_layer_hides_and_one_to_nothing_is_counted() {
    let lowest = layer(&[("bin/a", "bytes of a")]);
    for upper in [
        [("bin/c", "c"), ("bin/b", "-> bin/a"), ("bin/.wh.a", "")],
        [("bin/.wh.a", ""), ("bin/b", "-> bin/a"), ("bin/c", "c")],
    ] {
        let mut layout = Layout::default();
        let chain = layer(&[("bin/b2", "-> bin/b"), ("bin/.wh.b", "")]);
        let two = layout.image("amd64", &[lowest.clone(), layer(&upper)], gzip);
        let three = layout.image("arm64", &[lowest.clone(), layer(&upper), chain], gzip);
        for (image, name) in [(two, "bin/b"), (three, "bin/b2")] {
            layout.index(&[image]);
            let (members, report) = layout.read().expect("an image");
            let found: BTreeMap<&str, _> =
                members.iter().map(|(path, content)| (path.rsplit("!/").next().unwrap_or_default(), content)).collect();
            let expected = [(name, &content(b"bytes of a")), ("bin/c", &content(b"c"))];
            assert!(found.into_iter().eq(expected), "{members:?}");
            assert_eq!(report.hard_links, 0);
        }
    }
    let mut layout = Layout::default();
    let image = layout.image("amd64", &[lowest, layer(&[("bin/lost", "-> bin/nowhere")])], gzip);
    layout.index(&[image]);
    let (members, report) = layout.read().expect("an image");
    assert_eq!((paths(&members), report.hard_links), (vec!["bin/a"], 1));
    let [link] = &report.hard_link_names[..] else { panic!("{report:?}") };
    assert_eq!(link.path, "image!/linux/amd64!/bin/lost");
    assert_eq!(link.target, "image!/linux/amd64!/bin/nowhere");
}

#[test]
fn every_platform_of_an_index_is_read_and_what_they_share_is_visited_once() {
    let mut layout = Layout::default();
    let shared = layer(&[("usr/share/x", "shared")]);
    let mut manifests = Vec::new();
    for architecture in ["amd64", "arm64"] {
        let own = layer(&[("bin/tool", architecture)]);
        manifests.push(layout.image(architecture, &[shared.clone(), own], gzip));
    }
    // Statements about an image, an artifact of another kind, and a platform that was not saved.
    let mut statement = layout.image("unknown", &[layer(&[("x", "no")])], gzip);
    statement["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let config = layout.blob("application/vnd.oci.empty.v1+json", b"{}".to_vec());
    let artifact = json!({"schemaVersion": 2, "artifactType": "a/b", "config": config, "layers": []}).to_string();
    let artifact = layout.blob("application/vnd.oci.image.manifest.v1+json", artifact.into_bytes());
    let absent = json!({"mediaType": "x", "digest": digest(b"absent"), "size": 6});
    manifests.extend([statement, artifact.clone(), absent]);
    let inner = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    let mut inner = layout.blob("application/vnd.oci.image.index.v1+json", inner.into_bytes());
    inner["annotations"] = json!({"org.opencontainers.image.ref.name": "v1"});
    layout.index(&[inner]);
    let (members, report) = layout.read().expect("images");
    assert_eq!(paths(&members).len(), 3);
    let images: Vec<_> =
        report.images.iter().map(|image| (image.name.as_str(), image.platform.as_str(), image.files)).collect();
    assert_eq!(images, [("v1", "linux/amd64", 2), ("v1", "linux/arm64", 2)]);
    let [missing, other] = &report.passed_over[..] else { panic!("{:?}", report.passed_over) };
    assert_eq!(other.reason, PassedOverReason::Unsupported("an artifact (a/b) that is no container image".to_owned()));
    assert_eq!(missing.reason, PassedOverReason::Missing(digest(b"absent")));
}

#[test]
fn a_blob_with_another_digest_or_size_is_an_error_that_names_both() {
    let mut layout = Layout::default();
    let manifest = layout.image("amd64", &[below(), above()], gzip);
    layout.index(std::slice::from_ref(&manifest));
    let paths: Vec<String> = layout.0.keys().filter(|path| path.starts_with("blobs/")).cloned().collect();
    assert_eq!(paths.len(), 4);
    for path in paths {
        let mut changed = layout.clone();
        let bytes = changed.0.get_mut(&path).expect("a blob");
        // gzip's time, or a blank in JSON's place: still readable.
        if bytes[0] == 0x1f {
            bytes[4] ^= 1
        } else {
            bytes.push(b' ')
        }
        let error = changed.read().expect_err("changed");
        let ArchiveError::Mismatch { expected, .. } = &error else { panic!("{error}") };
        assert_eq!(*expected, path.replace("blobs/sha256/", "sha256:"), "{error}");
    }
    let mut larger = manifest.clone();
    larger["size"] = json!(7);
    layout.index(&[larger]);
    assert!(layout.read().expect_err("a size").to_string().contains("expected 7 bytes"));
    // The tars within the layers are checked by the configuration's digests.
    let mut layout = Layout::default();
    let manifest = layout.image("amd64", &[below()], |_| gzip(&above()));
    layout.index(&[manifest]);
    let error = layout.read().expect_err("another tar").to_string();
    assert!(
        error.contains("unpacked") && error.contains(&digest(&below())) && error.contains(&digest(&above())),
        "{error}"
    );
}

#[test]
fn digests_are_checked_by_the_algorithm_that_they_name_and_of_others_images_are_passed_over() {
    let other = |bytes: &[u8]| digest(bytes).replace("sha256:", "blake3:");
    let [short, long, other]: [fn(&[u8]) -> String; 3] = [digest, long_digest, other];
    let read = |digests| {
        let mut layout = Layout::default();
        let image = layout.image_as(&below(), digests);
        layout.index(&[image]);
        layout.read().expect("an image")
    };
    let (expected, _) = read([short; 4]);
    let contents = |members: &Members| members.values().cloned().collect::<Vec<_>>();
    for digests in
        [[long; 4], [long, long, long, short], [short, short, short, long], [short, long, short, short], [short; 4]]
    {
        let (members, report) = read(digests);
        assert_eq!((contents(&members), report.images.len()), (contents(&expected), 1), "{report:?}");
        assert!(report.passed_over.is_empty(), "{report:?}");
        let named = digests[2](&gzip(&below()));
        assert_eq!(report.images[0].layers, [named]);
    }
    for digests in [[other, short, short, short], [short, other, short, short], [short, short, other, short]] {
        let (members, report) = read(digests);
        assert!(members.is_empty() && report.images.is_empty(), "{report:?}");
        let [passed] = report.passed_over.as_slice() else { panic!("{report:?}") };
        let reason = passed.reason.to_string();
        assert_eq!(reason, "not supported: a digest of the algorithm blake3 (sha256 and sha512 are read)");
    }
    // Every one of them is checked.
    let wrong: fn(&[u8]) -> String = |bytes| long_digest(&[bytes, b"x"].concat());
    for at in 0..4 {
        let mut digests = [long; 4];
        digests[at] = wrong;
        let mut layout = Layout::default();
        let image = layout.image_as(&below(), digests);
        layout.index(&[image]);
        let error = layout.read().expect_err("another digest").to_string();
        assert!(error.contains("expected sha512:") && error.contains("found sha512:"), "{error}");
    }
}

#[test]
fn a_layer_that_is_missing_or_no_tar_leaves_its_image_out_and_says_so() {
    let mut layout = Layout::default();
    let good = layout.image("amd64", &[below()], gzip);
    let no_tar = layout.image("arm64", &[b"text".to_vec()], gzip);
    let gone = layout.image("riscv64", &[above()], gzip);
    layout.0.remove(&format!("blobs/{}", digest(&gzip(&above())).replace(':', "/")));
    layout.index(&[good, no_tar, gone]);
    let (members, report) = layout.read().expect("one image");
    assert_eq!((members.len(), report.images.len()), (5, 1));
    let reasons: Vec<String> = report.passed_over.iter().map(|one| format!("{}: {}", one.path, one.reason)).collect();
    let expected = [
        format!("image!/linux/arm64: not supported: layer {} is no tar", digest(&gzip(b"text"))),
        format!("image!/linux/riscv64: blob {} is not there", digest(&gzip(&above()))),
    ];
    assert_eq!(reasons, expected);
    let mut damaged = Layout::default();
    let cut = damaged.image("amd64", &[below()], |tar| gzip(tar)[..40].to_vec());
    damaged.index(&[cut]);
    assert!(damaged.read().expect_err("damaged").to_string().contains("found the end"));
}

#[test]
fn an_image_whose_configuration_is_missing_is_left_out_and_says_so() {
    let mut layout = Layout::default();
    let good = layout.image("amd64", &[below()], gzip);
    let before: Vec<String> = layout.0.keys().cloned().collect();
    let gone = layout.image("arm64", &[below()], gzip);
    let is_configuration = |path: &&String, bytes: &[u8]| !before.contains(path) && bytes.starts_with(b"{\"arch");
    let configuration = layout.0.iter().find(|(path, bytes)| is_configuration(path, bytes)).expect("a blob").0.clone();
    layout.0.remove(&configuration);
    layout.index(&[good, gone]);
    let (members, report) = layout.read().expect("one image");
    assert_eq!((members.len(), report.images.len()), (5, 1));
    let [missing] = report.passed_over.as_slice() else { panic!("{report:?}") };
    let named = configuration.replace("blobs/sha256/", "sha256:");
    assert_eq!(missing.reason, PassedOverReason::Missing(named));
}

#[test]
fn a_manifest_and_a_configuration_in_their_descriptors_are_taken_and_checked() {
    // Only these two are JSON.
    let embedded = |change: fn(&mut Value, &[u8])| {
        let mut layout = Layout::default();
        let mut manifest = layout.image("amd64", &[below()], gzip);
        let path = |descriptor: &Value| {
            format!("blobs/{}", descriptor["digest"].as_str().expect("a digest").replace(':', "/"))
        };
        let mut inner: Value = serde_json::from_slice(&layout.0[&path(&manifest)]).expect("a manifest");
        let configuration = layout.0.remove(&path(&inner["config"])).expect("a blob");
        change(&mut inner["config"], &configuration);
        layout.0.remove(&path(&manifest));
        let inner = inner.to_string().into_bytes();
        manifest = json!({"mediaType": manifest["mediaType"], "digest": digest(&inner), "size": inner.len(), "data": STANDARD.encode(&inner)});
        layout.index(&[manifest]);
        layout.read()
    };
    let (members, report) = embedded(|config, bytes| config["data"] = json!(STANDARD.encode(bytes))).expect("an image");
    assert_eq!((members.len(), report.images[0].platform.as_str()), (5, "linux/amd64"), "{report:?}");
    assert!(report.passed_over.is_empty(), "{report:?}");
    let other = embedded(|config, bytes| config["data"] = json!(STANDARD.encode([bytes, b" "].concat())));
    assert!(matches!(other, Err(ArchiveError::Mismatch { .. })), "{other:?}");
    let none = embedded(|config, _| config["data"] = json!("no base64")).expect_err("no base64").to_string();
    assert!(none.contains("base64 as its descriptor's data"), "{none}");
}

#[test]
fn what_docker_saved_of_old_is_read_with_its_links_between_layers() {
    let tars = [below(), above(), below()];
    let diff_ids: Vec<String> = tars.iter().map(|tar| digest(tar)).collect();
    let config =
        json!({"os": "linux", "architecture": "arm", "variant": "v7", "rootfs": {"diff_ids": diff_ids}}).to_string();
    let config_name = format!("{}.json", &digest(config.as_bytes())[7..]);
    let name = |letter: &str| letter.repeat(64);
    let manifest = json!([{"Config": config_name, "RepoTags": ["a/b:1"], "Layers":
        [format!("{}/layer.tar", name("a")), format!("{}/layer.tar", name("b")), format!("{}/layer.tar", name("c"))]}]);
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: String, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes).expect("a file");
    };
    add(format!("{}/layer.tar", name("a")), &tars[0]);
    add(format!("{}/layer.tar", name("b")), &tars[1]);
    add(config_name, config.as_bytes());
    add("manifest.json".to_owned(), manifest.to_string().as_bytes());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    tar.append_link(&mut link, format!("{}/layer.tar", name("c")), format!("../{}/layer.tar", name("a")))
        .expect("a link");
    let bytes = tar.into_inner().expect("a tar");
    for bytes in [gzip(&bytes), bytes] {
        let (members, report) = read_as_file(&bytes).expect("an image");
        let mut found = paths(&members);
        found.sort_unstable();
        assert_eq!(found, ["opt/a", "opt/b", "opt/c", "same", "usr/bin/old", "usr/bin/tool"]);
        let image = &report.images[0];
        assert_eq!((image.name.as_str(), image.platform.as_str(), image.files), ("a/b:1", "linux/arm/v7", 7));
    }
}

#[test]
fn a_tar_that_only_looks_like_an_image_is_read_as_a_tar() {
    for (path, text) in [("manifest.json", r#"{"name": "an extension"}"#), ("index.json", "[]"), ("blobs/x", "x")] {
        let bytes = layer(&[(path, text), ("a/b", "c")]);
        let (members, report) = read_bytes("x.tar", &bytes).expect("a tar");
        assert_eq!((members.len(), report.images.len()), (2, 0));
    }
}

#[test]
fn skopeo_and_umoci_agree_on_the_files_of_an_image() {
    if !have("umoci") || !have("skopeo") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path();
    shell(
        "umoci init --layout oci && umoci new --image oci:x
         mkdir -p one/usr/bin one/opt two; seq 1 999 >one/usr/bin/tool; seq 1 50 >one/opt/a; seq 1 60 >one/opt/b; cp /bin/true one/true
         ln one/opt/a one/opt/hard; umoci insert --rootless --image oci:x one /
         seq 1 7 >two/new; umoci insert --rootless --image oci:x two /two
         umoci insert --rootless --image oci:x --whiteout /usr/bin
         umoci insert --rootless --image oci:x --opaque two /opt
         umoci unpack --rootless --image oci:x bundle
         skopeo copy --quiet oci:oci:x docker-archive:saved.tar:a/b:1
         skopeo copy --quiet oci:oci:x oci-archive:oci.tar:x
         skopeo copy --quiet --dest-compress-format zstd oci:oci:x oci:zstd:x; gzip -k saved.tar",
        work,
    );
    let truth = files_below(&work.join("bundle/rootfs"));
    assert!(truth.contains_key("opt/new") && !truth.contains_key("opt/a") && !truth.contains_key("usr/bin/tool"));
    let check = |what: &str, (members, report): (Members, ArchiveReport)| {
        assert_eq!(report.images.len(), 1, "{what}");
        let found: Members = members
            .iter()
            .map(|(path, content)| (path.rsplit("!/").next().unwrap_or_default().to_owned(), *content))
            .collect();
        assert_same(what, &found, &truth);
    };
    for name in ["saved.tar", "saved.tar.gz", "oci.tar"] {
        let bytes = std::fs::read(work.join(name)).expect("a file");
        check(name, read_as_file(&bytes).expect("an image"));
    }
    for name in ["oci", "zstd"] {
        let root = work.join(name);
        check(name, read_layout(|path| Ok(Box::new(File::open(root.join(path))?))).expect("an image"));
    }
}

/// Skopeo 1.9 leaves the zeros behind the last member out of layers in zstd:chunked, and Skopeo and Buildah take them all the same. (It writes them from an
/// archive of Docker's alone, and of some hangs.)
#[test]
fn a_layer_without_the_zeros_at_its_end_is_what_the_configuration_says() {
    fn unpadded(tar: &[u8]) -> Vec<u8> {
        let end = tar.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        gzip(&tar[..end.next_multiple_of(512)])
    }
    let read = |pack: fn(&[u8]) -> Vec<u8>| {
        let mut layout = Layout::default();
        let manifest = layout.image("amd64", &[below()], pack);
        layout.index(&[manifest]);
        layout.read()
    };
    // Paths have the layer's digest.
    let files = |members: Members| -> Vec<_> {
        let file = |(path, content): (String, _)| (path.rsplit("!/").next().unwrap_or_default().to_owned(), content);
        members.into_iter().map(file).collect()
    };
    let (whole, _) = read(gzip).expect("an image");
    let (found, report) = read(unpadded).expect("an image");
    assert_eq!((files(found), report.images.len()), (files(whole), 1));
    // Anything else is another layer.
    let error = read(|tar| gzip(&[tar, &[1]].concat())).expect_err("another tar");
    assert!(matches!(error, ArchiveError::Mismatch { .. }), "{error}");
}

#[test]
fn an_image_in_a_stream_is_a_tar_of_tars() {
    let mut layout = Layout::default();
    let manifest = layout.image("amd64", &[below()], gzip);
    layout.index(&[manifest]);
    let bytes = layout.as_tar();
    let source = symseal_artifact::Source::Stream(&mut &bytes[..]);
    let (members, report) = support::archives::read_source("x.tar", source, &Limits::default()).expect("a tar");
    assert!(report.images.is_empty() && members.keys().any(|path| path.ends_with("usr/bin/old")));
}
