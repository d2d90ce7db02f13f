//! `bundle inspect --disclosure` names what compilers and linkers put into debug files beside names and paths: whole sources, options, macros, the
//! settings of a Go build, streams of program databases.

use std::path::Path;
use std::process::Command;

use crate::program::{any_tool, symseal, tool};
use crate::three_systems::run;
use serde_json::Value;

const SOURCE: &str = "int secret_of_the_source(int v) { return v + 41; }\n";

fn disclosed(dir: &Path, input: &str) -> (Value, String) {
    let text = |name: &str| dir.join(name).display().to_string();
    let bundle = text(&format!("{input}.bundle"));
    symseal(["bundle", "build", &text(input), "--name", "app", "--version", "1", "--output", &bundle]).ok();
    let json = symseal(["bundle", "inspect", &bundle, "--disclosure", "--json"]).ok().json();
    (json, symseal(["bundle", "inspect", &bundle, "--disclosure"]).ok().stdout)
}

#[track_caller]
fn has(list: &Value, part: &str) {
    let texts = list.as_array().expect("a list");
    assert!(texts.iter().any(|text| text.as_str().is_some_and(|text| text.contains(part))), "{part}: {list}");
}

#[test]
fn sources_options_and_macros_in_dwarf_are_named() {
    let (Some(clang), Some(gcc)) = (tool("clang"), tool("gcc")) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("a.c"), SOURCE).expect("a file");
    let make = |program: &Path, name: &str, flags: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(&dir).args(["-shared", "-fPIC", "a.c", "-o", name, "-Wl,--build-id"]).args(flags);
        run(&mut command);
    };
    make(&clang, "embeds.so", &["-gdwarf-5", "-gembed-source", "-grecord-command-line", "-DTOKEN=t0k3n"]);
    let (json, text) = disclosed(dir.path(), "embeds.so");
    has(&json["command_lines"], "TOKEN=t0k3n");
    let sources = json["embedded_sources"].as_object().expect("sources");
    let (path, bytes) = sources.iter().next().expect("a source");
    assert!(path.ends_with("/a.c") && bytes.as_u64() == Some(SOURCE.len() as u64), "{sources:?}");
    assert!(text.contains("EMBEDDED SOURCES   1 whole files") && text.contains("TOKEN=t0k3n"), "{text}");

    for version in ["-gdwarf-5", "-gdwarf-4"] {
        make(&gcc, "macros.so", &["-g3", version, "-grecord-gcc-switches", "-mtune=generic", "-DAPI_KEY=k3y"]);
        let (json, _) = disclosed(dir.path(), "macros.so");
        has(&json["macros"], "API_KEY k3y");
        has(&json["producers"], "GNU C");
        has(&json["command_lines"], "-mtune=generic");
        std::fs::remove_dir_all(dir.path().join("macros.so.bundle")).expect("gone");
    }
    // Of before DWARF 5 and GNU's own form: `.debug_macinfo`.
    make(&gcc, "old.so", &["-g3", "-gdwarf-3", "-gstrict-dwarf", "-DOLD_KEY=k3y"]);
    has(&disclosed(dir.path(), "old.so").0["macros"], "OLD_KEY k3y");
}

#[test]
fn the_settings_of_a_go_build_are_named_also_of_a_stripped_program() {
    let Some(go) = tool("go") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("main.go"), "package main\n\nvar token string\n\nfunc main() { println(token) }\n")
        .expect("a file");
    std::fs::write(dir.path().join("go.mod"), "module example.com/settings\n\ngo 1.18\n").expect("a file");
    let home = dir.path().join("cache");
    run(Command::new(go)
        .current_dir(&dir)
        .env("GOCACHE", &home)
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .args(["build", "-trimpath=false", "-ldflags", "-s -w -X main.token=s3cr3t", "-o", "app", "."]));
    let (json, _) = disclosed(dir.path(), "app");
    has(&json["build_settings"], "main.token=s3cr3t");
    has(&json["build_settings"], "example.com/settings");
}

#[test]
fn streams_and_sources_in_a_program_database_are_named() {
    let (Some(clang), Some(lld)) = (any_tool(&["clang", "clang-14"]), any_tool(&["lld-link", "lld-link-14"])) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("in")).expect("a folder");
    std::fs::write(at("a.c"), format!("{SOURCE}int _DllMainCRTStartup(void) {{ return 1; }}\n")).expect("a file");
    std::fs::write(at("types.natvis"), "<AutoVisualizer/>").expect("a file");
    std::fs::write(at("link.json"), "{\"documents\":{\"/src/*\":\"https://host.example/?token=s3cr3t\"}}")
        .expect("a file");
    run(Command::new(clang).current_dir(&dir).args([
        "--target=x86_64-windows-msvc",
        "-g",
        "-gcodeview",
        "-c",
        "a.c",
        "-o",
        "a.obj",
    ]));
    run(Command::new(lld).current_dir(&dir).args([
        "/dll",
        "/debug",
        "/noentry",
        "/nodefaultlib",
        "/natvis:types.natvis",
        "/pdbstream:sourcelink=link.json",
        "/out:in/a.dll",
        "/pdb:in/a.pdb",
        "a.obj",
    ]));
    let (json, text) = disclosed(dir.path(), "in");
    assert!(json["streams"].as_object().expect("streams").contains_key("sourcelink"), "{}", json["streams"]);
    has(&json["source_links"], "token=s3cr3t");
    let sources = json["embedded_sources"].as_object().expect("sources");
    assert!(sources.keys().any(|path| path.ends_with("types.natvis")), "{sources:?}");
    assert!(text.contains("EMBEDDED SOURCES"), "{text}");
}

#[test]
fn directories_and_headers_without_code_types_in_other_files_and_run_paths_are_named_and_searched_for_homes() {
    let (Some(clang), Some(gcc)) = (tool("clang"), tool("gcc")) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    // Not below the other one: compilers differ in which of two maps that match they take.
    let private = tempfile::tempdir().expect("a folder");
    std::fs::write(private.path().join("unreleased_product.h"), "struct product { int secret; };\n").expect("a file");
    let source = "#include \"unreleased_product.h\"\nint of(struct product *p) { return p->secret; }\n";
    std::fs::write(at("a.c"), source).expect("a file");
    let maps = [
        format!("-ffile-prefix-map={}=/home/alice23/private", private.path().display()),
        format!("-ffile-prefix-map={}=/build", dir.path().display()),
    ];
    let include = format!("-I{}", private.path().display());
    let kinds: [&[&str]; 5] = [
        &["-gdwarf-5"],
        &["-gdwarf-4"],
        &["-gdwarf-3"],
        &["-gdwarf-5", "-fdebug-types-section"],
        &["-gdwarf-4", "-fdebug-types-section"],
    ];
    for program in [&clang, &gcc] {
        for flags in kinds {
            let mut command = Command::new(program);
            let source = at("a.c").display().to_string();
            command.current_dir(&dir).args(["-shared", "-fPIC", "-o", "app.so", "-Wl,--build-id", &source, &include]);
            run(command.args(&maps).args(flags));
            let (json, text) = disclosed(dir.path(), "app.so");
            has(&json["debug_paths"], "/home/alice23/private/unreleased_product.h");
            assert!(!json["paths"].to_string().contains("alice23"), "it is a file without code: {json}");
            assert_eq!(json["homes"][0]["directory"], "/home/alice23", "{program:?} {flags:?} {json}");
            assert!(text.contains("HOME DIRECTORIES") && !text.contains("no home directories"), "{text}");
            std::fs::remove_dir_all(at("app.so.bundle")).expect("gone");
        }
    }
    // What looks for libraries at home, and nothing else of a home.
    let run_paths = "-Wl,-rpath,$ORIGIN/../lib:/home/bob/lib";
    for kind in ["-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"] {
        let mut command = Command::new(&gcc);
        command.current_dir(&dir).args(["-shared", "-fPIC", "-o", "app.so", "-Wl,--build-id", "a.c", &include]);
        run(command.args([run_paths, kind]));
        let (json, text) = disclosed(dir.path(), "app.so");
        assert_eq!(json["run_paths"], serde_json::json!(["$ORIGIN/../lib", "/home/bob/lib"]));
        assert_eq!(json["homes"][0]["directory"], "/home/bob");
        assert!(text.contains("run paths"), "{text}");
        std::fs::remove_dir_all(at("app.so.bundle")).expect("gone");
    }
}

#[test]
fn files_that_instructions_of_a_line_table_define_are_told() {
    let Some(gcc) = tool("gcc") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/artifact/tests/defined_files/program.s");
    let mut command = Command::new(gcc);
    command.current_dir(&dir).args(["-shared", "-nostdlib", "-Wl,--build-id", "-Wa,--defsym,VERSION=4", program]);
    run(command.args(["-o", "app.so"]));
    let (json, _) = disclosed(dir.path(), "app.so");
    for file in ["/build/include/made.h", "/else/made.x", "/build/call.h"] {
        has(&json["paths"], file);
    }
    has(&json["debug_paths"], "/build/include/unused.h");
}

#[test]
fn files_that_only_split_type_units_name_are_told() {
    let (Some(clang), Some(gcc)) = (tool("clang"), tool("gcc")) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("in")).expect("a folder");
    std::fs::create_dir(at("private")).expect("a folder");
    std::fs::write(at("private/types.h"), "struct product { int secret; };\n").expect("a file");
    std::fs::write(at("a.cc"), "#include \"types.h\"\nint of(product *p) { return p->secret; }\n").expect("a file");
    let (map, include) = (
        format!("-ffile-prefix-map={}=/home/alice23", at("private").display()),
        format!("-I{}", at("private").display()),
    );
    for program in [&clang, &gcc] {
        let flags = ["-gdwarf-5", "-gsplit-dwarf", "-fdebug-types-section", "-fPIC", "-c", "a.cc", "-o", "in/a.o"];
        run(Command::new(program).current_dir(&dir).args(flags).args([&map, &include]));
        run(Command::new(program).current_dir(&dir).args(["-shared", "-Wl,--build-id", "in/a.o", "-o", "in/a.so"]));
        std::fs::remove_file(at("in/a.o")).expect("gone");
        let (json, _) = disclosed(dir.path(), "in");
        has(&json["debug_paths"], "/home/alice23/types.h");
        std::fs::remove_dir_all(at("in.bundle")).expect("gone");
    }
}
