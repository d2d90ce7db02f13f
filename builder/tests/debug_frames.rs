//! `.debug_frame` in each form in which toolchains compress it. The oracle is the same program before it was compressed.

use std::path::PathBuf;

use crate::inputs::{build, compile, output, run, tool};
use symseal_bundle::{Bundle, FileRole, LayoutDir};
use symseal_unwind::{RuleSource, Table};

/// Functions without `.eh_frame`, and enough of them that compressing is worth it.
const SOURCE: &str = r#"
#define FUNCTION(n) __attribute__((noinline)) int f##n(int x) { volatile int y[4 + n]; y[0] = x; return y[0] + n; }
FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5) FUNCTION(6) FUNCTION(7) FUNCTION(8) FUNCTION(9)
int main(void) { return f1(1) + f2(2) + f3(3) + f4(4) + f5(5) + f6(6) + f7(7) + f8(8) + f9(9); }
"#;

/// The rows of the program's table, each rule in words and with what told it.
fn rows_of(program: PathBuf) -> Vec<(u64, String, bool)> {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("bundle")).unwrap();
    let built = build(&[program], &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let (_, _, module) = bundle.index().modules().next().unwrap();
    let bytes = bundle.read(module.file(FileRole::UnwindTable).unwrap()).unwrap();
    let table = Table::open(&bytes).unwrap();
    let rows = table.rows().map(|(at, rule, _)| {
        (at.0, rule.display(table.arch()).to_string(), rule.source() == Some(RuleSource::DebugFrame))
    });
    rows.collect()
}

#[test]
fn t6_a_debug_frame_is_read_in_every_form_of_compression() {
    let (Some(gcc), Some(objcopy)) = (tool("gcc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let plain = compile(&gcc, dir.path(), "plain", SOURCE, &flags);
    let expected = rows_of(plain.clone());
    let told = expected.iter().filter(|(_, _, is_told)| *is_told).count();
    assert!(told >= 3, "{expected:#?}");
    // SHF_COMPRESSED by two algorithms, and the older form by another name.
    let mut read = 0;
    for (form, mark) in [("zlib", ".debug_frame"), ("zlib-gnu", ".zdebug_frame"), ("zstd", ".debug_frame")] {
        let compressed = dir.path().join(form);
        let options = format!("--compress-debug-sections={form}");
        let made = std::process::Command::new(&objcopy).args([&options]).args([&plain, &compressed]).output().unwrap();
        // Binutils before 2.40 know no zstd.
        if !made.status.success() {
            assert_eq!(form, "zstd", "{}", String::from_utf8_lossy(&made.stderr));
            continue;
        }
        if let Some(readelf) = tool("readelf") {
            let sections = output(&readelf, &["-SW", compressed.to_str().unwrap()]);
            let line = sections
                .lines()
                .find(|line| line.contains(&format!(" {mark} ")))
                .unwrap_or_else(|| panic!("{sections}"));
            let is_flagged = line.split_whitespace().any(|word| word == "C");
            assert_eq!(is_flagged, form != "zlib-gnu", "{line}");
        }
        assert_eq!(rows_of(compressed), expected, "{form}");
        read += 1;
    }
    assert!(read >= 2);
}

/// What is damaged tells nothing (the functions have rules by their instructions then), and the report counts it: a length that leads out of the section hides what is behind it, unless the header leads there.
#[test]
fn t6_entries_that_cannot_be_read_are_counted_in_the_report() {
    let (Some(gcc), Some(objcopy)) = (tool("gcc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let sound = compile(&gcc, dir.path(), "sound", SOURCE, &["-g0"]);
    let (section, damaged) = (dir.path().join("section"), dir.path().join("damaged"));
    let dump = format!("--dump-section=.eh_frame={}", section.display());
    run(&objcopy, &[&dump, sound.to_str().unwrap()]);
    let mut bytes = std::fs::read(&section).unwrap();
    // The first entry stays; the length of the one behind it is changed.
    let second = 4 + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    bytes[second..second + 4].copy_from_slice(&0x7fff_0000_u32.to_le_bytes());
    std::fs::write(&section, bytes).unwrap();
    let update = format!("--update-section=.eh_frame={}", section.display());
    run(&objcopy, &[&update, sound.to_str().unwrap(), damaged.to_str().unwrap()]);
    let counted = |path: &PathBuf| {
        let report = crate::inputs::report(std::slice::from_ref(path));
        let unwind = &report.modules[0].unwind;
        (unwind.unsupported, unwind.unsupported_reasons.get("entry: cannot be read").copied(), unwind.fdes)
    };
    let (whole, found) = (counted(&sound), counted(&damaged));
    assert_eq!((whole.0, whole.1), (0, None));
    assert!(found.0 >= 1 && found.1 == Some(found.0), "{found:?}");
    assert!(found.2 < whole.2, "{found:?} of {whole:?}");
}
