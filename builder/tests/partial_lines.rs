//! Modules whose debug information is of other people's code alone: what was linked in has lines, and what was compiled has none.

use std::path::Path;

use crate::build::check_schema;
use crate::inputs::{build, builder, compile, report, run, tool};
use symseal_builder::{BuildError, LinesOf, ModuleReport};
use symseal_bundle::{LayoutDir, LinesOfOthers};

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

/// Compiles `source` to an object beside the others.
fn object(cc: &Path, dir: &Path, name: &str, source: &str, flags: &[&str]) -> String {
    let (source_at, out) = (dir.join(name), dir.join(format!("{}.o", name.replace('/', "-"))));
    std::fs::create_dir_all(source_at.parent().unwrap()).unwrap();
    std::fs::write(&source_at, source).unwrap();
    let (source_at, out) = (source_at.to_str().unwrap(), out.to_str().unwrap().to_owned());
    run(cc, &[&["-O1", "-c", source_at, "-o", &out], flags].concat());
    out
}

#[test]
fn a_beginning_that_the_start_up_code_of_a_toolchain_has_is_not_the_modules_own() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let own = object(&cc, dir.path(), "own.c", &own_code(), &["-g0"]);
    let begins = "extern int own1(int); int main(int n, char **a) { return own1(n) + (a != 0); }\n";
    for (path, lines_of) in [
        ("mingw-w64-crt/crt/crt0_c.c", LinesOf::Parts),
        ("src/winsup/cygwin/lib/libcmain.c", LinesOf::Parts),
        ("dlls/winecrt0/exe_main.c", LinesOf::Parts),
        ("src/crt/crt0_c.c", LinesOf::Module),
    ] {
        let main = object(&cc, dir.path(), path, begins, &["-g"]);
        let program = dir.path().join("program");
        run(&cc, &["-Wl,--build-id", "-o", program.to_str().unwrap(), &main, &own]);
        let (module, advice) = only_module(&program);
        assert_eq!((module.lines_of, advice.is_ok()), (lines_of, lines_of == LinesOf::Module), "{path}: {module:#?}");
    }
    // However much of a small program it is.
    let main = object(&cc, dir.path(), "mingw-w64-crt/crt/crt0_c.c", "int main(void) { return 3; }\n", &["-g"]);
    let small = object(&cc, dir.path(), "small.c", "int small(int x) { return x * 3; }\n", &["-g0"]);
    let program = dir.path().join("small");
    run(&cc, &["-Wl,--build-id", "-o", program.to_str().unwrap(), &main, &small]);
    let (module, advice) = only_module(&program);
    assert_eq!((module.lines_of, advice.is_ok()), (LinesOf::Parts, false), "{module:#?}");
}

#[test]
fn a_small_program_with_a_large_c_library_without_lines_has_lines_of_its_own() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\nint main(int n, char **a) { return printf(\"%d %p\\n\", n, a) < 0; }\n";
    let main = object(&cc, dir.path(), "main.c", source, &["-g"]);
    let program = dir.path().join("program");
    run(&cc, &["-static", "-Wl,--build-id", "-o", program.to_str().unwrap(), &main]);
    let (module, advice) = only_module(&program);
    assert_eq!((module.lines_of, advice), (LinesOf::Module, Ok(())), "{module:#?}");
    assert!(module.lined_bytes < module.statistics.text_bytes / 100, "{module:#?}");
}

#[test]
fn what_mingw_supplies_to_programs_and_libraries_of_windows_is_not_their_own() {
    let (Some(cc), Some(cxx)) = (tool("x86_64-w64-mingw32-gcc"), tool("x86_64-w64-mingw32-g++")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let object = |cc: &Path, name: &str, source: &str, flags: &[&str]| object(cc, dir.path(), name, source, flags);
    let own = object(&cc, "own.c", &own_code(), &["-g0"]);
    let beginning = "#include <windows.h>\nextern int own1(int);\n";
    let dll_main =
        format!("{beginning}BOOL WINAPI DllMain(HINSTANCE h, DWORD r, LPVOID p) {{ return own1(r) >= 0; }}\n");
    let win_main =
        format!("{beginning}int WINAPI WinMain(HINSTANCE a, HINSTANCE b, LPSTR c, int d) {{ return own1(d); }}\n");
    let stream =
        "#include <iostream>\nextern \"C\" __declspec(dllexport) int run(int x) { std::cout << x; return x; }\n";
    let link = |cc: &Path, name: &str, arguments: &[&str]| {
        let out = dir.path().join(name);
        run(cc, &[&["-Wl,--build-id", "-o", out.to_str().unwrap()], arguments].concat());
        let (module, advice) = only_module(&out);
        assert_eq!(advice.is_ok(), module.lines_of == LinesOf::Module, "{module:#?}");
        module
    };
    let bare = link(&cc, "default.dll", &["-shared", &own]);
    if bare.lined_bytes == 0 {
        eprintln!("skipped: MinGW's start-up code has no lines here");
        return;
    }
    assert_eq!(bare.lines_of, LinesOf::Parts, "{bare:#?}");
    for (debug, lines_of) in [("-g0", LinesOf::Parts), ("-g", LinesOf::Module)] {
        let dll = object(&cc, "dll.c", &dll_main, &[debug]);
        let win = object(&cc, "win.c", &win_main, &[debug]);
        let tiny = object(&cc, "tiny.c", "int tiny(int x) { return x * 3; }\n", &[debug]);
        let stream = object(&cxx, "stream.cpp", stream, &[debug]);
        for module in [
            link(&cc, "own.dll", &["-shared", &dll, &own]),
            link(&cc, "own.exe", &["-mwindows", &win, &own]),
            link(&cc, "tiny.dll", &["-shared", &tiny]),
            // The most of it is the C++ library, which has no lines.
            link(&cxx, "stream.dll", &["-shared", "-static", &stream]),
        ] {
            assert_eq!(module.lines_of, lines_of, "{module:#?}");
        }
    }
}

#[test]
fn a_bundle_tells_of_modules_whose_lines_are_those_of_parts_alone() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let own = object(&cc, dir.path(), "own.c", &own_code(), &["-g0"]);
    let cases = [("-g0", None), ("-g", None), ("-g", Some(LinesOfOthers::Parts))];
    for (at, (flag, lines_of)) in cases.into_iter().enumerate() {
        let name = if lines_of.is_some() { "mingw-w64-crt/main.c" } else { "main.c" };
        let main = object(&cc, dir.path(), name, "int main(void) { return 3; }\n", &[flag]);
        let program = dir.path().join("program");
        run(&cc, &["-Wl,--build-id", "-o", program.to_str().unwrap(), &main, &own]);
        let layout = LayoutDir::create(dir.path().join(format!("layout-{at}"))).unwrap();
        let built = build(&[program], &layout).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&built.index.to_canonical_json().unwrap()).unwrap();
        let module = json["linux"].as_object().unwrap().values().next().unwrap();
        assert_eq!(built.index.linux.values().map(|module| module.lines_of).collect::<Vec<_>>(), [lines_of]);
        assert_eq!(module.get("lines_of").and_then(serde_json::Value::as_str), lines_of.map(|_| "parts"), "{module}");
        check_schema("symbol_index.schema.json", &built.index.to_canonical_json().unwrap());
    }
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
