//! A release for three systems: the same function in an ELF program, a Windows library and a macOS library, each with its debug file.
#![allow(unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{compile_c, macho_linker, tool};

const SOURCE: &str = "\
int innermost_of_the_test(int n) {
    return n * n;
}

int main(int argc, char **argv) {
    (void)argv;
    return innermost_of_the_test(argc) > 1000;
}
";

/// Makes it in the folder; `None`, with a word about it, where a tool is missing.
pub fn make(inputs: &Path) -> Option<()> {
    add_linux(inputs)?;
    add_windows(inputs)?;
    add_macos(inputs)
}

/// A stripped program and its debug file.
fn add_linux(inputs: &Path) -> Option<()> {
    let whole = compile_c(inputs, "whole", SOURCE, &["-g", "-O0", "-Wl,--build-id"])?;
    let objcopy = tool("objcopy")?;
    let copy = |option: &str, to: &str| run(Command::new(&objcopy).arg(option).arg(&whole).arg(inputs.join(to)));
    copy("--only-keep-debug", "app.debug");
    copy("--strip-all", "app");
    std::fs::remove_file(whole).expect("removed");
    Some(())
}

/// A DLL and its program database.
fn add_windows(inputs: &Path) -> Option<()> {
    let (clang, lld) = (tool("clang")?, tool("lld-link")?);
    std::fs::write(inputs.join("win.c"), SOURCE).expect("a source");
    run(Command::new(clang).current_dir(inputs).args([
        "--target=x86_64-pc-windows-msvc",
        "-g",
        "-gcodeview",
        "-O0",
        "-c",
        "win.c",
        "-o",
        "win.obj",
    ]));
    run(Command::new(lld).current_dir(inputs).args([
        "/dll",
        "/debug",
        "/noentry",
        "/nodefaultlib",
        "/export:innermost_of_the_test",
        "win.obj",
        "/out:app.dll",
        "/pdb:app.pdb",
    ]));
    ["win.c", "win.obj", "app.lib"].iter().for_each(|name| drop(std::fs::remove_file(inputs.join(name))));
    Some(())
}

/// A library and its dSYM.
fn add_macos(inputs: &Path) -> Option<()> {
    let (clang, lld, dsymutil) = (tool("clang")?, macho_linker()?, tool("dsymutil")?);
    std::fs::write(inputs.join("mac.c"), SOURCE).expect("a source");
    let run = |program: PathBuf, arguments: &[&str]| run(Command::new(program).current_dir(inputs).args(arguments));
    run(clang, &["--target=arm64-apple-macos11", "-g", "-O0", "-c", "mac.c", "-o", "mac.o"]);
    let link = ["-arch", "arm64", "-platform_version", "macos", "11.0", "11.0", "-dylib", "mac.o", "-o", "app.dylib"];
    run(lld, &link);
    run(dsymutil, &["app.dylib"]);
    ["mac.c", "mac.o"].iter().for_each(|name| drop(std::fs::remove_file(inputs.join(name))));
    Some(())
}

/// Runs a tool to its end, and gives what it printed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{errors}");
    out.into_owned()
}
