//! Archives made by the real tools give the members that the tools put in.

use crate::support;
use std::io::Cursor;

use crate::support::archives::{assert_same, content, files_below, fill, read_bytes, read_file, shell, within};
use crate::support::have;
use symseal_artifact::{ArchiveKind, Limits, PassedOverReason, Source, archive_kind};

#[test]
fn every_form_of_tar_gives_the_files_that_tar_put_in() {
    if !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    shell("truncate -s 3M holes; printf x | dd of=holes bs=1 seek=1000000 conv=notrunc status=none", &tree);
    shell(
        "for i in $(seq 1 60); do printf y | dd of=many bs=1 seek=$((i*100000)) conv=notrunc status=none; done",
        &tree,
    );
    let files = files_below(&tree);
    for (name, options) in [
        ("gnu.tar", "--format=gnu"),
        ("old-sparse.tar", "--format=oldgnu --sparse"),
        ("gnu-sparse.tar", "--format=gnu --sparse"),
        ("pax.tar", "--format=pax"),
        ("sparse-0.0.tar", "--format=pax --sparse --sparse-version=0.0"),
        ("sparse-0.1.tar", "--format=pax --sparse --sparse-version=0.1"),
        ("sparse-1.0.tar", "--format=pax --sparse --sparse-version=1.0"),
        ("padded.tar", "--format=gnu -b 200"),
    ] {
        shell(&format!("tar -C tree {options} -cf {name} ."), folder.path());
        let (members, report) = read_file(&folder.path().join(name));
        assert_same(name, &members, &within(name, &files));
        let listed = String::from_utf8(shell(&format!("tar -tvf {name} | cut -c1"), folder.path())).expect("text");
        let count = |kind: char| listed.chars().filter(|char| *char == kind).count() as u64;
        assert_eq!(
            (report.files, report.folders, report.symbolic_links, report.special_files),
            (count('-'), count('d'), count('l'), count('p')),
            "{name}"
        );
        assert!(report.passed_over.is_empty() && report.archives == 1, "{name}: {report:?}");
    }
}

#[test]
fn old_tars_have_short_names_and_no_magic_value() {
    if !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell("mkdir -p tree/a; seq 1 100 >tree/a/b; seq 1 1000 >tree/c; ln -s c tree/d", folder.path());
    let files = files_below(&folder.path().join("tree"));
    for format in ["v7", "ustar"] {
        let name = format!("{format}.tar");
        shell(&format!("tar -C tree --format={format} -cf {name} ."), folder.path());
        assert_same(&name, &read_file(&folder.path().join(&name)).0, &within(&name, &files));
    }
}

#[test]
fn a_name_of_the_volume_and_lists_of_folders_are_no_members() {
    if !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell("mkdir -p tree/a; seq 1 100 >tree/a/b; seq 1 1000 >tree/c", folder.path());
    let files = files_below(&folder.path().join("tree"));
    for option in ["--label=V", "--listed-incremental=state"] {
        shell(&format!("tar -C tree {option} -cf all.tar ."), folder.path());
        let (members, report) = read_file(&folder.path().join("all.tar"));
        assert_same(option, &members, &within("all.tar", &files));
        assert_eq!(report.special_files, 0, "{option}");
    }
}

#[test]
fn hard_links_are_counted_and_their_file_is_visited_once() {
    if !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell("mkdir tree; seq 1 9999 >tree/a; ln tree/a tree/b; ln tree/a tree/c; seq 1 5 >tree/d", folder.path());
    shell("tar --sort=name -C tree -cf links.tar .", folder.path());
    let mut expected = files_below(&folder.path().join("tree"));
    expected.remove("b");
    expected.remove("c");
    let (members, report) = read_file(&folder.path().join("links.tar"));
    assert_same("links.tar", &members, &within("links.tar", &expected));
    assert_eq!(report.hard_links, 2);
    let names = report.hard_link_names.iter().map(|link| (link.path.as_str(), link.target.as_str()));
    assert_eq!(names.collect::<Vec<_>>(), [("links.tar!/b", "links.tar!/a"), ("links.tar!/c", "links.tar!/a")]);
    if have("bsdtar") {
        // The other way: links that carry their file's bytes.
        shell("cd tree && bsdtar --format=newc -cf - . | bsdtar --format=pax -cf ../carry.tar @-", folder.path());
        let (members, report) = read_file(&folder.path().join("carry.tar"));
        assert!(report.files + report.hard_links == 4, "{members:?} {report:?}");
    }
}

#[test]
fn each_compression_gives_the_same_members() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    let files = files_below(&tree);
    shell("tar -C tree -cf all.tar .", folder.path());
    for (tool, command, suffix) in [
        ("gzip", "gzip -9 -c all.tar", "gz"),
        (
            "gzip",
            "(head -c 100000 all.tar | gzip -c; tail -c +100001 all.tar | gzip -c; head -c 2000 /dev/zero)",
            "pad.gz",
        ),
        ("xz", "xz -c all.tar", "xz"),
        ("xz", "xz -9e --check=sha256 --block-size=100000 -c all.tar", "blocks.xz"),
        ("xz", "(head -c 100000 all.tar | xz -c; tail -c +100001 all.tar | xz -c)", "two.xz"),
        ("xz", "xz --x86 --lzma2=dict=16MiB -c all.tar", "x86.xz"),
        ("xz", "xz --format=lzma -c all.tar", "lzma"),
        ("xz", "xz --format=lzma -9 -c <all.tar", "stream.lzma"),
        ("zstd", "zstd -19 --check -c all.tar", "zst"),
        ("zstd", "zstd --ultra -22 --long=27 -c all.tar", "long.zst"),
        ("zstd", "(head -c 100000 all.tar | zstd -c; tail -c +100001 all.tar | zstd -c --no-check)", "two.zst"),
        ("bzip2", "bzip2 -c all.tar", "bz2"),
        ("bzip2", "(head -c 100000 all.tar | bzip2 -c; tail -c +100001 all.tar | bzip2 -1 -c)", "two.bz2"),
    ] {
        if have(tool) {
            let name = format!("all.tar.{suffix}");
            shell(&format!("{command} >{name}"), folder.path());
            assert_same(&name, &read_file(&folder.path().join(&name)).0, &within(&name, &files));
        }
    }
}

#[test]
fn a_single_file_that_is_compressed_is_visited_unpacked() {
    let folder = tempfile::tempdir().expect("a folder");
    shell("seq 1 100000 >module.ko", folder.path());
    let expected = content(&std::fs::read(folder.path().join("module.ko")).expect("a file"));
    for (tool, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst"), ("bzip2", "bz2")] {
        if !have(tool) {
            continue;
        }
        let name = format!("module.ko.{suffix}");
        shell(&format!("{tool} -c module.ko >{name}; tar -cf {name}.tar {name}"), folder.path());
        let (members, report) = read_file(&folder.path().join(&name));
        assert_eq!(members.get(&name), Some(&expected), "{members:?}");
        assert_eq!((report.files, report.archives), (1, 0));
        let (members, _) = read_file(&folder.path().join(format!("{name}.tar")));
        assert_eq!(members.get(&format!("{name}.tar!/{name}")), Some(&expected), "{members:?}");
    }
}

#[test]
fn every_form_of_zip_gives_the_files_that_zip_put_in() {
    if !have("zip") || !have("unzip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    shell("rm pipe; cp one '._one'; mkdir __MACOSX; cp one __MACOSX/two", &tree);
    let mut files = files_below(&tree);
    files.remove("._one");
    files.remove("__MACOSX/two");
    for (name, options) in [
        ("deflated.zip", "-r -y"),
        ("stored.zip", "-r -y -0"),
        ("zip64.zip", "-r -y -fz"),
        ("commented.zip", "-r -y -z"),
        ("no-folders.zip", "-r -y -D"),
    ] {
        shell(&format!("cd tree && echo a comment | zip -q {options} ../{name} ."), folder.path());
        let (members, report) = read_file(&folder.path().join(name));
        assert_same(name, &members, &within(name, &files));
        let listed = shell(&format!("unzip -Z1 {name} | grep -vc /$"), folder.path());
        let listed: u64 = String::from_utf8_lossy(&listed).trim().parse().expect("a count");
        assert_eq!(report.files + report.symbolic_links + report.apple_double, listed, "{name}");
        assert_eq!((report.symbolic_links, report.apple_double), (2, 2));
    }
    // Places in it are counted from the beginning of the zip, or of the file.
    let plain = std::fs::read(folder.path().join("deflated.zip")).expect("a file");
    for (name, before) in [("module.jmod", &b"JM\x01\0"[..]), ("program.pyz", b"#!/usr/bin/env python3\n")] {
        let path = folder.path().join(name);
        std::fs::write(&path, [before, &plain].concat()).expect("a file");
        assert_same(name, &read_file(&path).0, &within(name, &files));
        shell(&format!("zip -q -A {name} || true"), folder.path());
        assert_same(name, &read_file(&path).0, &within(name, &files));
    }
    // Sizes behind the data, and zip64 made without knowing better.
    shell("cd tree && zip -q -r -y - . >../piped.zip", folder.path());
    assert_same("piped.zip", &read_file(&folder.path().join("piped.zip")).0, &within("piped.zip", &files));
}

#[test]
fn a_member_packed_in_another_way_is_reported_and_the_others_are_read() {
    if !have("zip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "seq 1 9999 >a; seq 1 8888 >b; seq 1 7777 >c; zip -q -Z bzip2 x.zip a; zip -q x.zip b; zip -q -P x x.zip c",
        folder.path(),
    );
    let (members, report) = read_file(&folder.path().join("x.zip"));
    assert_eq!(members.keys().collect::<Vec<_>>(), ["x.zip!/b"]);
    let reasons: Vec<String> = report.passed_over.iter().map(|one| format!("{}: {}", one.path, one.reason)).collect();
    assert_eq!(
        reasons,
        ["x.zip!/a: not supported: zip method 12 (BZIP2)", "x.zip!/c: not supported: an encrypted member"]
    );
}

#[test]
fn one_archive_within_another_is_looked_into_and_a_third_is_reported() {
    if !have("zip") || !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "seq 1 9999 >a; tar -cf 3.tar a; gzip -k a; zip -q 2.zip 3.tar a.gz a; tar -cJf 1.tar.xz 2.zip a; zip -q 1.zip 2.zip a.gz",
        folder.path(),
    );
    for name in ["1.tar.xz", "1.zip"] {
        let (members, report) = read_file(&folder.path().join(name));
        let other = if name == "1.zip" { "1.zip!/a.gz" } else { "1.tar.xz!/a" };
        let paths: Vec<&str> = members.keys().map(String::as_str).collect();
        assert_eq!(paths, [&format!("{name}!/2.zip!/a"), &format!("{name}!/2.zip!/a.gz"), other]);
        assert_eq!(report.archives, 2);
        let [passed_over] = &report.passed_over[..] else { panic!("{:?}", report.passed_over) };
        assert_eq!(passed_over.path, format!("{name}!/2.zip!/3.tar"));
        assert_eq!(passed_over.reason, PassedOverReason::TooDeep(ArchiveKind::Tar));
    }
    let mut deeper = Limits { depth: 2, ..Limits::default() };
    let bytes = std::fs::read(folder.path().join("1.zip")).expect("a file");
    let read = |limits: &Limits| {
        support::archives::read_source("1.zip", Source::Seekable(&mut Cursor::new(&bytes)), limits).expect("members")
    };
    assert!(read(&deeper).0.contains_key("1.zip!/2.zip!/3.tar!/a"));
    deeper.depth = 0;
    assert_eq!(read(&deeper).0.len(), 1);
}

#[test]
fn what_is_no_archive_is_refused_and_a_static_library_is_reported() {
    let error = read_bytes("x", b"\x7fELF").expect_err("no archive").to_string();
    assert_eq!(error, "x: expected an archive or a compressed file, found bytes 7f 45 4c 46");
    assert!(archive_kind(b"\x7fELF").is_none());
    if have("ar") {
        let folder = tempfile::tempdir().expect("a folder");
        shell("seq 1 9 >a.o; ar rc lib.a a.o; tar -cf lib.tar lib.a a.o", folder.path());
        let (members, report) = read_file(&folder.path().join("lib.tar"));
        assert_eq!(members.len(), 1);
        assert_eq!(report.passed_over[0].reason, PassedOverReason::StaticLibrary);
    }
}

#[test]
fn a_damaged_archive_within_another_is_reported_and_a_damaged_outer_one_is_an_error() {
    if !have("zip") || !have("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "seq 1 99999 >a; gzip -k a; head -c 20000 a.gz >cut.gz; printf '\\037\\213\\010junk' >junk.gz
         tar -cf t.tar a; head -c 30000 t.tar >cut.tar; zip -q z.zip a; head -c 20000 z.zip >cut.zip
         zip -q all.zip cut.gz junk.gz cut.tar cut.zip a; tar -cf all.tar cut.gz junk.gz cut.tar cut.zip a",
        folder.path(),
    );
    for name in ["all.zip", "all.tar"] {
        let (members, report) = read_file(&folder.path().join(name));
        assert!(members.contains_key(&format!("{name}!/a")), "{members:?}");
        let mut damaged: Vec<&str> = report.passed_over.iter().map(|one| one.path.as_str()).collect();
        damaged.sort_unstable();
        let expected = ["cut.gz", "cut.tar", "cut.zip", "junk.gz"].map(|inner| format!("{name}!/{inner}"));
        assert_eq!(damaged, expected, "{:?}", report.passed_over);
    }
    for name in ["cut.gz", "cut.tar", "cut.zip", "junk.gz"] {
        let bytes = std::fs::read(folder.path().join(name)).expect("a file");
        let error = read_bytes(name, &bytes).expect_err("damaged").to_string();
        assert!(error.starts_with(&format!("archive {name}")) && error.contains("expected"), "{error}");
    }
}

#[test]
fn cabinets_give_the_files_that_gcab_put_in() {
    if !have("gcab") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    // More than one block each, of bytes that refer far back.
    shell("seq 1 60000 >a; head -c 70000 /bin/sh >b; seq 7 9 >c; : >empty", &tree);
    let files = files_below(&tree);
    for (name, options) in [("stored.cab", "-n"), ("mszip.cab", "-z")] {
        shell(&format!("cd tree && gcab -c {options} ../{name} a b c empty"), folder.path());
        if have("cabextract") {
            shell(&format!("cabextract -q -t {name}"), folder.path());
        }
        let bytes = std::fs::read(folder.path().join(name)).expect("a cabinet");
        let (members, report) = read_bytes(name, &bytes).expect("a sound cabinet");
        assert_same(name, &members, &within(name, &files));
        assert_eq!((report.files, report.archives), (4, 1));
        // A byte of a block that is another one is found by the checksum, where gcab wrote one.
        let mut damaged = bytes.clone();
        let last = damaged.len() - 9;
        damaged[last] ^= 0x10;
        assert!(read_bytes(name, &damaged).is_err(), "{name}");
    }
}

#[test]
fn a_cabinet_that_is_packed_in_another_way_is_told() {
    // A header, one folder, one file, and a block that nobody reads.
    let mut cabinet = b"MSCF\0\0\0\0\x4f\0\0\0\0\0\0\0\x2c\0\0\0\0\0\0\0\x03\x01\x01\0\x01\0\0\0\0\0\0\0".to_vec();
    cabinet.extend_from_slice(b"\x42\0\0\0\x01\0");
    let packing = cabinet.len();
    cabinet.extend_from_slice(b"\x03\x15\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0a.pdb\0\0\0\0\0\x05\0\x05\0hello");
    // LZX with a window of 16 KiB, which there is not; Quantum.
    for (number, window, name) in [(3, 14, "an unknown method"), (2, 14, "Quantum")] {
        (cabinet[packing], cabinet[packing + 1]) = (number, window);
        let (members, report) = read_bytes("a.pd_", &cabinet).expect("a cabinet");
        let told = report.passed_over[0].reason.to_string();
        assert!(members.is_empty() && told.contains(name) && told.contains("cabextract"), "{told}");
    }
    cabinet[packing] = 0;
    cabinet[packing + 1] = 0;
    let (members, _) = read_bytes("a.pd_", &cabinet).expect("a cabinet");
    assert_eq!(members["a.pd_!/a.pdb"], content(b"hello"));
}
