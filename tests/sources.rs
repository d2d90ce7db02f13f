//! Sources by the command line: gathered beside a bundle, listed, pushed where they were asked for, and told of.

use crate::program;
use std::path::Path;

use crate::program::{RunningServer, compile_c, symseal};

const SOURCE: &str =
    "int helper(int x) { return x * 3; }\nint main(int argc, char **argv) { (void)argv; return helper(argc); }\n";

/// A bundle with sources in `dir/bundle`, of a program whose line tables say `/home/ann/app`.
fn bundle(dir: &Path) -> Option<String> {
    let map = format!("-ffile-prefix-map={}=/home/ann/app", dir.display());
    let app = compile_c(dir, "app", SOURCE, &["-g", "-O1", "-Wl,--build-id", &map])?;
    let (app, output) = (app.to_str().unwrap().to_owned(), dir.join("bundle").to_str().unwrap().to_owned());
    let build = ["bundle", "build", &app, "--name", "app", "--version", "1.0", "--output", &output];
    let sources = ["--sources", dir.to_str().unwrap(), "--source-map", "/home/ann/app=."];
    let ran = symseal(build.into_iter().chain(sources)).ok();
    assert!(ran.stdout.contains("1 source files of 1"), "{}", ran.stdout);
    Some(output)
}

#[test]
fn sources_are_listed_told_of_and_pushed_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(layout) = bundle(dir.path()) else { return };
    let listed = symseal(["index", "sources", &layout, "--json"]).ok().json();
    assert_eq!(listed["path"], "/home/ann/app/app.c");
    assert_eq!(listed["size"], SOURCE.len());
    assert!(symseal(["index", "sources", &layout]).ok().stdout.contains("/home/ann/app/app.c"));

    let told = symseal(["bundle", "inspect", &layout, "--disclosure", "--json"]).ok().json();
    assert_eq!(told["homes"][0]["directory"], "/home/ann", "{told}");
    assert_eq!(told["source_paths"], 1);
    assert_eq!(told["paths"], serde_json::json!(["/home/ann/app/app.c"]));
    assert_eq!(told["sources"]["paths"], told["paths"]);
    assert!(told["names"].as_array().unwrap().contains(&"helper".into()), "{told}");
    assert_eq!(told["sources"]["statistics"]["bytes"], SOURCE.len());
    assert_eq!(told["inputs"][0], "app");
    let shown = symseal(["bundle", "inspect", &layout, "--disclosure"]).ok().stdout;
    assert!(shown.contains("HOME DIRECTORIES") && shown.contains("/home/ann"), "{shown}");

    let data = dir.path().join("data");
    let server = RunningServer::start(&data);
    let reference = format!("{}/demo/app:1.0", server.address);
    symseal(["bundle", "push", &layout, &reference]).ok();
    let pulled = dir.path().join("pulled").to_str().unwrap().to_owned();
    symseal(["bundle", "pull", &reference, "--output", &pulled]).ok();
    // Whoever pulls the bundle is not given the sources.
    symseal(["index", "sources", &pulled]).refused(1, &["do not lie beside it"]);
    let told = symseal(["bundle", "inspect", &pulled, "--disclosure", "--json"]).ok().json();
    assert!(told["sources"]["digest"].is_string() && told["sources"]["statistics"].is_null(), "{told}");

    let store = dir.path().join("store").to_str().unwrap().to_owned();
    let remote = || symseal(["bundle", "inspect", &reference, "--store", &store, "--disclosure", "--json"]).ok();
    let told = remote();
    assert!(told.json()["sources"]["statistics"].is_null() && told.stderr.contains("the bundle's sources"), "{told:?}");

    let private = format!("{}/demo/app-sources:1.0", server.address);
    let pushed = symseal(["bundle", "push", &layout, &reference, &format!("--with-sources={private}"), "--json"]).ok();
    assert_eq!(pushed.json()["sources"]["reference"], private.as_str());
    symseal(["bundle", "push", &layout, &reference, "--with-sources"]).ok();
    // Whoever reads the repository reads these.
    assert_eq!(remote().json()["sources"]["paths"], serde_json::json!(["/home/ann/app/app.c"]));
    for from in [private, format!("{reference}.sources")] {
        let pulled = dir.path().join(from.replace(['/', ':'], "_")).to_str().unwrap().to_owned();
        symseal(["bundle", "pull", &reference, "--output", &pulled]).ok();
        symseal(["bundle", "pull", &from, "--output", &pulled]).ok();
        assert_eq!(symseal(["index", "sources", &pulled, "--json"]).ok().json(), listed);
    }
}

#[test]
fn a_bundle_without_sources_says_so_and_bad_options_are_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(app) = compile_c(dir.path(), "app", SOURCE, &["-g", "-Wl,--build-id"]) else { return };
    let (app, output) = (app.to_str().unwrap(), dir.path().join("bundle"));
    let output = output.to_str().unwrap();
    let build = ["bundle", "build", app, "--name", "app", "--version", "1.0", "--output", output];
    symseal(build.iter().copied().chain(["--sources", "/nonexistent"])).refused(2, &["/nonexistent"]);
    assert!(!Path::new(output).exists());
    symseal(build.iter().copied().chain(["--source-map", "a=b"])).refused(2, &["--sources"]);
    symseal(build.iter().copied().chain(["--sources", ".", "--source-map", "nothing"])).refused(2, &["FROM=TO"]);
    let map = "/build=/no/directory/of/sources";
    symseal(build.iter().copied().chain(["--sources", ".", "--source-map", map])).refused(2, &[map]);
    // The directory itself, one in it, and one around it are met.
    let to = |path: &Path| format!("/nowhere={}", path.to_str().unwrap());
    let elsewhere = dir.path().join("elsewhere");
    for to in [to(dir.path()), to(&dir.path().join("in")), to(dir.path().parent().unwrap())] {
        let output = elsewhere.to_str().unwrap();
        let more = ["--output", output, "--sources", dir.path().to_str().unwrap(), "--source-map", &to];
        symseal(["bundle", "build", app, "--name", "app", "--version", "1.0"].into_iter().chain(more)).ok();
        std::fs::remove_dir_all(&elsewhere).unwrap();
    }
    // What is refused is in the sum.
    let (tree, source) = (dir.path().join("tree"), dir.path().join("app.c"));
    let linked = tree.join(source.strip_prefix("/").unwrap());
    std::fs::create_dir_all(linked.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&source, &linked).unwrap();
    let more = ["--output", elsewhere.to_str().unwrap(), "--sources", tree.to_str().unwrap()];
    let told = symseal(["bundle", "build", app, "--name", "app", "--version", "1.0"].into_iter().chain(more)).ok();
    assert!(told.stdout.contains("0 mismatched, 1 refused"), "{}", told.stdout);
    symseal(build).ok();
    symseal(["index", "sources", output]).refused(1, &["names no sources"]);
    symseal(["bundle", "push", output, "127.0.0.1:9/a/b:1", "--with-sources"]).refused(2, &["names no sources"]);
}

#[test]
fn a_dry_run_says_what_would_be_packed_and_a_strict_build_refuses_an_edited_source() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(clang) = program::tool("clang") else { return };
    let (source, app) = (dir.path().join("app.c"), dir.path().join("app"));
    std::fs::write(&source, SOURCE).expect("written");
    // Clang writes the MD5 of each source file into DWARF 5.
    let mut compile = std::process::Command::new(clang);
    compile.args(["-gdwarf-5", "-O1", "-Wl,--build-id", "-o"]).arg(&app).arg(&source);
    assert!(compile.status().expect("clang starts").success());
    let (output, dir) = (dir.path().join("bundle"), dir.path().to_str().unwrap());
    let build = |more: &[&str]| {
        let arguments = ["bundle", "build", app.to_str().unwrap(), "--name", "app", "--version", "1.0"];
        symseal(arguments.into_iter().chain(["--sources", dir]).chain(more.iter().copied()))
    };
    let output = output.to_str().unwrap();
    let dry = build(&["--dry-run", "--json", "--strict"]).ok().json();
    assert_eq!((&dry["sources"]["statistics"]["checked"], &dry["bundle"]), (&1.into(), &serde_json::Value::Null));
    let told = build(&["--output", output, "--json", "--strict"]).ok().json();
    assert_eq!(told["sources"], dry["sources"]);

    std::fs::write(&source, "edited").expect("written");
    let before = std::fs::read_dir(format!("{output}/blobs/sha256")).unwrap().count();
    for more in [&["--dry-run"][..], &["--output", output]] {
        let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
        let told = build(&[more.as_slice(), &["--strict"]].concat()).refused(1, &["1 source file of another checksum"]);
        let found = &told.json()["sources"]["mismatched"];
        assert_eq!((found.as_array().unwrap().len(), found[0]["path"].as_str()), (1, source.to_str()));
    }
    assert_eq!(std::fs::read_dir(format!("{output}/blobs/sha256")).unwrap().count(), before, "nothing was left");
    let shown = build(&["--dry-run", "--strict"]).refused(1, &["--strict"]).stdout;
    assert!(
        shown.contains("error: ") && shown.contains("is not the source") && shown.contains("1 source mismatch"),
        "{shown}"
    );
    // Without --strict it is told, and left out.
    let told = build(&["--output", output, "--json"]).ok().json();
    assert_eq!(told["sources"]["mismatched"][0]["path"], source.to_str().unwrap());
}

#[test]
fn paths_that_linkers_leave_in_executables_are_told_of() {
    let (Some(clang), Some(link)) = (program::tool("clang"), program::tool("lld-link")) else { return };
    let Some(ld) = program::macho_linker() else { return };
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("app.c"), "int start(int x) { return x * 3; }\n").expect("written");
    let run = |tool: &Path, arguments: &[&str]| {
        let ran = std::process::Command::new(tool).args(arguments).current_dir(dir.path()).output().expect("it starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    run(&clang, &["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", "app.c", "-o", "app.obj"]);
    run(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", "app.obj", "/out:app.dll"]);
    run(&clang, &["--target=arm64-apple-macos11", "-g", "-c", "app.c", "-o", "app.o"]);
    let platform = ["-arch", "arm64", "-platform_version", "macos", "11.0", "11.0", "-undefined", "dynamic_lookup"];
    run(&ld, &[&platform[..], &["-dylib", "-o", "libapp.dylib", "app.o"]].concat());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let arguments = ["bundle", "build", &at("app.dll"), &at("libapp.dylib"), "--output", &at("bundle")];
    symseal(arguments.into_iter().chain(["--name", "app", "--version", "1.0"])).ok();
    let told = symseal(["bundle", "inspect", &at("bundle"), "--disclosure", "--json"]).ok().json();
    let paths: Vec<&str> = told["build_paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    let folder = dir.path().file_name().unwrap().to_str().unwrap();
    for name in ["app.pdb", "app.o", "app.c"] {
        assert!(paths.iter().any(|path| path.contains(folder) && path.ends_with(name)), "{name}: {paths:?}");
    }

    // The program database says where and how the compiler and the linker were run.
    symseal(["bundle", "build", &at("app.pdb"), "--output", &at("windows"), "--name", "app", "--version", "1.0"]).ok();
    let told = symseal(["bundle", "inspect", &at("windows"), "--disclosure", "--json"]).ok().json();
    let texts = |field: &str| {
        let texts = told[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    assert!(texts("compile_directories").iter().any(|path| path.ends_with(folder)), "{told}");
    for name in ["app.obj", "app.pdb"] {
        let is_named = |path: &String| path.contains(folder) && path.ends_with(name);
        assert!(texts("build_paths").iter().any(is_named), "{name}: {told}");
    }
    assert!(texts("command_lines").iter().any(|line| line.contains("/export:start")), "{told}");
    let shown = symseal(["bundle", "inspect", &at("bundle"), "--disclosure"]).ok().stdout;
    assert!(shown.contains("paths of program databases") && shown.contains("app.pdb"), "{shown}");
    let shown = symseal(["bundle", "inspect", &at("windows"), "--disclosure"]).ok().stdout;
    assert!(shown.contains("command lines") && shown.contains("/export:start"), "{shown}");
}
