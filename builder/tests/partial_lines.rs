//! Modules whose debug information is of other people's code alone: what was linked in has lines, and what was compiled has none.

use std::path::Path;

use crate::inputs::{builder, compile, report, run, tool};
use symseal_builder::{BuildError, LinesOf, ModuleReport};

/// Two hundred functions of a loop each.
fn own_code() -> String {
    let function =
        |n| format!("int own{n}(int x) {{ for (int i = 0; i < x; i++) x += own_data[(x * {n}) & 7]; return x; }}\n");
    let functions: String = (0..200).map(function).collect();
    format!("extern int own_data[8];\nint own_data[8] = {{1}};\n{functions}")
}

/// The only module of what is at `path`, and whether a strict build passes it.
#[track_caller]
fn only_module(path: &Path) -> (ModuleReport, Result<(), String>) {
    let mut found = report(&[path.to_owned()]);
    assert_eq!(found.modules.len(), 1, "{found:#?}");
    let advice = found.binaries_without_debug_files.first().map_or(Ok(()), |one| Err(one.advice.clone()));
    match (&advice, builder(&[path.to_owned()]).strict(true).report()) {
        (Ok(()), Ok(_)) | (Err(_), Err(BuildError::Strict { unpaired: 1, .. })) => {}
        other => panic!("{other:#?}"),
    }
    (found.modules.remove(0), advice)
}

#[test]
fn lines_of_start_up_code_alone_are_no_debug_information_of_a_module() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("start.c"), "int start_up(int x) { return x * 5; }\n").unwrap();
    std::fs::write(at("own.c"), own_code()).unwrap();
    let object = |name: &str, flags: &[&str]| {
        let (source, out) = (at(&format!("{name}.c")), at(&format!("{name}.o")));
        let files = ["-O1", "-fPIC", "-c", source.to_str().unwrap(), "-o", out.to_str().unwrap()];
        run(&cc, &[&files[..], flags].concat());
        out
    };
    for (flags, lines_of) in [(["-g0"], LinesOf::Parts), (["-g"], LinesOf::Module)] {
        let objects = [object("start", &["-g"]), object("own", &flags)];
        let library = at("library.so");
        let mut arguments = vec!["-shared", "-Wl,--build-id", "-o", library.to_str().unwrap()];
        arguments.extend(objects.iter().map(|object| object.to_str().unwrap()));
        run(&cc, &arguments);
        let (module, advice) = only_module(&library);
        assert_eq!(module.lines_of, lines_of, "{module:#?}");
        let (lined, all) = (module.lined_bytes, module.statistics.text_bytes);
        match lines_of {
            LinesOf::Parts => {
                assert!(lined > 0 && lined < all / 10, "{lined} of {all}");
                let advice = advice.unwrap_err();
                assert!(advice.contains(&format!("lines of {lined} of its {all} bytes")), "{advice}");
            }
            _ => {
                assert!(lined > all / 2, "{lined} of {all}");
                advice.unwrap();
            }
        }
    }
    // A program whose libraries have none is one all the same, if its own code has lines.
    std::fs::write(at("main.c"), "int main(int n, char **a) { return n * 3 + (a != 0); }\n").unwrap();
    for (flags, lines_of) in [(["-g0"], LinesOf::Parts), (["-g"], LinesOf::Module)] {
        let objects = [object("start", &["-g"]), object("own", &["-g0"]), object("main", &flags)];
        let program = at("program");
        let mut arguments = vec!["-Wl,--build-id", "-o", program.to_str().unwrap()];
        arguments.extend(objects.iter().map(|object| object.to_str().unwrap()));
        run(&cc, &arguments);
        let (module, advice) = only_module(&program);
        assert_eq!((module.lines_of, advice.is_ok()), (lines_of, lines_of == LinesOf::Module), "{module:#?}");
        assert!(module.lined_bytes < module.statistics.text_bytes / 10, "{module:#?}");
    }
    // Without any there is nothing to tell of.
    let bare = compile(&cc, dir.path(), "bare.so", &own_code(), &["-g0", "-Wl,--build-id"]);
    let (module, advice) = only_module(&bare);
    assert_eq!((module.lined_bytes, module.lines_of), (0, LinesOf::None), "{module:#?}");
    assert!(advice.unwrap_err().contains("compile it with -g"));
}

#[test]
fn lines_of_rusts_library_alone_are_no_debug_information_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("program.rs");
    std::fs::write(&source, "fn main() { println!(\"{}\", std::env::args().count()); }\n").unwrap();
    let Some(rustc) = tool("rustc") else { return };
    for (debuginfo, lines_of) in [("0", LinesOf::RustLibrary), ("line-tables-only", LinesOf::Module)] {
        let program = dir.path().join("program");
        let level = format!("debuginfo={debuginfo}");
        let files = [source.to_str().unwrap(), "-o", program.to_str().unwrap()];
        run(&rustc, &[&files[..], &["-O", "-C", &level, "-C", "strip=none", "-C", "link-arg=-Wl,--build-id"]].concat());
        let (module, advice) = only_module(&program);
        if lines_of == LinesOf::RustLibrary && matches!(module.lines_of, LinesOf::None | LinesOf::Module) {
            eprintln!(
                "skipped: this compiler's library has no lines, or those of another build: {:?}",
                module.lines_of
            );
            return;
        }
        assert_eq!((module.lines_of, advice.is_ok()), (lines_of, lines_of == LinesOf::Module), "{advice:?}");
    }
}
