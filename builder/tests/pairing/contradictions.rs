//! Files of one id that cannot be of one build, and files that are damaged or cut.

use super::{module, text};
use crate::inputs::{SOURCE, builder, compile, fixtures, report, run, tool};
use symseal_builder::BuildError;
use symseal_bundle::DebugInfo;

#[test]
fn a_debug_file_of_another_build_with_the_same_id_is_a_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let id = "-Wl,--build-id=0xaa05060708";
    let split = |name: &str, source: &str| {
        let whole = compile(&cc, dir.path(), &format!("{name}-whole.so"), source, &["-g", id]);
        let (stripped, debug) = (dir.path().join(format!("{name}.so")), dir.path().join(format!("{name}.debug")));
        run(&objcopy, &["--strip-all", text(&whole), text(&stripped)]);
        run(&objcopy, &["--only-keep-debug", text(&whole), text(&debug)]);
        (stripped, debug)
    };
    let (ours, debug) = split("ours", SOURCE);
    let (_, stale) = split("stale", "int twice(int x) { return 2 * x; }\nint thrice(int x) { return twice(x) + x; }");
    let found = report(&[ours.clone(), stale.clone()]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.named_by.code(), mismatch.debug_file.place.as_str()), ("debug-id", text(&stale)));
    assert!(mismatch.expected.starts_with("section ") && mismatch.found != mismatch.expected, "{mismatch:?}");
    assert_eq!((module(&found, "ours.so").debug_file.as_deref(), found.is_complete()), (None, false));
    // Beside the right one it is one all the same, and the right one is taken.
    let found = report(&[ours, debug.clone(), stale]);
    assert_eq!((found.mismatches.len(), module(&found, "ours.so").debug_file.as_deref()), (1, Some(text(&debug))));
}

/// Such a build goes on to its report: other modules are in it.
#[test]
fn a_debug_file_of_the_same_id_for_another_processor_is_a_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(clang), Some(lld), Some(objcopy)) = (tool("clang"), tool("ld.lld"), tool("llvm-objcopy")) else { return };
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    for processor in ["x86_64", "aarch64"] {
        let [object, library] = ["o", "so"].map(|ending| at(&format!("{processor}.{ending}")));
        let target = format!("--target={processor}-linux-gnu");
        run(&clang, &[&target, "-g", "-fPIC", "-c", text(&at("a.c")), "-o", text(&object)]);
        run(&lld, &["-shared", "--build-id=0xaa05060709", text(&object), "-o", text(&library)]);
        run(&objcopy, &["--only-keep-debug", text(&library), text(&at(&format!("{processor}.debug")))]);
        run(&objcopy, &["--strip-all", text(&library), text(&library)]);
    }
    let found = report(&[at("x86_64.so"), at("aarch64.debug")]);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!(mismatch.debug_file.place, text(&at("aarch64.debug")));
    assert_eq!((mismatch.expected.as_str(), mismatch.found.as_str()), ("a file for x86_64", "a file for aarch64"));
    assert_eq!((module(&found, "x86_64.so").debug_file.as_deref(), found.is_complete()), (None, false));
    // Beside the right one, that is taken.
    let found = report(&[at("x86_64.so"), at("aarch64.debug"), at("x86_64.debug")]);
    assert_eq!(module(&found, "x86_64.so").debug_file.as_deref(), Some(text(&at("x86_64.debug"))));
    assert_eq!(found.mismatches.len(), 1, "{found:#?}");
}

#[test]
fn what_something_was_added_to_is_taken_and_no_contradiction() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let at = |name: &str| dir.path().join(name);
    run(&objcopy, &["--strip-all", text(&whole), text(&at("plain.so"))]);
    run(&objcopy, &["--only-keep-debug", text(&whole), text(&at("one.debug"))]);
    let link = format!("--add-gnu-debuglink={}", text(&at("one.debug")));
    run(&objcopy, &[&link, text(&at("plain.so")), text(&at("linked.so"))]);
    std::fs::write(at("note"), "a note").unwrap();
    let note = format!("--add-section=.note.added={}", text(&at("note")));
    run(&objcopy, &[&note, text(&at("one.debug")), text(&at("noted.debug"))]);
    for paths in
        [["plain.so", "linked.so", "one.debug", "noted.debug"], ["noted.debug", "one.debug", "linked.so", "plain.so"]]
    {
        let found = report(&paths.map(at));
        let module = module(&found, "linked.so");
        assert_eq!(module.debug_file.as_deref(), Some(text(&at("noted.debug"))), "{found:#?}");
        assert_eq!((found.superseded.len(), found.is_complete()), (2, true), "{found:#?}");
    }
}

#[test]
fn a_file_whose_debug_information_is_packed_otherwise_is_not_said_to_have_more() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let packed = dir.path().join("packed.so");
    run(&objcopy, &["--compress-debug-sections", text(&whole), text(&packed)]);
    let found = report(&[whole, packed]);
    let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
    assert!(superseded.rule.contains("packed otherwise"), "{superseded:?}");
}

#[test]
fn damaged_debug_information_is_not_called_full_and_a_damaged_file_is_no_strict_build() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let at = |name: &str| dir.path().join(name);
    for name in ["info", "line"] {
        let section = format!("--dump-section=.debug_{name}={}", text(&at(name)));
        run(&objcopy, &[&section, text(&whole), "/dev/null"]);
        let bytes = std::fs::read(at(name)).unwrap();
        // The header of the first unit stays.
        let damaged: Vec<u8> = bytes.iter().enumerate().map(|(at, byte)| if at < 12 { *byte } else { 0xff }).collect();
        std::fs::write(at(name), damaged).unwrap();
    }
    let update = ["info", "line"].map(|name| format!("--update-section=.debug_{name}={}", text(&at(name))));
    run(&objcopy, &[&update[0], &update[1], text(&whole), text(&at("damaged.so"))]);
    let found = report(&[at("damaged.so")]);
    assert_eq!(module(&found, "damaged.so").debug_info, DebugInfo::Symbols, "{found:#?}");
    // A file that begins like a program and is none stands beside a good one.
    std::fs::create_dir(at("release")).unwrap();
    std::fs::copy(&whole, at("release/whole.so")).unwrap();
    assert!(report(&[at("release")]).is_complete());
    let mut cut = vec![0; 0x80];
    cut[..2].copy_from_slice(b"MZ");
    cut[0x3c] = 0x40;
    cut[0x40..0x44].copy_from_slice(b"PE\0\0");
    std::fs::write(at("release/cut.dll"), cut).unwrap();
    let found = report(&[at("release")]);
    assert_eq!((found.inputs.damaged(), found.is_complete()), (1, false), "{found:#?}");
}

/// Three functions, one of them in two parts.
const IN_PARTS: &str = "extern void lost(int) __attribute__((cold, noreturn));
int checked(int x) { if (x < 0) lost(x); return x * 3; }
int other(int x) { return x ? checked(x) : 5; }
int last(int x) { return other(x) + other(x + 1); }";

#[test]
fn parts_of_debug_information_that_are_lost_fail_a_strict_build() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(gcc), Some(objcopy)) = (tool("gcc"), tool("objcopy")) else { return };
    let options = ["-gdwarf-5", "-O2", "-freorder-blocks-and-partition", "-Wl,--build-id"];
    let whole = compile(&gcc, dir.path(), "whole.so", IN_PARTS, &options);
    let found = report(std::slice::from_ref(&whole));
    assert!(found.is_complete(), "{found:#?}");
    let at = |name: &str| dir.path().join(name);
    // Which section, what stays of it and what comes behind that, and what is lost then.
    for (section, kept, behind, lost) in [
        ("str", 0.5, None, "name outside the strings"),
        ("line_str", 0.1, None, "name outside the strings"),
        ("rnglists", 0.2, None, "damaged range list"),
        ("info", 0.6, Some(0xff), "rest of a unit, behind a damaged entry"),
        // An interrupted copy leaves zeros.
        ("info", 0.6, Some(0), "unit that ends before its stated length"),
        ("line_str", 0.0, Some(0), "name outside the strings"),
        ("rnglists", 0.0, Some(0), "damaged table of range lists"),
        ("line", 0.9, Some(0xff), "line table whose last sequence has no end"),
    ] {
        let dump = format!("--dump-section=.debug_{section}={}", text(&at(section)));
        run(&objcopy, &[&dump, text(&whole), "/dev/null"]);
        let mut bytes = std::fs::read(at(section)).unwrap();
        let size = bytes.len();
        bytes.truncate((size as f64 * kept) as usize);
        if let Some(behind) = behind {
            bytes.resize(size, behind);
        }
        std::fs::write(at(section), bytes).unwrap();
        let name = format!("{section}.so");
        let update = format!("--update-section=.debug_{section}={}", text(&at(section)));
        run(&objcopy, &[&update, text(&whole), text(&at(&name))]);
        let found = report(&[at(&name)]);
        let module = module(&found, &name);
        assert!(module.skipped.get(lost).is_some_and(|times| *times > 0), "{section}: {:?}", module.skipped);
        assert!(module.damaged_units() > 0);
        assert!(matches!(builder(&[at(&name)]).strict(true).report(), Err(BuildError::Strict { .. })), "{section}");
    }
}

const LOST: &str = "functions whose addresses are not there, beside lines that nothing else has";

#[test]
fn addresses_that_are_lost_fail_a_strict_build_and_those_of_folded_functions_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(clang), Some(objcopy), Some(_)) = (tool("clang"), tool("objcopy"), tool("ld.lld")) else { return };
    let at = |name: &str| dir.path().join(name);
    let function = |name: &str, times: u32| {
        format!(
            "int {name}(int x) {{\n  int y = x * {times};\n  if (y > 7)\n    y = sink(y);\n  return sink(y + x);\n}}\n"
        )
    };
    let sources =
        ["a", "b", "c", "d", "e", "f", "i", "j", "k", "l"].map(|name| function(name, name.as_bytes()[0].into()));
    let source = format!("extern int sink(int);\n{}", sources.concat());
    // Three functions are folded into one. Each of the others has three addresses: its own, and those behind its calls.
    let folded = format!("{source}{}{}", function("g", 97), function("h", 97));
    let linked = "-Wl,--build-id,--gc-sections,--icf=all";
    for (name, source, sections, kept, fill, lost) in [
        ("one.so", &source, "-fno-function-sections", 27, 0xff, LOST),
        ("one-zero.so", &source, "-fno-function-sections", 27, 0, LOST),
        ("each.so", &source, "-ffunction-sections", 3, 0xff, LOST),
        ("none.so", &source, "-ffunction-sections", -1, 0xff, "damaged table of addresses"),
        ("folded.so", &folded, "-ffunction-sections", -1, 0xff, "damaged table of addresses"),
    ] {
        let options = ["-gdwarf-5", "-O1", "-fuse-ld=lld", sections, linked];
        let whole = compile(&clang, dir.path(), name, source, &options);
        let found = report(std::slice::from_ref(&whole));
        assert!(found.is_complete(), "{found:#?}");
        run(&objcopy, &[&format!("--dump-section=.debug_addr={}", text(&at("addr"))), text(&whole), "/dev/null"]);
        let bytes = std::fs::read(at("addr")).unwrap();
        let kept = usize::try_from(8 + 8 * kept).unwrap();
        let damaged: Vec<u8> =
            bytes.iter().enumerate().map(|(at, byte)| if at < kept { *byte } else { fill }).collect();
        std::fs::write(at("addr"), damaged).unwrap();
        let damaged = at(&format!("damaged-{name}"));
        run(&objcopy, &[&format!("--update-section=.debug_addr={}", text(&at("addr"))), text(&whole), text(&damaged)]);
        let found = report(std::slice::from_ref(&damaged));
        let module = module(&found, &format!("damaged-{name}"));
        assert!(module.skipped.contains_key(lost), "{name}: {:?}", module.skipped);
        assert!(matches!(builder(&[damaged]).strict(true).report(), Err(BuildError::Strict { .. })), "{name}");
    }
}

#[test]
fn a_binary_without_section_headers_and_its_unstripped_twin_are_one_module() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("llvm-objcopy")) else { return };
    let id = "-Wl,--build-id=0xaa01020304";
    let full = compile(&cc, dir.path(), "full.so", SOURCE, &["-g", id]);
    let bare = dir.path().join("bare.so");
    run(&objcopy, &["--strip-sections", text(&full), text(&bare)]);
    let found = report(&[full.clone(), bare.clone()]);
    let module = module(&found, "bare.so");
    assert_eq!((module.binary.as_deref(), module.debug_file.as_deref()), (Some(text(&bare)), Some(text(&full))));
    assert_eq!((module.debug_info, found.is_complete()), (DebugInfo::Full, true), "{found:?}");

    // Two without headers: the same code under two names is one file, other code is a contradiction.
    let other = compile(&cc, dir.path(), "other.so", "int other(void) { return 1; }", &["-g", id]);
    let other_bare = dir.path().join("other-bare.so");
    run(&objcopy, &["--strip-sections", text(&other), text(&other_bare)]);
    for paths in [[&full, &other_bare], [&other, &bare], [&bare, &other_bare]] {
        let error = builder(&paths.map(|path| path.to_owned())).report().unwrap_err();
        assert!(matches!(error, BuildError::Conflict { .. }), "{error}");
    }
}

#[test]
fn what_is_missing_beside_a_debug_file_is_said_in_the_words_of_its_platform() {
    let Some(fixtures) = fixtures() else { return };
    let example = fixtures.join("samply/fixtures/other/simple-example/out");
    let found = report(&[example.join("mac-dsym/main.dSYM")]);
    let [orphan] = found.debug_files_without_binaries.as_slice() else { panic!("{found:#?}") };
    assert!(orphan.advice.contains("of UUID") && !orphan.advice.contains("unwind"), "{orphan:?}");
}
