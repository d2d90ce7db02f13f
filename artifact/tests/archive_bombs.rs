//! Archives that would unpack to more than there is: a clear error, and bounded memory.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod made_archives;
mod support;

use std::io::Cursor;
use std::process::{Command, Stdio};

use made_archives::zip_of;
use support::archives::{read_bytes, read_file, read_source, shell};
use support::have;
use symseal_artifact::{ArchiveError, ArchiveKind, LimitKind, Limits, PassedOverReason, Source};

/// What this whole test may have in memory at any time.
const MOST_MEMORY_KIB: u64 = 512 << 10;

/// Checks the most memory that this process ever had.
fn memory_stays_bounded() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak.and_then(|text| text.split_whitespace().next()?.parse().ok()).expect("a figure");
    println!("peak memory so far: {} MiB", peak >> 10);
    assert!(peak < MOST_MEMORY_KIB, "{peak} KiB");
}

/// The limit that ended a reading: which, and the member and figures of the error.
fn limit(result: Result<impl Sized, ArchiveError>) -> (LimitKind, String, u64, u64) {
    match result {
        Err(ArchiveError::Limit { limit, member, allowed, found, .. }) => (limit, member, allowed, found),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn ten_gigabytes_of_zeros_end_by_their_ratio_in_every_compression() {
    let zeros = "head -c 10G /dev/zero |";
    for (tool, command) in [
        ("gzip", format!("{zeros} gzip -9 -c")),
        ("xz", format!("{zeros} xz -1 -c")),
        ("zstd", format!("{zeros} zstd -3 -c")),
        // It gives its first bytes after gigabytes: 160 times the same 64 MiB are as many.
        ("bzip2", "head -c 64M /dev/zero | bzip2 -9 -c >z; for i in $(seq 160); do cat z; done".to_owned()),
    ] {
        if !have(tool) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new("bash");
        let child =
            child.args(["-c", &command]).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().expect("bash starts");
        let mut output = child.stdout.take().expect("a pipe");
        let result = read_source("zeros", Source::Stream(&mut output), &Limits::default());
        drop(output);
        child.wait().expect("an end");
        let (limit, member, allowed, found) = limit(result);
        assert_eq!((limit, member.as_str(), allowed), (LimitKind::Ratio, "zeros", 1000), "{tool}");
        println!("{tool}: {found} bytes for each");
        assert!(found > 1000);
    }
    memory_stays_bounded();
}

#[test]
fn zips_within_zips_within_a_zip_are_reported_and_end_by_their_ratio_where_they_are_read() {
    if !have("zip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "head -c 128M /dev/zero | zip -q -9 zero.zip -
         for i in $(seq 1 16); do cp zero.zip z$i.zip; done; zip -q -0 mid.zip z[0-9]*.zip
         for i in $(seq 1 16); do cp mid.zip m$i.zip; done; zip -q -9 42.zip m[0-9]*.zip",
        folder.path(),
    );
    let (members, report) = read_file(&folder.path().join("42.zip"));
    assert!(members.is_empty() && report.archives == 17);
    assert_eq!(report.passed_over.len(), 16 * 16);
    assert!(report.passed_over.iter().all(|one| one.reason == PassedOverReason::TooDeep(ArchiveKind::Zip)));
    let bytes = std::fs::read(folder.path().join("42.zip")).expect("a file");
    let deep = Limits { depth: 9, ..Limits::default() };
    let error = read_source("42.zip", Source::Seekable(&mut Cursor::new(&bytes)), &deep).expect_err("a bomb");
    let text = error.to_string();
    assert!(text.starts_with("archive 42.zip!/m") && text.contains("at most 1000 unpacked bytes for each"), "{text}");
    memory_stays_bounded();
}

/// A tar header with a size in GNU's base 256.
fn header(path: &str, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(path).expect("a path");
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn a_tar_whose_header_claims_more_than_all_memory_is_refused_at_that_header() {
    for size in [1 << 63, u64::MAX, 17 << 30] {
        let error = read_bytes("x.tar", &header("big", size)).expect_err("a limit");
        assert_eq!(
            error.to_string(),
            format!(
                "archive x.tar, member big: expected at most 17179869184 bytes in one member, found {size} or more"
            )
        );
    }
    let error = read_bytes("x.tar", &header("cut", 1 << 30)).expect_err("cut short").to_string();
    assert!(error.starts_with("archive x.tar, member cut: expected more of a member, found the end"), "{error}");
}

#[test]
fn a_zip_with_members_upon_one_another_is_refused() {
    let (members, _) = read_bytes("x.zip", &zip_of(&[("a", 0)], b"content")).expect("a sound zip");
    assert_eq!(members.len(), 1);
    let error = read_bytes("x.zip", &zip_of(&[("a", 0), ("b", 0)], b"content")).expect_err("overlaps").to_string();
    assert_eq!(error, "archive x.zip: expected members that do not overlap, found members at 0x0..0x26 and from 0x0");
}

#[test]
fn a_window_of_gigabytes_is_refused_before_there_is_memory_for_it() {
    // A zstd frame with a window of 2^31 bytes and one raw block.
    let frame = b"\x28\xb5\x2f\xfd\x00\xa8\x0b\x00\x00a";
    let (kind, _, allowed, found) = limit(read_bytes("x.zst", frame));
    assert_eq!((kind, allowed), (LimitKind::WindowBytes, 1 << 27));
    assert!(found > allowed);
    if have("xz") {
        let folder = tempfile::tempdir().expect("a folder");
        shell("seq 1 9 | xz -c >small.xz", folder.path());
        let mut xz = std::fs::read(folder.path().join("small.xz")).expect("a file");
        // The block's header follows the stream's 12 bytes: size, flags, filter, size of its property, the property.
        assert_eq!(&xz[14..16], [0x21, 1]);
        let end = 12 + (usize::from(xz[12]) + 1) * 4;
        xz[16] = 39;
        let mut crc = flate2::Crc::new();
        crc.update(&xz[12..end - 4]);
        xz[end - 4..end].copy_from_slice(&crc.sum().to_le_bytes());
        let (kind, _, allowed, found) = limit(read_bytes("x.xz", &xz));
        assert_eq!((kind, allowed), (LimitKind::WindowBytes, 1 << 27));
        assert!(found > allowed);
    }
    memory_stays_bounded();
}

#[test]
fn bombs_that_are_passed_over_hide_nothing_behind_them() {
    if !have("zip") || !have("tar") || !have("gzip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "echo 1 >a; echo 3 >c; truncate -s 200M b; gzip -k b; mkdir in; cp b in/b; (cd in; zip -q in.zip b)
         zip -q one.zip a b c; tar -cf two.tar a b.gz c; zip -q -0 three.zip a in/in.zip c; tar -czf four.tgz a b c
         for i in $(seq 20); do cp b.gz b$i.gz; done; tar -cf many.tar a b*.gz c",
        folder.path(),
    );
    let read = |name: &str, bombs: u32| {
        let bytes = std::fs::read(folder.path().join(name)).expect("a file");
        let limits = Limits { bombs, ..Limits::default() };
        let mut whole = Vec::new();
        let read = symseal_artifact::read_archive::<ArchiveError>(
            name,
            Source::Seekable(&mut Cursor::new(bytes)),
            &limits,
            &mut |member, content| {
                if std::io::copy(content, &mut std::io::sink()).is_ok() {
                    whole.push(member.path.to_owned());
                }
                Ok(())
            },
        );
        (read, whole)
    };
    for (name, bomb) in [("one.zip", "b"), ("two.tar", "b.gz"), ("three.zip", "in/in.zip!/b")] {
        let (report, whole) = read(name, 1);
        let report = report.expect(name);
        assert_eq!((whole, report.bombs), (vec!["a".to_owned(), "c".to_owned()], 1), "{name}");
        let [passed_over] = &report.passed_over[..] else { panic!("{report:?}") };
        assert_eq!(passed_over.path, format!("{name}!/{bomb}"));
        assert!(matches!(passed_over.reason, PassedOverReason::Bomb { allowed: 1000, found: 1001.. }));
        let (refused, whole) = read(name, 0);
        assert_eq!((limit(refused).0, whole), (LimitKind::Ratio, vec!["a".to_owned()]), "{name}");
    }
    // One stream: what is behind the bomb is reached through it alone.
    let (refused, whole) = read("four.tgz", 1);
    assert_eq!((limit(refused).0, whole), (LimitKind::Ratio, vec!["a".to_owned()]));
    // Each costs work, so not any number of them.
    let (refused, whole) = read("many.tar", 16);
    assert_eq!((limit(refused).0, whole), (LimitKind::Ratio, vec!["a".to_owned()]));
    assert_eq!(read("many.tar", 21).0.expect("a report").bombs, 21);
    memory_stays_bounded();
}

#[test]
fn every_limit_ends_the_reading_with_its_figure() {
    if !have("tar") || !have("zip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell(
        "mkdir m; (cd m; touch $(seq 1 300)); tar -cf many.tar m; zip -q -r many.zip m; head -c 3M /dev/urandom >r; gzip -k r
         tar -czf r.tgz r; truncate -s 5G sparse; tar --sparse -cf sparse.tar sparse; zip -q r.zip r",
        folder.path(),
    );
    let read = |name: &str, limits: &Limits| {
        let bytes = std::fs::read(folder.path().join(name)).expect("a file");
        limit(read_source(name, Source::Seekable(&mut Cursor::new(bytes)), limits))
    };
    let limits = Limits { members: 100, ..Limits::default() };
    for name in ["many.tar", "many.zip"] {
        let (kind, _, allowed, found) = read(name, &limits);
        assert_eq!((kind, allowed, found), (LimitKind::Members, 100, 101), "{name}");
    }
    let limits = Limits { member_bytes: 1 << 20, ..Limits::default() };
    for name in ["r.gz", "r.tgz", "r.zip", "sparse.tar"] {
        let (kind, _, allowed, found) = read(name, &limits);
        assert!(kind == LimitKind::MemberBytes && allowed == 1 << 20 && found > allowed, "{name}");
    }
    let limits = Limits { total_bytes: 1 << 20, ..Limits::default() };
    for name in ["r.gz", "r.tgz", "r.zip", "sparse.tar"] {
        let (kind, _, allowed, found) = read(name, &limits);
        assert!(kind == LimitKind::TotalBytes && allowed == 1 << 20 && found > allowed, "{name}");
    }
    let long = "n".repeat(5000);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut tar::Header::new_gnu(), &long, std::io::empty()).expect("a file");
    let tar = tar.into_inner().expect("a tar");
    let (kind, _, allowed, found) = limit(read_bytes("long.tar", &tar));
    assert_eq!((kind, allowed, found), (LimitKind::PathBytes, 4097, 5001));
    memory_stays_bounded();
}

#[test]
fn holes_of_sparse_files_count_against_the_bytes_of_the_archive_however_it_is_packed() {
    if !have("tar") || !have("xz") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Three such files have 9 GB of holes in a few hundred bytes; that of 40 MiB is below what a small archive may give.
    shell(
        "for i in 1 2 3; do truncate -s 3G s$i; printf '\\177ELF' | dd of=s$i conv=notrunc status=none; done
         truncate -s 40M small; echo x >>small; tar --sparse -cf small.tar small
         for form in gnu '--format=pax'; do
             f=${form#--format=}; tar --sparse --format=$f -cf $f.tar s1 s2 s3; gzip -k $f.tar; xz -k $f.tar
             tar -czf outer-$f.tgz $f.tar.gz
         done",
        folder.path(),
    );
    let path = |name: &str| folder.path().join(name);
    let mut names = Vec::new();
    for form in ["gnu", "pax"] {
        names.extend(["tar", "tar.gz", "tar.xz"].map(|suffix| format!("{form}.{suffix}")));
        names.push(format!("outer-{form}.tgz"));
    }
    for name in names {
        let bytes = std::fs::read(path(&name)).expect("a file");
        let mut read = 0;
        let mut source = Cursor::new(&bytes);
        let result = symseal_artifact::read_archive::<ArchiveError>(
            &name,
            Source::Seekable(&mut source),
            &Limits::default(),
            &mut |_, content| {
                read += std::io::copy(content, &mut std::io::sink()).unwrap_or_default();
                Ok(())
            },
        );
        let (kind, _, allowed, found) = limit(result);
        assert!(kind == LimitKind::Ratio && allowed == 1000 && found > allowed, "{name}: {found}");
        // No layer of compression multiplies it: what is read of the small file is no more than of a plain one of its size.
        assert!(bytes.len() < 64 << 10 && read < 128 << 20, "{name}: {read} bytes out of {}", bytes.len());
    }
    let (members, _) = read_file(&path("small.tar"));
    assert_eq!(members["small.tar!/small"], support::archives::content(&std::fs::read(path("small")).expect("a file")));
    memory_stays_bounded();
}

#[test]
fn headers_that_say_nothing_of_a_file_end_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let endless = folder.path().join("endless.tar");
    // A pax header of another size, again and again, with no file behind.
    let mut header = tar::Header::new_ustar();
    header.set_path("pax").expect("a path");
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(0);
    header.set_cksum();
    std::fs::write(&endless, header.as_bytes().repeat(2000)).expect("a file");
    let limits = Limits { members: 1000, ..Limits::default() };
    let bytes = std::fs::read(&endless).expect("a file");
    let (kind, ..) = limit(read_source("x", Source::Stream(&mut &bytes[..]), &limits));
    assert_eq!(kind, LimitKind::Members);
    header.set_size(8 << 30);
    header.set_cksum();
    let (kind, _, allowed, _) = limit(read_bytes("x", header.as_bytes()));
    assert_eq!((kind, allowed), (LimitKind::HeaderBytes, 1 << 20));
}

#[test]
fn a_file_that_was_compressed_again_and_again_is_unpacked_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    shell("seq 1 9 >a; gzip -c a | gzip -c >a.2; gzip -c a.2 >a.3", folder.path());
    let read = |name: &str| read_file(&folder.path().join(name)).0;
    let plain = support::archives::content(&std::fs::read(folder.path().join("a")).expect("a file"));
    assert_eq!(read("a.2")["a.2"], plain);
    assert_ne!(read("a.3")["a.3"], plain);
}
