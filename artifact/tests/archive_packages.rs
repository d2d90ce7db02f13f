//! Debian and RPM packages, wheels and npm packages: what the packages' own tools list is what is visited.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::archives::{
    Members, assert_same, content, files_below, fill, read_bytes, read_file, read_source, shell, within,
};
use crate::support::downloads::{DEBUGPY, LIBC_DEBUG, LINUX_HEADERS, NODE_PTY, ZLIB};
use crate::support::have;
use symseal_artifact::{ArchiveError, Limits, Member, Source, read_archive};

/// A folder with a tree of files for a package.
fn tree() -> (tempfile::TempDir, Members) {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    shell("rm pipe; mkdir -p lib/modules; xz -k -c one >lib/modules/one.ko.xz", &tree);
    let mut files = files_below(&tree);
    // It is visited unpacked.
    files.insert("lib/modules/one.ko.xz".to_owned(), files["one"]);
    (folder, files)
}

#[test]
fn debian_packages_of_every_compression_give_their_files() {
    if !have("dpkg-deb") || !have("ar") {
        return;
    }
    let (folder, files) = tree();
    shell(
        "mkdir tree/DEBIAN; printf 'Package: x\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: x\\n' >tree/DEBIAN/control",
        folder.path(),
    );
    for compression in ["gzip", "xz", "zstd", "none"] {
        let name = format!("{compression}.deb");
        shell(&format!("dpkg-deb --root-owner-group -Z{compression} -b tree {name}"), folder.path());
        let (members, report) = read_file(&folder.path().join(&name));
        assert_same(&name, &members, &within(&name, &files));
        let listed = shell(&format!("dpkg-deb -c {name} | cut -c1"), folder.path());
        let count = |kind: u8| listed.iter().filter(|byte| **byte == kind).count() as u64;
        assert_eq!((report.files, report.folders, report.symbolic_links), (count(b'-'), count(b'd'), count(b'l')));
        assert!(report.passed_over.is_empty() && report.archives == 1, "{report:?}");
    }
    shell(
        "ar x gzip.deb && gunzip data.tar.gz && bzip2 data.tar && ar rc bzip2.ddeb debian-binary control.tar.gz data.tar.bz2",
        folder.path(),
    );
    assert_same("bzip2.ddeb", &read_file(&folder.path().join("bzip2.ddeb")).0, &within("bzip2.ddeb", &files));
    if have("xz") {
        // As dpkg packed before xz was there.
        shell(
            "bunzip2 data.tar.bz2 && xz --format=lzma data.tar && ar rc lzma.deb debian-binary control.tar.gz data.tar.lzma",
            folder.path(),
        );
        assert_same("lzma.deb", &read_file(&folder.path().join("lzma.deb")).0, &within("lzma.deb", &files));
    }
    // A package within an archive is one level; what is compressed in it by itself is unpacked still.
    if have("zip") {
        shell("zip -q release.zip xz.deb zstd.deb", folder.path());
        let (members, report) = read_file(&folder.path().join("release.zip"));
        let mut expected = within("release.zip!/xz.deb", &files);
        expected.extend(within("release.zip!/zstd.deb", &files));
        assert_same("release.zip", &members, &expected);
        assert_eq!(report.archives, 3);
    }
}

/// Builds an RPM package of the tree.
fn build_rpm(folder: &Path, name: &str, payload: &str) {
    let spec = format!(
        "Name: x\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n\
         %define _binary_payload {payload}\n%define __os_install_post %{{nil}}\n%define _build_id_links none\n\
         %description\nx\n%install\nmkdir -p %{{buildroot}}\ncp -a {tree}/. %{{buildroot}}/\n%files\n/*\n%ghost /ghost\n",
        tree = folder.join("tree").display(),
    );
    let spec = spec.replace("cp -a", "touch %{buildroot}/ghost\ncp -a");
    std::fs::write(folder.join("x.spec"), spec).expect("a file");
    shell(
        &format!(
            "rpmbuild -bb --define '_topdir {0}/top' --define '_rpmdir {0}/rpms' --define '_tmppath {0}' x.spec >log 2>&1 || {{ cat log >&2; false; }}; mv rpms/noarch/x-1-1.noarch.rpm {name}",
            folder.display()
        ),
        folder,
    );
}

/// rpm writes sizes of 64 bits and numbers for names then. The package takes more than 4 GiB on the disk, so that this is
/// done for `tests/certify huge` alone, in the folder that it names.
#[test]
fn an_rpm_package_with_a_file_of_more_than_4_gib_gives_its_files() {
    let Some(huge) = std::env::var_os("SYMSEAL_HUGE") else {
        println!("SKIP huge inputs: SYMSEAL_HUGE is not set (tests/certify huge)");
        return;
    };
    if !have("rpmbuild") || !have("rpm") {
        return;
    }
    let folder = tempfile::tempdir_in(huge).expect("a folder");
    let make =
        "mkdir tree; cd tree; truncate -s 4300M huge; printf behind >>huge; printf small >small; printf more >zz";
    shell(make, folder.path());
    build_rpm(folder.path(), "huge.rpm", "w.ufdio");
    let sizes = shell("rpm -qp --qf '[%{LONGFILESIZES} ]' huge.rpm 2>/dev/null", folder.path());
    assert_eq!(String::from_utf8_lossy(&sizes).trim(), "0 4508876806 5 4");
    let mut package = std::fs::File::open(folder.path().join("huge.rpm")).expect("a package");
    let read = read_source("huge.rpm", Source::Seekable(&mut package), &Limits::default());
    let (members, _) = read.expect("a package");
    let expected = files_below(&folder.path().join("tree"));
    assert_eq!(expected.values().map(|content| content.0).max(), Some(4_508_876_806));
    assert_same("huge.rpm", &members, &within("huge.rpm", &expected));
}

#[test]
fn rpm_packages_of_every_compression_give_their_files() {
    if !have("rpmbuild") || !have("rpm") {
        return;
    }
    let (folder, mut files) = tree();
    shell("ln tree/block tree/hard; ln tree/block tree/harder", folder.path());
    for (name, payload) in [
        ("gzip.rpm", "w9.gzdio"),
        ("xz.rpm", "w6.xzdio"),
        ("zstd.rpm", "w19.zstdio"),
        ("bzip2.rpm", "w9.bzdio"),
        ("lzma.rpm", "w5.lzdio"),
        ("none.rpm", "w.ufdio"),
    ] {
        build_rpm(folder.path(), name, payload);
        let bytes = std::fs::read(folder.path().join(name)).expect("a file");
        let (members, report) = read_bytes(name, &bytes).expect("a package");
        let listed = shell(&format!("rpm -qplv {name} 2>/dev/null"), folder.path());
        let listed = String::from_utf8(listed).expect("text");
        let paths = |kind: &str| -> BTreeSet<String> {
            let lines = listed.lines().filter(|line| line.starts_with(kind));
            lines.filter_map(|line| line.split_whitespace().nth(8)).map(|path| format!("{name}!{path}")).collect()
        };
        let mut regular = paths("-");
        regular.remove(&format!("{name}!/ghost"));
        let found: BTreeSet<String> = members.keys().cloned().collect();
        // One of three names of a file has its bytes.
        let others: Vec<&String> = regular.difference(&found).collect();
        assert!(found.is_subset(&regular) && others.len() == 2, "{name}: {others:?}");
        assert_eq!(report.hard_links, 2);
        let names = report.hard_link_names.iter();
        assert!(names.clone().all(|link| found.contains(&link.target) && others.contains(&&link.path)), "{report:?}");
        assert_eq!(names.count(), 2);
        assert_eq!((report.symbolic_links, report.folders), (paths("l").len() as u64, paths("d").len() as u64));
        for other in ["hard", "harder"] {
            files.insert(other.to_owned(), files["block"]);
        }
        for (path, content) in &members {
            let path = path.strip_prefix(&format!("{name}!/")).expect("within");
            assert_eq!(&files[path], content, "{name}: {path}");
        }
        // rpm2cpio and cpio see the same bytes.
        if have("rpm2cpio") && have("cpio") {
            let sum = shell(
                &format!("rpm2cpio {name} | cpio -i --quiet --to-stdout './usr/*' | sha256sum | cut -c1-64"),
                folder.path(),
            );
            let digest = members[&format!("{name}!/usr/lib/debug/.build-id/ab/cdef.debug")].1;
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(String::from_utf8_lossy(&sum).trim(), digest);
        }
    }
}

/// The package with a signature for each of its files, as `rpmsign --signfiles` adds them to the first header: Debian's rpm is built without that.
fn with_signatures(package: &[u8], signatures: &[&str]) -> Vec<u8> {
    const LEAD: usize = 96;
    let word = |at: usize| u32::from_be_bytes(package[at..at + 4].try_into().expect("four bytes")) as usize;
    let (entries, store_bytes) = (word(LEAD + 8), word(LEAD + 12));
    let store_at = LEAD + 16 + 16 * entries;
    let end = store_at + store_bytes;
    let texts: Vec<u8> = signatures.iter().flat_map(|text| text.bytes().chain([0])).collect();
    // RPMSIGTAG_FILESIGNATURES, an array of texts.
    let entry = [274, 8, store_bytes as u32, signatures.len() as u32].map(u32::to_be_bytes).concat();
    let sizes = [entries as u32 + 1, (store_bytes + texts.len()) as u32].map(u32::to_be_bytes).concat();
    let parts: [&[u8]; 6] =
        [&package[..LEAD + 8], &sizes, &package[LEAD + 16..store_at], &entry, &package[store_at..end], &texts];
    let mut signed = parts.concat();
    signed.resize(signed.len().next_multiple_of(8), 0);
    signed.extend(&package[end.next_multiple_of(8)..]);
    signed
}

#[test]
fn signatures_of_a_packages_files_are_those_that_rpm_reads() {
    if !have("rpmbuild") || !have("rpm") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "mkdir -p tree/usr/bin; printf 1 >tree/usr/bin/one; printf 22 >tree/usr/bin/two; printf 3 >tree/zz",
        folder.path(),
    );
    build_rpm(folder.path(), "plain.rpm", "w9.gzdio");
    let plain = std::fs::read(folder.path().join("plain.rpm")).expect("a package");
    let long = format!("0302{}", "c3".repeat(520));
    let names = shell("rpm -qp --qf '[%{FILENAMES}\n]' plain.rpm 2>/dev/null", folder.path());
    let names = String::from_utf8(names).expect("text");
    let given: Vec<&str> = names
        .lines()
        .map(|name| match name {
            "/usr/bin/one" => long.as_str(),
            "/usr/bin/two" => "no hex",
            "/zz" => "0302ab",
            _ => "",
        })
        .collect();
    std::fs::write(folder.path().join("signed.rpm"), with_signatures(&plain, &given)).expect("a file");
    let query = "rpm -qp --qf '[%{FILENAMES} %{FILESIGNATURES}\n]' signed.rpm 2>/dev/null";
    let by_rpm = String::from_utf8(shell(query, folder.path())).expect("text");
    let by_rpm: BTreeMap<&str, &str> = by_rpm.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut found = BTreeMap::new();
    let bytes = std::fs::read(folder.path().join("signed.rpm")).expect("a package");
    let visit = &mut |member: &Member<'_>, _: &mut dyn std::io::Read| {
        found.insert(format!("/{}", member.path), member.signature.unwrap_or_default().to_owned());
        Ok::<(), ArchiveError>(())
    };
    read_archive("signed.rpm", Source::Seekable(&mut std::io::Cursor::new(bytes)), &Limits::default(), visit)
        .expect("a package");
    assert_eq!(found.len(), 3, "{found:?}");
    for (path, signature) in &found {
        let told = by_rpm[path.as_str()];
        // What is no hex is no signature.
        assert_eq!(signature, if told == "no hex" { "" } else { told }, "{path}");
    }
    assert_eq!((found["/usr/bin/one"].len(), found["/zz"].as_str()), (long.len(), "0302ab"));
}

/// A header of these tags: number, type, count, bytes.
fn rpm_header(tags: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let mut index = Vec::new();
    let mut store = Vec::new();
    for (tag, kind, count, bytes) in tags {
        let width: usize = [1, 1, 1, 2, 4, 8, 1, 1, 1][*kind as usize];
        store.resize(store.len().next_multiple_of(width), 0);
        for word in [*tag, *kind, store.len() as u32, *count] {
            index.extend(word.to_be_bytes());
        }
        store.extend(bytes);
    }
    let mut header = vec![0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
    header.extend((tags.len() as u32).to_be_bytes());
    header.extend((store.len() as u32).to_be_bytes());
    header.extend(index);
    header.extend(store);
    header
}

/// A package whose payload's entries are numbers, as rpm writes it for files of 4 GiB and more.
fn stripped_rpm() -> Vec<u8> {
    let mut package = b"\xed\xab\xee\xdb\x03\0".to_vec();
    package.resize(96, 0);
    package.extend(rpm_header(&[]));
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    package.extend(rpm_header(&[
        (
            1030,
            3,
            4,
            [0o040_755_u16, 0o100_644, 0o100_644, 0o120_777].iter().flat_map(|mode| mode.to_be_bytes()).collect(),
        ),
        (1095, 4, 4, words(&[1, 1, 1, 1])),
        (1096, 4, 4, words(&[1, 2, 2, 3])),
        (1116, 4, 4, words(&[0, 1, 1, 1])),
        (1117, 8, 4, b"usr\0a\0b\0c\0".to_vec()),
        (1118, 8, 2, b"/\0/usr/\0".to_vec()),
        (5008, 5, 4, [4096_u64, 5, 5, 1].iter().flat_map(|size| size.to_be_bytes()).collect()),
    ]));
    for (number, bytes) in [(0, &b""[..]), (1, b""), (3, b"a\0\0\0"), (2, b"hello\0\0\0")] {
        package.extend(format!("07070X{number:08x}\0\0").into_bytes());
        package.extend(bytes);
    }
    package.extend(format!("070701{}{:08x}{}", "0".repeat(8 * 11), 11, "0".repeat(8)).into_bytes());
    package.extend(b"TRAILER!!!\0\0\0\0");
    package
}

#[test]
fn a_payload_of_numbers_takes_names_and_sizes_from_the_header() {
    let (members, report) = read_bytes("x.rpm", &stripped_rpm()).expect("a package");
    assert_eq!(members, Members::from([("x.rpm!/usr/b".to_owned(), content(b"hello"))]));
    assert_eq!((report.folders, report.hard_links, report.symbolic_links, report.files), (1, 1, 1, 1));
}

#[test]
fn an_rpm_header_that_claims_too_much_is_refused_before_it_is_read() {
    let package = stripped_rpm();
    for (at, value, expected) in [
        (96 + 8, u32::MAX, "at most 1048560 bytes of headers"),
        (96 + 12, u32::MAX, "at most 268435456 bytes of headers"),
        (96 + 16 + 8, u32::MAX, "at most 1048560 bytes of headers"),
        (96 + 16 + 12, 0x0fff_0000, "found the end"),
        (96, 0, "expected an RPM signature"),
    ] {
        let mut changed = package.clone();
        changed[at..at + 4].copy_from_slice(&value.to_be_bytes());
        let error = read_bytes("x.rpm", &changed).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    // Counts and offsets of entries are taken for what the store has.
    for entry in 0..7 {
        for field in 2..4 {
            let mut changed = package.clone();
            let at = 96 + 16 + 16 + entry * 16 + field * 4;
            changed[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
            let _ = read_bytes("x.rpm", &changed);
        }
    }
}

#[test]
fn real_debian_debug_packages_give_what_dpkg_lists() {
    if !have("apt-get") || !have("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for package in [LIBC_DEBUG, LINUX_HEADERS, ZLIB] {
        let Some(archive) = package.file() else { return };
        std::fs::copy(&archive, folder.path().join(archive.file_name().expect("a name"))).expect("a copy");
    }
    let mut seen = 0;
    for entry in std::fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "deb") {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        shell(
            &format!("rm -rf x; dpkg-deb -x '{name}' x; find x -type f -name '*.gz' -exec gunzip -f '{{}}' ';'"),
            folder.path(),
        );
        let (members, _) = read_file(&path);
        // What is compressed by itself goes by its name in the package.
        let unpacked = |path: &String| path.strip_suffix(".gz").unwrap_or(path).to_owned();
        let members: Members = members.iter().map(|(path, content)| (unpacked(path), *content)).collect();
        assert_same(&name, &members, &within(&name, &files_below(&folder.path().join("x"))));
        println!("{name}: {} files", members.len());
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn wheels_and_npm_packages_give_what_their_tools_unpack() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(wheel) = DEBUGPY.file().filter(|_| have("unzip")) {
        std::fs::copy(wheel, folder.path().join("x.whl")).expect("a copy");
        shell("unzip -q x.whl -d wheel", folder.path());
        let (members, report) = read_file(&folder.path().join("x.whl"));
        assert_same("x.whl", &members, &within("x.whl", &files_below(&folder.path().join("wheel"))));
        println!("the wheel has {} files", report.files);
    }
    if let Some(package) = NODE_PTY.file().filter(|_| have("tar")) {
        std::fs::copy(package, folder.path().join("x.tgz")).expect("a copy");
        shell("mkdir npm; tar -xzf x.tgz -C npm", folder.path());
        let (members, report) = read_file(&folder.path().join("x.tgz"));
        assert_same("x.tgz", &members, &within("x.tgz", &files_below(&folder.path().join("npm"))));
        println!("the npm package has {} files", report.files);
    }
}
