//! Any bytes as an archive, read as a stream and at any offset: never a panic, never more than the limits. What has a place in it is read from there too.

use std::io::{self, Cursor, Read as _};

use symseal_artifact::{ArchiveError, Limits, Source, archive_kind, read_archive};

pub(super) fn run(bytes: &[u8]) {
    if archive_kind(bytes).is_none() {
        return;
    }
    let limits = Limits {
        members: 2000,
        total_bytes: 32 << 20,
        member_bytes: 16 << 20,
        header_bytes: 8 << 20,
        buffer_bytes: 8 << 20,
        ..Limits::default()
    };
    let mut places = Vec::new();
    let mut read = |source: Source<'_>| {
        let mut files = 0;
        places.clear();
        let report = read_archive::<ArchiveError>("x", source, &limits, &mut |member, content| {
            files += 1;
            assert!(!member.path.chars().any(|char| char.is_control() && char.is_ascii()));
            places.extend(member.reach);
            let mut buffer = [0; 4096];
            while content.read(&mut buffer).is_ok_and(|read| read > 0) {}
            Ok(())
        });
        if let Ok(report) = report {
            assert_eq!(report.files, files);
            assert!(report.unpacked_bytes <= limits.total_bytes);
        }
    };
    read(Source::Stream(&mut &bytes[..]));
    read(Source::Seekable(&mut Cursor::new(bytes)));
    read(Source::Behind(&mut Cursor::new(bytes)));
    for place in places.into_iter().rev().take(4) {
        assert_eq!(place.to_string().parse(), Ok(place));
        let _ = place.read(&mut Cursor::new(bytes), |content| io::copy(&mut content.take(1 << 20), &mut io::sink()));
    }
}
