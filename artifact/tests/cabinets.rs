//! Cabinets that are packed with LZX, beside cabextract.

use std::io::Cursor;

use crate::lzx::{Kind, Packer};
use crate::support::archives::{content, read_bytes, shell};
use crate::support::{Chance, have};
use symseal_artifact::{ArchiveError, Limits, Source, read_archive};

/// Code, text, noise, and all of it again from as far away as the window goes.
fn data(size: usize) -> Vec<u8> {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a program");
    let code = own.windows(2).position(|pair| pair[0] == 0xe8).unwrap_or_default();
    let text: String = (0..20_000).map(|number| format!("{number}, ")).collect();
    let mut chance = Chance::new(7);
    let noise: Vec<u8> = (0..50_001).map(|_| chance.next() as u8).collect();
    let part = [&own[code..own.len().min(code + size / 4)], text.as_bytes(), &noise, &[0; 70_000]].concat();
    part.iter().copied().cycle().take(size).collect()
}

fn read(cabinet: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    let mut found = Vec::new();
    read_archive::<ArchiveError>(
        "a.cab",
        Source::Seekable(&mut Cursor::new(cabinet)),
        &Limits::default(),
        &mut |_, content| {
            // A reader that fails is told of by the archive.
            let _ = content.read_to_end(&mut found);
            Ok(())
        },
    )?;
    Ok(found)
}

/// The window's bits, the blocks, the size of programs for calls, and bytes in all.
type Case<'k> = (u8, &'k [(Kind, usize)], u32, usize);

#[test]
fn files_that_are_packed_with_lzx_come_out_as_they_were_and_as_cabextract_has_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = [
        (Kind::Verbatim, 40_000),
        (Kind::Aligned, 100_001),
        (Kind::Stored, 33_333),
        (Kind::Verbatim, 32_768),
        (Kind::Stored, 65_536),
    ];
    let cases: [Case<'_>; 8] = [
        (15, &kinds, 0, 300_000),
        (16, &kinds, 1 << 20, 600_000),
        (18, &[(Kind::Verbatim, 1 << 20)], 12_000_000, 1_500_000),
        (21, &[(Kind::Aligned, 3 << 20)], 0, 5_000_001),
        (21, &kinds, 5_000_000, 5_000_000),
        (17, &[(Kind::Stored, 32_767)], 300_000, 200_000),
        (15, &[(Kind::Verbatim, 7)], 0, 400),
        (19, &[(Kind::Aligned, 32_768)], 0, 98_304),
    ];
    for (window, blocks, calls, size) in cases {
        let bytes = data(size);
        let cabinet = Packer { window, blocks, calls }.cabinet("a.bin", &bytes);
        let what = format!("window {window}, {} kinds of blocks, calls within {calls}, {size} bytes", blocks.len());
        if have("cabextract") {
            std::fs::write(folder.path().join("a.cab"), &cabinet).expect("a file");
            // What is held against ours must be right itself.
            assert!(shell("cabextract -q -p a.cab", folder.path()) == bytes, "{what}: cabextract");
        }
        let (members, report) = read_bytes("a.cab", &cabinet).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(members["a.cab!/a.bin"], content(&bytes), "{what}");
        assert!(report.passed_over.is_empty());
    }
}

#[test]
fn damaged_lzx_is_told_or_gives_other_bytes_and_nothing_worse() {
    let blocks = [(Kind::Verbatim, 20_000), (Kind::Aligned, 30_001), (Kind::Stored, 9_999)];
    let bytes = data(150_000);
    let cabinet = Packer { window: 16, blocks: &blocks, calls: 100_000 }.cabinet("a.bin", &bytes);
    let mut chance = Chance::new(5);
    let mut told = 0;
    for _ in 0..400 {
        let mut damaged = cabinet.clone();
        for _ in 0..1 + chance.below(4) {
            let at = 60 + chance.below(damaged.len() as u64 - 60) as usize;
            damaged[at] = chance.next() as u8;
        }
        match read(&damaged) {
            Ok(found) => assert!(found.len() <= bytes.len()),
            Err(error) => {
                assert!(error.to_string().contains("expected"), "{error}");
                told += 1;
            }
        }
    }
    assert!(told > 100, "{told}");
}
