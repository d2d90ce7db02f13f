//! Sources: packs that other programs read, a table that tells of them, and readers against damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::sources::{
    self, CheckedBy, MAX_PACK_BYTES, MIN_PACK_BYTES, Pack, SourceTable, Sources, SourcesError, SourcesWriter,
};
use symseal_bundle::{Digest, LayoutDir, canonical};

fn write(files: &[(&str, Vec<u8>)]) -> (Vec<Pack>, SourceTable) {
    let mut writer = SourcesWriter::new();
    let mut packs = Vec::new();
    for (path, bytes) in files {
        packs.extend(writer.add(path, bytes, None).unwrap());
    }
    let (last, table) = writer.finish().unwrap();
    packs.extend(last);
    (packs, table)
}

/// Files as line tables of many machines name them, in order.
fn sample() -> Vec<(&'static str, Vec<u8>)> {
    let mut files = vec![
        ("../../up/two.c", b"up".to_vec()),
        ("/usr/include/Stdio.h", b"other case".to_vec()),
        ("/usr/include/stdio.h", b"int puts(const char *);\n".to_vec()),
        ("/usr/src/empty.h", Vec::new()),
        ("/usr/src/größe.c", vec![0xff; 3000]),
        ("C:\\src\\nul.c", b"windows".to_vec()),
        ("src/app-gdb.py", b"print(1)\n".to_vec()),
        ("src/same.h", b"up".to_vec()),
        ("src/x\u{1b}[31m.c", b"escape".to_vec()),
        ("usr/include/stdio.h", b"relative".to_vec()),
    ];
    files.sort();
    files
}

/// The tool's path; where it is missing, says so, or fails where `SYMSEAL_REQUIRE` names it.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|candidate| candidate.is_file());
    if found.is_none() {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|tool| tool == name || tool == "all"), "{name} is required and was not found");
        println!("SKIP {name}: not found");
    }
    found
}

#[test]
fn the_table_is_canonical_keeps_to_its_schema_and_leads_to_every_file() {
    let files = sample();
    let (packs, table) = write(&files);
    let json = table.to_canonical_json().unwrap();
    assert!(canonical::is_canonical(&json));
    assert_eq!(SourceTable::parse(&json).unwrap(), table);
    let path = format!("{}/../../docs/formats/schemas/sources.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    schema.validate(&serde_json::from_slice(&json).unwrap()).unwrap();

    assert_eq!(packs.len(), 1);
    table.check_pack(0, &packs[0].bytes).unwrap();
    for (path, bytes) in &files {
        let [file] = table.find(path) else { panic!("{path}") };
        assert_eq!(file.slice(&packs[0].bytes).unwrap(), bytes);
    }
    assert!(table.find("/usr/src").is_empty());
    assert_eq!(table.statistics.files, files.len() as u64);
    // Bytes that two paths share lie in the pack once.
    assert_eq!(table.find("../../up/two.c")[0].offset, table.find("src/same.h")[0].offset);
    assert_eq!(write(&files), (packs, table), "the same files give the same bytes");
}

#[test]
fn files_of_one_path_are_told_apart_by_their_digests() {
    let mut files = vec![("a.c", b"one".to_vec()), ("a.c", b"two".to_vec())];
    files.sort_by_key(|(path, bytes)| (*path, Digest::of(bytes)));
    let (packs, table) = write(&files);
    assert_eq!(table.find("a.c").len(), 2);
    table.check_pack(0, &packs[0].bytes).unwrap();

    let mut writer = SourcesWriter::new();
    writer.add("b.c", b"", Some(CheckedBy::Md5)).unwrap();
    for (path, bytes) in [("a.c", &b""[..]), ("b.c", b""), ("", b"")] {
        assert!(matches!(writer.add(path, bytes, None), Err(SourcesError::Value { .. })), "{path:?}");
    }
    let large = vec![0; 1 + usize::try_from(sources::MAX_SOURCE_BYTES).unwrap()];
    assert!(matches!(writer.add("c.c", &large, None), Err(SourcesError::Value { .. })));
    assert_eq!(writer.finish().unwrap().1.statistics.checked, 1);
}

#[test]
fn unzip_and_python_read_a_pack_and_stay_in_their_directory() {
    let files = sample();
    let (packs, table) = write(&files);
    let dir = tempfile::tempdir().unwrap();
    let zip = dir.path().join("pack.zip");
    std::fs::write(&zip, &packs[0].bytes).unwrap();
    let into = dir.path().join("out/in");
    std::fs::create_dir_all(&into).unwrap();
    if let Some(unzip) = tool("unzip") {
        let ran = Command::new(&unzip).arg("-t").arg(&zip).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && told.contains("No errors detected"), "{told}");
        let ran =
            Command::new(&unzip).arg("-q").arg(&zip).arg("-d").arg(&into).env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(std::fs::read(into.join("usr/include/Stdio.h")).unwrap(), b"other case");
        assert_eq!(std::fs::read(into.join("C%3A/src/%6Eul.c")).unwrap(), b"windows");
        assert_eq!(std::fs::read(into.join("src/app%2Dgdb%2Epy")).unwrap(), b"print(1)\n");
        // One file for each distinct content, and none beside the directory.
        assert_eq!(count(&into), files.len() - 1);
        assert_eq!(count(&dir.path().join("out")), files.len() - 1);
    }
    if let Some(python) = tool("python3") {
        let script = "
import json, sys, zipfile
pack = zipfile.ZipFile(sys.argv[1])
assert pack.testzip() is None
print(json.dumps({i.filename: [i.file_size, i.compress_type, list(i.date_time), i.external_attr >> 16,
    pack.read(i).hex()] for i in pack.infolist()}))";
        let ran = Command::new(python).arg("-c").arg(script).arg(&zip).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let read: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(read.len(), files.len() - 1);
        for (name, member) in &read {
            assert!(!name.starts_with('/') && !name.contains("..") && !name.contains('\u{1b}'), "{name:?}");
            assert_eq!(member[1], 0, "stored");
            assert_eq!(member[2], serde_json::json!([1980, 1, 1, 0, 0, 0]));
            assert_eq!(member[3], 0o100_644);
        }
        let file = &table.find("/usr/src/größe.c")[0];
        assert_eq!(read["usr/src/größe.c"][0], file.size);
        let other: Vec<&String> = read.keys().filter(|name| name.starts_with("usr/include/stdio.h%~")).collect();
        assert_eq!(
            other.len(),
            2,
            "members that an unzip would take for one have names of their own: {:?}",
            read.keys()
        );
    }
}

fn count(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

#[test]
fn packs_keep_their_bound_and_a_changed_file_changes_one_pack() {
    let path = |at: u32| format!("/src/{at:05}.c");
    let content =
        |at: u32| (0..30_000u32).flat_map(|word| (word ^ at.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect();
    let paths: Vec<String> = (0..900).map(path).collect();
    let files: Vec<(&str, Vec<u8>)> = (0..900).map(|at| (paths[at as usize].as_str(), content(at))).collect();
    let (packs, table) = write(&files);
    assert!(packs.len() >= 2, "{}", packs.len());
    for (number, pack) in packs.iter().enumerate() {
        assert!(pack.entry.size <= MAX_PACK_BYTES);
        assert!(number + 1 == packs.len() || pack.entry.size >= MIN_PACK_BYTES);
        table.check_pack(number, &pack.bytes).unwrap();
    }
    let digests = |packs: &[Pack]| packs.iter().map(|pack| pack.entry.sha256).collect::<Vec<_>>();
    let mut changed = files.clone();
    changed[3].1.push(b'\n');
    let (after, _) = write(&changed);
    let kept = digests(&after).iter().filter(|digest| digests(&packs).contains(digest)).count();
    assert_eq!((after.len(), kept), (packs.len(), packs.len() - 1));

    // A file that does not fit any more begins the next pack.
    let large = vec![7; 30 << 20];
    let other = vec![8; 31 << 20];
    let third = vec![9; 30 << 20];
    let (packs, table) = write(&[("a", large), ("b", other), ("c", third)]);
    assert_eq!(packs.len(), 2);
    assert_eq!(table.files.iter().map(|file| file.pack).collect::<Vec<_>>(), [0, 0, 1]);
}

fn store(layout: &LayoutDir, packs: &[Pack], table: &SourceTable) -> Digest {
    let json = table.to_canonical_json().unwrap();
    let manifest = sources::manifest(table, &json).unwrap();
    for bytes in packs.iter().map(|pack| &pack.bytes).chain([&json, &manifest]) {
        layout.write_blob(bytes).unwrap();
    }
    layout.add_to_index(Descriptor::of(oci::MANIFEST, &manifest), Some("1.0.sources")).unwrap();
    Digest::of(&manifest)
}

#[test]
fn an_artifact_in_a_layout_is_opened_by_its_digest_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let (packs, table) = write(&sample());
    let digest = store(&layout, &packs, &table);
    let opened = Sources::open(layout.clone(), &digest).unwrap();
    assert_eq!((opened.table(), opened.digest()), (&table, digest));
    opened.verify().unwrap();
    assert_eq!(opened.read(&table.find("/usr/include/stdio.h")[0]).unwrap(), b"int puts(const char *);\n");

    // A manifest that names other packs than its table does.
    let (_, other) = write(&[("a", b"a".to_vec())]);
    let mismatched = sources::manifest(&table, &other.to_canonical_json().unwrap()).unwrap();
    layout.write_blob(&other.to_canonical_json().unwrap()).unwrap();
    let mismatched = layout.write_blob(&mismatched).unwrap();
    assert!(matches!(Sources::open(layout.clone(), &mismatched), Err(SourcesError::NotSources { .. })));
    let absent = Sources::open(layout.clone(), &Digest::of(b"absent"));
    assert!(matches!(absent, Err(SourcesError::Layout(_))));

    let path = layout.blob_path(&table.packs[0].sha256);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(opened.verify().is_err() && opened.read(&table.files[0]).is_err());
}

#[test]
fn what_the_table_may_not_say_is_refused() {
    let (_, table) = write(&sample());
    let refuse = |what: &str, change: &dyn Fn(&mut SourceTable)| {
        let mut other = table.clone();
        change(&mut other);
        assert!(SourceTable::parse(&other.to_canonical_json().unwrap()).is_err(), "{what}");
    };
    refuse("order", &|table| table.files.swap(0, 1));
    refuse("a file twice", &|table| table.files[1] = table.files[0].clone());
    refuse("no pack", &|table| table.files[0].pack = 1);
    refuse("an offset beyond the pack", &|table| table.files[0].offset = u64::MAX >> 11);
    refuse("a size beyond the pack", &|table| table.files[0].size = 32 << 20);
    refuse("an empty path", &|table| table.files[0].path.clear());
    refuse("a long path", &|table| table.files[9].path = "x".repeat(5000));
    refuse("another title", &|table| table.packs[0].path = "../x.zip".to_owned());
    refuse("a pack beyond the bound", &|table| table.packs[0].size = MAX_PACK_BYTES + 1);
    refuse("packs without end", &|table| table.packs = vec![table.packs[0].clone(); 399]);
    refuse("the same bytes in two places", &|table| table.files[1].sha256 = table.files[0].sha256);
    refuse("files that lie in another order", &|table| {
        let (one, two) = (table.files[2].offset, table.files[3].offset);
        (table.files[2].offset, table.files[3].offset) = (two, one);
    });
    refuse("counts", &|table| table.statistics.bytes += 1);
    refuse("schema", &|table| table.schema = "symseal.sources.v9".to_owned());
    let json = table.to_canonical_json().unwrap();
    let blank = [b"{ ", &json[1..]].concat();
    assert!(matches!(SourceTable::parse(&blank), Err(SourcesError::NotCanonical)));
}

#[test]
fn a_zip_file_that_shows_others_what_the_table_does_not_list_is_refused() {
    let (packs, table) = write(&[("a.c", b"what the table lists".to_vec()), ("b.c", b"second".to_vec())]);
    let sound = &packs[0].bytes;
    let mut forged: Vec<Vec<u8>> = vec![[sound, &b"trailing"[..]].concat(), [&b"before"[..], sound].concat()];
    // Every byte that is not a file's own: names, sizes, checksums, the directory.
    let data: Vec<usize> =
        table.files.iter().flat_map(|file| file.offset as usize..(file.offset + file.size) as usize).collect();
    for at in (0..sound.len()).filter(|at| !data.contains(at)) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        forged.push(bytes);
    }
    for bytes in forged {
        // The forger computes the digests anew.
        let mut table = table.clone();
        table.packs[0].sha256 = Digest::of(&bytes);
        table.packs[0].size = bytes.len() as u64;
        assert!(table.check_pack(0, &bytes).is_err());
    }
    let mut table = table;
    table.files.pop();
    assert!(table.check_pack(0, sound).is_err(), "a member that the table does not list");
    assert!(table.check_pack(1, sound).is_err());
}

proptest! {
    #[test]
    fn whatever_the_paths_the_pack_is_what_the_table_says(
        files in proptest::collection::btree_map("([a-cA-C/\\\\:.%~ -]|CON|é|\\PC){1,12}", proptest::collection::vec(any::<u8>(), 0..40), 1..20)
    ) {
        let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())).collect();
        let (packs, table) = write(&files);
        prop_assert_eq!(SourceTable::parse(&table.to_canonical_json().unwrap()).unwrap(), table.clone());
        prop_assert!(table.check_pack(0, &packs[0].bytes).is_ok());
        for (path, bytes) in &files {
            prop_assert_eq!(table.find(path)[0].slice(&packs[0].bytes).unwrap(), &bytes[..]);
        }
    }

    #[test]
    fn a_damaged_table_or_pack_is_an_error_and_no_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<bool>()) {
        let (packs, table) = write(&sample());
        let mut json = table.to_canonical_json().unwrap();
        let place = at.index(json.len());
        json[place] = to;
        if cut {
            json.truncate(place);
        }
        if let Ok(read) = SourceTable::parse(&json) {
            let _ = read.check_pack(0, &packs[0].bytes);
        }
        let mut bytes = packs[0].bytes.clone();
        let place = at.index(bytes.len());
        bytes[place] ^= to | 1;
        prop_assert!(table.check_pack(0, &bytes).is_err());
        for file in &table.files {
            let _ = file.slice(&bytes[..place]);
        }
    }
}
