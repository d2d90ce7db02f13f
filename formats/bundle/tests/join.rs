//! Parts of several platform jobs joined: the same bytes as one build, and refusals that name the parts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use symseal_bundle::compose::{Composed, FileFormat, compose, media_type, shards};
use symseal_bundle::join::{JoinError, Joined, Part, join};
use symseal_bundle::oci::{self, Descriptor, ImageIndex};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::subject::with_subject;
use symseal_bundle::{
    DebugInfo, Digest, FileEntry, FileRole, IndexStatistics, InputEntry, ModuleEntry, ModuleStatistics, Producer,
    ShardEntry, SymbolIndex, index, pages, sources, title,
};
use symseal_module::{DebugId, Svma};

/// A module to be: its platform is in the id.
#[derive(Debug, Clone)]
struct Given {
    id: String,
    arch: &'static str,
    files: u8,
    /// Where it has one file more.
    place: Option<&'static str>,
    /// What its binary and its debug file are called; the first stands in what is made of it.
    names: [&'static str; 2],
}

const NAMES: [&str; 2] = ["app", "app.debug"];

fn linux(number: u32) -> Given {
    Given { id: format!("{:08x}", number + 1).repeat(5), arch: "x86_64", files: 3, place: None, names: NAMES }
}

fn windows(number: u32) -> Given {
    Given { id: format!("{number:032X}-1"), arch: "x86_64", files: 2, place: None, names: NAMES }
}

fn macos(number: u32) -> Given {
    Given { id: format!("uuid:{number:032X}"), arch: "aarch64", files: 2, place: None, names: NAMES }
}

/// A bundle without its files: index, what is composed of it, and its files of page hashes.
struct Made {
    index: SymbolIndex,
    composed: Composed,
    page_hashes: BTreeMap<Digest, Vec<u8>>,
    /// What the index names as sources.
    sources: Option<Vec<u8>>,
}

impl Made {
    fn image_index(&self) -> ImageIndex {
        ImageIndex::parse(&self.composed.image_index).unwrap()
    }
}

fn file(role: FileRole, path: String, bytes: &[u8]) -> (FileEntry, FilePages) {
    let page_size = pages::page_size_of(role);
    let measured = pages::measure(bytes, page_size);
    let entry = FileEntry {
        role,
        path,
        size: measured.size,
        sha256: measured.digest,
        media_type: media_type(role, FileFormat::Elf).to_owned(),
        page_size,
        page_root: measured.root,
        piece_root: (role == FileRole::SymbolTable).then(|| symseal_bundle::pieces::root(bytes)),
        derived_from: Vec::new(),
    };
    (entry, FilePages { sha256: measured.digest, page_size, size: measured.size, leaves: measured.leaves })
}

/// What one build over `given` writes, by the rules of `docs/formats/bundle.md`.
fn build(given: &[Given], name: &str, version: &str) -> Made {
    let mut index = SymbolIndex {
        schema: index::SCHEMA.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
        producer: Producer { name: "test".to_owned(), version: "1".to_owned() },
        linux: BTreeMap::new(),
        windows: BTreeMap::new(),
        macos: BTreeMap::new(),
        shards: Vec::new(),
        sources: None,
        statistics: IndexStatistics::default(),
    };
    let mut all: BTreeMap<String, Vec<FilePages>> = BTreeMap::new();
    for Given { id: text, arch, files, place, names } in given {
        let id: DebugId = text.parse().unwrap();
        // Several pages, and a first byte that differs from module to module.
        let bytes = |at: u8| [text.as_bytes(), &vec![at; 20_000 + usize::from(at) * 50_000]].concat();
        let made = (0..*files).map(|at| match at {
            0 => file(FileRole::SymbolTable, title::symbol_table(&id), &[&bytes(at), names[0].as_bytes()].concat()),
            1 => file(FileRole::ModuleIndex, title::module_index(&id), &bytes(at)),
            _ => file(FileRole::Debuginfo, title::build_id_debug_file(&id).unwrap(), &bytes(at)),
        });
        let placed = place.map(|place| file(FileRole::Executable, place.to_owned(), &bytes(9)));
        let (mut files, pages): (Vec<_>, Vec<_>) = made.chain(placed).unzip();
        files.sort_by(|a, b| (a.role, &a.path).cmp(&(b.role, &b.path)));
        all.insert(id.to_string(), pages);
        let module = ModuleEntry {
            name: names[0].to_owned(),
            format: "elf".to_owned(),
            arch: (*arch).to_owned(),
            id_kind: "gnu-build-id".to_owned(),
            code_id: None,
            go_build_id: None,
            pdb: None,
            supplementary: None,
            image_base: Svma(0),
            debug_info: DebugInfo::Full,
            lines_of: None,
            stripped: false,
            files,
            inputs: (names.iter().zip([text.as_bytes(), b"debug"]))
                .map(|(name, bytes)| InputEntry { name: (*name).to_owned(), sha256: Digest::of(bytes) })
                .collect(),
            statistics: ModuleStatistics::default(),
        };
        let map = match index::platform_of(&id) {
            "linux" => &mut index.linux,
            "windows" => &mut index.windows,
            _ => &mut index.macos,
        };
        map.insert(id.to_string(), module);
    }
    title::keep_apart(&mut index);
    let mut page_hashes = BTreeMap::new();
    for shard in shards(&index).unwrap() {
        let own: Vec<FilePages> = shard.ids.iter().flat_map(|id| all[&id.to_string()].clone()).collect();
        let bytes = page_hashes::write(&own).unwrap();
        let (first, last) = (shard.ids[0].clone(), shard.ids[shard.ids.len() - 1].clone());
        let path = title::page_hashes(shard.platform, &shard.arch, &first);
        let (entry, _) = file(FileRole::PageHashes, path, &bytes);
        page_hashes.insert(entry.sha256, bytes);
        let (platform, arch) = (shard.platform.to_owned(), shard.arch);
        index.shards.push(ShardEntry { platform, arch, first, last, page_hashes: entry });
    }
    let mut seen = BTreeSet::new();
    index.statistics = IndexStatistics {
        modules: index.modules().count() as u64,
        files: index.files().count() as u64,
        bytes: index.files().filter(|file| seen.insert(file.sha256)).map(|file| file.size).sum(),
    };
    let composed = compose(&index).unwrap();
    Made { index, composed, page_hashes, sources: None }
}

/// Joins bundles that are called `part 0`, `part 1` …
fn join_all(made: &[&Made], name: Option<&str>, version: Option<&str>) -> Result<(Joined, usize), JoinError> {
    let names: Vec<String> = (0..made.len()).map(|at| format!("part {at}")).collect();
    let images: Vec<ImageIndex> = made.iter().map(|made| made.image_index()).collect();
    let parts: Vec<Part<'_>> = made
        .iter()
        .zip(&images)
        .zip(&names)
        .map(|((made, image_index), name)| Part {
            name,
            digest: made.composed.digest,
            image_index,
            index: &made.index,
            sources: made.sources.as_deref(),
        })
        .collect();
    let joining = join(&parts, name, version)?;
    let needed = joining.needed();
    let fetched = needed
        .iter()
        .map(|needed| (needed.file.sha256, made[needed.part].page_hashes[&needed.file.sha256].clone()))
        .collect();
    let asked = needed.len();
    Ok((joining.finish(&fetched)?, asked))
}

#[track_caller]
fn same_bytes(joined: &Joined, whole: &Made) {
    let composed = compose(&joined.index).unwrap();
    assert_eq!(joined.index, whole.index);
    assert_eq!(composed.symbol_index, whole.composed.symbol_index);
    assert_eq!(composed.manifests, whole.composed.manifests);
    assert_eq!(composed.digest, whole.composed.digest);
    for bytes in &joined.page_hashes {
        assert_eq!(whole.page_hashes.get(&Digest::of(bytes)), Some(bytes));
    }
}

#[test]
fn parts_of_three_platforms_keep_their_shards_and_give_the_bundle_of_one_build() {
    let platforms = [vec![linux(1), linux(2)], vec![windows(3)], vec![macos(4), macos(5)]];
    let parts: Vec<Made> = platforms.iter().map(|given| build(given, "app", "1.0")).collect();
    let whole = build(&platforms.concat(), "app", "1.0");
    let (joined, asked) = join_all(&parts.iter().collect::<Vec<_>>(), None, None).unwrap();
    same_bytes(&joined, &whole);
    assert_eq!((joined.shards_kept, joined.page_hashes.len(), asked), (3, 0, 0));
    // The manifests of the parts' shards are those of the whole: only the root is new.
    let of_parts: BTreeSet<&Vec<u8>> = parts.iter().flat_map(|part| &part.composed.manifests[1..]).collect();
    assert!(whole.composed.manifests[1..].iter().all(|manifest| of_parts.contains(manifest)));
}

#[test]
fn parts_of_one_platform_are_cut_anew_by_the_rule_of_one_build() {
    let (even, odd): (Vec<Given>, Vec<Given>) =
        ((0..400).step_by(2).map(linux).collect(), (1..400).step_by(2).map(linux).collect());
    let whole = build(&[even.clone(), odd.clone()].concat(), "app", "1.0");
    assert_eq!(whole.index.shards.len(), 4, "132 modules of three files fill a shard");
    let (even, odd) = (build(&even, "app", "1.0"), build(&odd, "app", "1.0"));
    let (joined, asked) = join_all(&[&even, &odd], None, None).unwrap();
    same_bytes(&joined, &whole);
    assert_eq!((joined.shards_kept, joined.page_hashes.len(), asked), (0, 4, 4));
}

/// Two builds of one library with one time stamp and size belong at one place of a symbol store.
#[test]
fn files_of_one_place_are_kept_apart_as_in_one_build() {
    let at = |place: &'static str, given: Given| Given { place: Some(place), ..given };
    let (first, second) =
        (at("App.dll/5f00c0de9000/App.dll", windows(1)), at("app.dll/5f00c0de9000/app.dll", windows(2)));
    let third = at("App.dll/5f00c0de9000/App.dll", windows(3));
    let whole = build(&[first.clone(), second.clone(), third.clone()], "app", "1.0");
    let paths: Vec<&str> =
        whole.index.files().map(|file| file.path.as_str()).filter(|path| path.contains("dll")).collect();
    let below = |given: &Given, path: &str| format!("module/{}/{path}", given.id);
    assert_eq!(
        paths,
        [
            "App.dll/5f00c0de9000/App.dll",
            &below(&second, "app.dll/5f00c0de9000/app.dll"),
            &below(&third, "App.dll/5f00c0de9000/App.dll")
        ]
    );
    // Each has the place where it is alone; beside the third one the second has it.
    let parts = [vec![first.clone()], vec![second.clone()], vec![third.clone()], vec![second.clone(), third.clone()]];
    let parts = parts.map(|part| build(&part, "app", "1.0"));
    for joined in [[0, 1, 2].as_slice(), &[2, 1, 0], &[3, 0], &[0, 3, 2]] {
        let joined: Vec<&Made> = joined.iter().map(|part| &parts[*part]).collect();
        same_bytes(&join_all(&joined, None, None).unwrap().0, &whole);
    }
}

#[test]
fn the_order_of_the_parts_and_a_part_given_twice_change_nothing() {
    let (a, b) = (build(&[linux(1), linux(3)], "app", "1.0"), build(&[linux(2), linux(3)], "app", "1.0"));
    let whole = build(&[linux(1), linux(2), linux(3)], "app", "1.0");
    for parts in [vec![&a, &b], vec![&b, &a], vec![&a, &b, &a, &b]] {
        same_bytes(&join_all(&parts, None, None).unwrap().0, &whole);
    }
    let (alone, asked) = join_all(&[&a], None, None).unwrap();
    same_bytes(&alone, &a);
    assert_eq!(asked, 0);
}

#[test]
fn what_the_caller_says_stands_for_names_and_versions_that_differ() {
    let (a, b) = (build(&[linux(1)], "app-linux", "1.0-rc"), build(&[windows(2)], "app-windows", "1.0"));
    let whole = build(&[linux(1), windows(2)], "app", "1.0");
    same_bytes(&join_all(&[&a, &b], Some("app"), Some("1.0")).unwrap().0, &whole);

    let error = join_all(&[&a, &b], None, Some("1.0")).unwrap_err().to_string();
    for part in ["names", "part 0", "app-linux", "part 1", "app-windows"] {
        assert!(error.contains(part), "{error}");
    }
    let error = join_all(&[&a, &b], Some("app"), None).unwrap_err().to_string();
    assert!(error.contains("versions") && error.contains("1.0-rc"), "{error}");
    let error = join_all(&[&a], Some(""), None).unwrap_err().to_string();
    assert!(error.contains("the joined bundle") && error.contains("name"), "{error}");
    assert!(matches!(join_all(&[], None, None), Err(JoinError::NoParts)));
}

#[test]
fn of_one_library_under_two_names_the_smaller_is_taken_as_in_one_build() {
    let named = |first, second| Given { names: [first, second], ..linux(2) };
    let small = named("a.so", "app.debug");
    let whole = build(&[linux(1), small.clone(), linux(3)], "app", "1.0");
    // Of the one part a shard could be kept, were it not for the name.
    let (small, large) = (build(&[small], "app", "1.0"), build(&[linux(1), linux(2), linux(3)], "app", "1.0"));
    for parts in [[&small, &large], [&large, &small]] {
        same_bytes(&join_all(&parts, None, None).unwrap().0, &whole);
    }
    // Where each part has one of the smaller names, no part has what one build makes of both.
    let crossed = build(&[named("a.so", "b.debug")], "app", "1.0");
    let error = join_all(&[&crossed, &large], None, None).unwrap_err().to_string();
    assert!(error.contains("the file name") && error.contains("a.so"), "{error}");
}

#[test]
fn every_module_with_two_descriptions_is_named_with_both_parts_and_what_differs() {
    let a = build(&[linux(1), linux(7), linux(8)], "app", "1.0");
    let b = build(&[Given { files: 2, ..linux(7) }, Given { files: 2, ..linux(8) }], "app", "1.0");
    let error = join_all(&[&a, &b], None, None).unwrap_err();
    let text = error.to_string();
    for part in ["part 0", "part 1", &linux(7).id, &linux(8).id, "debuginfo"] {
        assert!(text.contains(part), "{text}");
    }
    let JoinError::Conflicts(conflicts) = error else { panic!("{text}") };
    assert_eq!(conflicts.len(), 2, "{text}");
}

#[test]
fn the_sources_of_one_part_are_those_of_the_whole_and_those_of_several_become_an_image_index() {
    let manifest = |layer: &[u8]| {
        oci::Manifest::artifact(sources::ARTIFACT_TYPE, vec![Descriptor::of("a/b", layer)]).to_bytes().unwrap()
    };
    let with_sources = |given: &[Given], bytes: &[u8], seen: bool| {
        let mut made = build(given, "app", "1.0");
        made.index.sources = Some(Digest::of(bytes));
        made.composed = compose(&made.index).unwrap();
        made.sources = seen.then(|| bytes.to_vec());
        made
    };
    // Nobody need see the only ones that are named.
    let one = manifest(b"a");
    let (a, b) = (with_sources(&[linux(1)], &one, false), build(&[windows(2)], "app", "1.0"));
    for parts in [[&a, &b], [&b, &a]] {
        let (joined, _) = join_all(&parts, None, None).unwrap();
        same_bytes(&joined, &with_sources(&[linux(1), windows(2)], &one, false));
        assert_eq!(joined.sources, None);
    }
    let (a, c) = (with_sources(&[linux(1)], &one, true), with_sources(&[macos(3)], &manifest(b"c"), true));
    let (whole, _) = join_all(&[&a, &b, &c], None, None).unwrap();
    let index = whole.sources.clone().unwrap();
    assert_eq!(whole.index.sources, Some(Digest::of(&index)));
    let named = sources::manifests(&Digest::of(&index), &index).unwrap();
    let mut expected = [a.index.sources.unwrap(), c.index.sources.unwrap()];
    expected.sort();
    assert_eq!(named.iter().map(|manifest| manifest.digest).collect::<Vec<_>>(), expected);
    // A part that was joined itself gives its manifests, so the order of joining does not matter.
    let first = with_sources(&[linux(1), macos(3)], &index, true);
    let d = with_sources(&[windows(4)], &manifest(b"d"), true);
    let late = join_all(&[&first, &d], None, None).unwrap().0;
    assert_eq!(late.sources, join_all(&[&d, &c, &a], None, None).unwrap().0.sources);

    let unseen = with_sources(&[macos(3)], &manifest(b"c"), false);
    let error = join_all(&[&a, &b, &unseen], None, None).unwrap_err();
    assert!(matches!(&error, JoinError::Sources { part, .. } if part == "part 2"), "{error}");
    assert!(error.to_string().contains(&unseen.index.sources.unwrap().to_string()), "{error}");
    let other = with_sources(&[macos(3)], b"{}", true);
    assert!(matches!(join_all(&[&a, &other], None, None), Err(JoinError::Sources { .. })));
}

#[test]
fn producers_of_different_versions_are_refused() {
    let a = build(&[linux(1)], "app", "1.0");
    let mut b = build(&[linux(2)], "app", "1.0");
    b.index.producer.version = "2".to_owned();
    b.composed = compose(&b.index).unwrap();
    let error = join_all(&[&a, &b], None, None).unwrap_err().to_string();
    assert!(error.contains("producer") && error.contains("test 1") && error.contains("test 2"), "{error}");
}

#[test]
fn a_part_that_does_not_follow_from_its_index_is_refused() {
    let mut a = build(&[linux(1)], "app", "1.0");
    let mut other = a.image_index();
    other.annotations.insert("by".to_owned(), "another".to_owned());
    a.composed.image_index = other.to_bytes().unwrap();
    a.composed.digest = Digest::of(&a.composed.image_index);
    let error = join_all(&[&a], None, None).unwrap_err();
    assert!(matches!(&error, JoinError::Foreign { part, .. } if part == "part 0"), "{error}");
}

#[test]
fn a_part_with_a_subject_is_joined_and_its_subject_left_behind() {
    let mut a = build(&[linux(1)], "app", "1.0");
    let image = Descriptor::of(oci::MANIFEST, b"an image").with("noise", "of a registry");
    let plain = a.composed.digest;
    a.composed = with_subject(a.composed, &image).unwrap();
    assert_ne!(a.composed.digest, plain);
    assert_eq!(a.image_index().subject, Some(Descriptor::of(oci::MANIFEST, b"an image")));
    let whole = build(&[linux(1), linux(2)], "app", "1.0");
    let b = build(&[linux(2)], "app", "1.0");
    same_bytes(&join_all(&[&a, &b], None, None).unwrap().0, &whole);
}

#[test]
fn page_hashes_that_are_missing_or_of_other_files_are_refused() {
    let (a, b) = (build(&[linux(1)], "app", "1.0"), build(&[linux(2)], "app", "1.0"));
    let (image_a, image_b) = (a.image_index(), b.image_index());
    let parts = [
        Part { name: "a", digest: a.composed.digest, image_index: &image_a, index: &a.index, sources: None },
        Part { name: "b", digest: b.composed.digest, image_index: &image_b, index: &b.index, sources: None },
    ];
    let joining = join(&parts, None, None).unwrap();
    let digests: Vec<Digest> = joining.needed().iter().map(|needed| needed.file.sha256).collect();
    assert_eq!(digests.len(), 2);
    let refused = |fetched: &BTreeMap<Digest, Vec<u8>>| {
        let error = joining.clone().finish(fetched).unwrap_err();
        assert!(matches!(error, JoinError::PageHashes { .. }), "{error}");
    };
    refused(&BTreeMap::new());
    // The bytes of the one under the digest of both: the caller did not check them.
    let of_a = a.page_hashes[&digests[0]].clone();
    refused(&BTreeMap::from([(digests[0], of_a.clone()), (digests[1], of_a.clone())]));
    refused(&BTreeMap::from([(digests[0], of_a), (digests[1], b"SYMPGHS\0".to_vec())]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_split_of_the_modules_joins_to_the_same_bytes(owners in prop::collection::vec(0usize..4, 1..60)) {
        let all: Vec<Given> = (0..owners.len() as u32)
            .map(|at| Given { place: (at % 5 == 0).then_some("app.dll/5f00/app.dll"), ..match at % 4 { 0 => windows(at), 1 => macos(at), 2 => Given { arch: "aarch64", ..linux(at) }, _ => linux(at) } })
            .collect();
        let whole = build(&all, "app", "1.0");
        let parts: Vec<Made> = (0..4)
            .map(|owner| all.iter().zip(&owners).filter(|(_, of)| **of == owner).map(|(given, _)| given.clone()).collect())
            .filter(|given: &Vec<Given>| !given.is_empty())
            .map(|given| build(&given, "app", "1.0"))
            .collect();
        let (joined, _) = join_all(&parts.iter().collect::<Vec<_>>(), None, None).unwrap();
        same_bytes(&joined, &whole);
    }
}
