//! Damaged archives: an error that says what was expected, or fewer members; never a panic, never without end.

use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::archives::{read_source, shell};
use crate::support::{Chance, have};
use symseal_artifact::{ArchiveError, Limits, Source};

/// What one archive may take. A hundred times what is needed, as the machine may be busy.
const LONGEST: Duration = Duration::from_secs(20);

/// Small archives of every kind that a tool is here for.
fn inputs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    shell(
        "mkdir -p d/e control; seq 1 400 >d/a; seq 1 50 >d/e/b; ln d/a d/hard; ln -s a d/link; gzip -k d/e/b
         truncate -s 100K d/holes; printf x >>d/holes; echo 2.0 >debian-binary; touch control/control
         printf '{\"imageLayoutVersion\":\"1.0.0\"}' >oci-layout",
        folder,
    );
    let mut inputs = Vec::new();
    for (tool, name, command) in [
        ("tar", "gnu.tar", "tar --sparse --format=gnu -cf gnu.tar d"),
        ("tar", "pax.tar", "tar --sparse --format=pax -cf pax.tar d"),
        ("gzip", "gz.tgz", "tar -czf gz.tgz d"),
        ("xz", "xz.txz", "tar -cJf xz.txz d"),
        ("xz", "lzma.tlz", "tar -c d | xz --format=lzma -c >lzma.tlz"),
        ("zstd", "zstd.tzst", "tar -c d | zstd -c >zstd.tzst"),
        ("bzip2", "bz2.tbz", "tar -cjf bz2.tbz d"),
        ("zip", "zip.zip", "zip -q -r zip.zip d"),
        ("zip", "zip64.zip", "zip -q -r -fz zip64.zip d gz.tgz"),
        (
            "ar",
            "deb.deb",
            "tar -C control -czf control.tar.gz . && tar -C d -cJf data.tar.xz . && ar rc deb.deb debian-binary control.tar.gz data.tar.xz",
        ),
        (
            "umoci",
            "oci.tar",
            "umoci init --layout oci && umoci new --image oci:x && umoci insert --rootless --image oci:x d /d && umoci insert --rootless --image oci:x --whiteout /d/e && tar -C oci -cf oci.tar oci-layout index.json blobs",
        ),
        ("gcab", "cab.cab", "gcab -c -z cab.cab d/a d/e/b"),
        ("gcab", "stored.cab", "gcab -c -n stored.cab d/a d/e/b"),
        ("rpmbuild", "rpm.rpm", RPM),
    ] {
        if have(tool) {
            shell(command, folder);
            inputs.push((name.to_owned(), std::fs::read(folder.join(name)).expect("a file")));
        }
    }
    inputs
}

const RPM: &str = r"
printf 'Name: x\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%%define _binary_payload w9.gzdio\n%%description\nx\n%%install\nmkdir -p %%{buildroot}\ncp -a '$PWD'/d %%{buildroot}/d\n%%files\n/d\n' >x.spec
rpmbuild -bb --define '_build_id_links none' --define '__os_install_post %{nil}' --define '_topdir '$PWD'/top' --define '_rpmdir '$PWD'/rpms' --define '_tmppath '$PWD x.spec >log 2>&1
mv rpms/noarch/x-1-1.noarch.rpm rpm.rpm";

fn exercise(name: &str, bytes: &[u8]) -> Result<usize, ArchiveError> {
    let start = Instant::now();
    // No more than the damaged sizes of a small archive can do within the time.
    let limits = Limits { total_bytes: 1 << 30, ..Limits::default() };
    let stream = read_source(name, Source::Stream(&mut &bytes[..]), &limits);
    let file = read_source(name, Source::Seekable(&mut Cursor::new(bytes)), &limits);
    assert!(start.elapsed() < LONGEST, "{name} took {:?}", start.elapsed());
    if let Err(error) = stream {
        assert!(error.to_string().contains("expected"), "{error}");
    }
    file.map(|(members, _)| members.len())
}

#[test]
fn an_archive_cut_anywhere_gives_fewer_members_or_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chance = Chance::new(11);
    for (name, bytes) in inputs(folder.path()) {
        let whole = exercise(&name, &bytes).expect("the whole archive is fine");
        assert!(whole >= 2, "{name} has {whole} members");
        for _ in 0..60 {
            let length = chance.below(bytes.len() as u64) as usize;
            match exercise(&name, &bytes[..length]) {
                Ok(members) => assert!(members <= whole, "{name} cut to {length} bytes"),
                Err(error) => assert!(error.to_string().contains("expected"), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chance = Chance::new(13);
    let (mut refused, mut read) = (0, 0);
    for (name, bytes) in inputs(folder.path()) {
        for round in 0..400 {
            let mut changed = bytes.clone();
            for _ in 0..1 + chance.below(1 << (round % 5)) {
                let at = chance.below(bytes.len() as u64) as usize;
                changed[at] = match chance.below(5) {
                    0 => 0,
                    1 => 0xff,
                    2 => b'7',
                    3 => changed[at] ^ (1 << chance.below(8)),
                    _ => chance.next() as u8,
                };
            }
            match exercise(&name, &changed) {
                Ok(_) => read += 1,
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("expected"), "{name}: {error}");
                }
            }
        }
    }
    println!("{read} changed archives were read, {refused} refused");
}
