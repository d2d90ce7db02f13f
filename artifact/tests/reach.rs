//! One member of a large archive, reached without reading what lies before it.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use crate::support::archives::{content, shell};
use crate::support::{Chance, have};
use symseal_artifact::{ArchiveError, Limits, Reach, Source, read_archive};

/// A file that counts what is read of it.
struct Counting {
    bytes: Cursor<Vec<u8>>,
    read: u64,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

impl Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// Each file's place and bytes, as a reading of the whole archive has them.
fn places(archive: &[u8]) -> BTreeMap<String, (Option<Reach>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut file = Cursor::new(archive);
    read_archive::<ArchiveError>("a", Source::Seekable(&mut file), &Limits::default(), &mut |member, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).expect("bytes");
        found.insert(member.full_path(), (member.reach, bytes));
        Ok(())
    })
    .expect("a sound archive");
    found
}

/// Reads every member by its place; of the last one no more than the `part`th part of the file is read, where one is given.
#[track_caller]
fn check(what: &str, archive: Vec<u8>, part: Option<u64>) {
    let found = places(&archive);
    let length = archive.len() as u64;
    let mut file = Counting { bytes: Cursor::new(archive), read: 0 };
    let mut most = 0;
    for (path, (reach, expected)) in &found {
        let reach = reach.unwrap_or_else(|| panic!("{what}: {path} has no place"));
        assert_eq!(reach.to_string().parse(), Ok(reach));
        file.read = 0;
        let mut bytes = Vec::new();
        reach
            .read(&mut file, |content| content.read_to_end(&mut bytes))
            .unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
        assert_eq!(content(&bytes), content(expected), "{what}: {path}");
        if path.ends_with("z-last") {
            most = file.read;
        }
    }
    println!("{what}: {length} bytes, {most} read for the last of {} members", found.len());
    let allowed = part.map_or(u64::MAX, |part| length / part);
    assert!(found.len() >= 5 && most > 0 && most <= allowed, "{what}: {most} of {length} bytes");
}

/// Files that cannot be packed much, the last one small.
fn fill(folder: &Path) {
    let mut chance = Chance::new(3);
    for number in 0..6 {
        let bytes: Vec<u8> = (0..700_000 + number * 1001).map(|_| chance.next() as u8 & 0x3f).collect();
        std::fs::write(folder.join(format!("file{number}")), bytes).expect("a file");
    }
    std::fs::write(folder.join("z-last"), "the last one, at the end of it all\n".repeat(500)).expect("a file");
}

fn made(folder: &Path, name: &str, command: &str) -> Vec<u8> {
    shell(command, folder);
    std::fs::read(folder.join(name)).expect("an archive")
}

#[test]
fn the_last_member_is_reached_by_reading_a_small_part_of_the_archive() {
    if !have("tar") || !have("xz") || !have("zstd") || !have("zip") || !have("ar") || !have("split") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir(folder.join("in")).expect("a folder");
    fill(&folder.join("in"));
    shell(
        "tar --sort=name -C in -cf plain.tar .; printf '2.0\\n' >debian-binary; tar -cf control.tar debian-binary",
        folder,
    );
    let tar = std::fs::read(folder.join("plain.tar")).expect("a tar");
    check("tar", tar, Some(20));
    check("xz in blocks", made(folder, "b.xz", "xz -0 --block-size=256KiB -c plain.tar >b.xz"), Some(8));
    // Two streams, with padding between.
    let streams = "head -c 2000000 plain.tar | xz -0 --block-size=256KiB >s.xz; head -c 8 /dev/zero >>s.xz; tail -c +2000001 plain.tar | xz -0 --block-size=256KiB >>s.xz";
    check("xz in streams", made(folder, "s.xz", streams), Some(8));
    // Only of a file zstd knows the size before.
    let frames = "split -b 256K --filter='cat >piece; zstd -q -1 -c piece' plain.tar >f.zst";
    check("zstd in frames", made(folder, "f.zst", frames), Some(8));
    check("zip", made(folder, "a.zip", "cd in && zip -q -r -1 ../a.zip ."), Some(20));
    check("stored zip", made(folder, "b.zip", "cd in && zip -q -r -0 ../b.zip ."), Some(20));
    for (packer, suffix, part) in [
        ("xz -0 --block-size=256KiB -c", ".xz", 8),
        ("cat", "", 20),
        ("split -b 256K --filter='cat >piece; zstd -q -1 -c piece'", ".zst", 8),
    ] {
        let name = format!("data.tar{suffix}");
        let command = format!("rm -f a.deb; {packer} plain.tar >{name}; ar rc a.deb debian-binary control.tar {name}");
        check(&format!("deb with {name}"), made(folder, "a.deb", &command), Some(part));
    }
    check("bgzf", bgzf(folder), Some(8));
}

/// The tar in blocks of gzip with the field that says their size. (SAM/BAM specification, 4.1)
fn bgzf(folder: &Path) -> Vec<u8> {
    let tar = std::fs::read(folder.join("plain.tar")).expect("a tar");
    let mut file = Vec::new();
    for block in tar.chunks(60_000).chain([&[][..]]) {
        std::fs::write(folder.join("block"), block).expect("a file");
        let gzip = made(folder, "block.gz", "gzip -n -1 -c block >block.gz");
        let size = (gzip.len() + 8 - 1) as u16;
        file.extend(
            [&gzip[..3], &[4], &gzip[4..10], &[6, 0, b'B', b'C', 2, 0], &size.to_le_bytes(), &gzip[10..]].concat(),
        );
    }
    file
}

#[test]
fn one_stream_is_read_from_its_start_and_what_lies_deeper_has_no_place() {
    if !have("tar") || !have("xz") || !have("gzip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir(folder.join("in")).expect("a folder");
    fill(&folder.join("in"));
    for packer in ["xz -0", "gzip -1", "zstd -q -1", "bzip2 -1"] {
        if have(packer.split(' ').next().unwrap_or_default()) {
            check(packer, made(folder, "one", &format!("tar --sort=name -C in -c . | {packer} >one")), None);
        }
    }
    let nested = "cd in && tar -cf inner.tar file0 && gzip -k file1 && truncate -s 9M holes && echo x >>holes && tar -S -cf ../outer.tar inner.tar file1.gz holes file2";
    let found = places(&made(folder, "outer.tar", nested));
    let has_place: Vec<&str> =
        found.iter().filter(|(_, (reach, _))| reach.is_some()).map(|(path, _)| path.as_str()).collect();
    assert_eq!((has_place, found.len()), (vec!["a!/file2"], 4));
}

#[test]
fn wrong_places_and_damaged_archives_end_in_an_error_or_other_bytes() {
    if !have("tar") || !have("xz") || !have("zstd") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    shell("seq 1 40000 >a; seq 5 30000 >z-last; tar -cf t.tar a z-last", folder);
    let mut chance = Chance::new(9);
    for packer in [
        "xz -0 --block-size=64KiB -c t.tar",
        "split -b 64K --filter='cat >piece; zstd -q -1 -c piece' t.tar",
        "cat t.tar",
    ] {
        let archive = made(folder, "one", &format!("{packer} >one"));
        let (Some(reach), _) = places(&archive)["a!/z-last"] else { panic!("{packer}: no place") };
        for _ in 0..300 {
            let mut damaged = archive.clone();
            // The tables of places stand at the end.
            let from = if chance.below(2) == 0 { 0 } else { damaged.len().saturating_sub(200) };
            for _ in 0..3 {
                let at = from + chance.below((damaged.len() - from) as u64) as usize;
                damaged[at] = chance.next() as u8;
            }
            damaged.truncate(damaged.len() - chance.below(3) as usize);
            let _ = reach.read(&mut Cursor::new(damaged), |content| io::copy(content, &mut io::sink()));
        }
        for text in [
            "xz 0 99999999 5 7",
            "zstd 7 18446744073709551615 0 1",
            "stored 999999999 1 1 1",
            "gzip 0 0 0 1",
            "deflate 3 18446744073709551615 1 9",
        ] {
            let wrong: Reach = text.parse().expect("a place");
            let _ = wrong.read(&mut Cursor::new(&archive), |content| io::copy(content, &mut io::sink()));
        }
    }
}
