//! A kernel and its modules, as a distribution's debug package has them: `vmlinux` beside llvm-symbolizer, modules beside
//! addr2line. `SYMSEAL_KERNEL_DEBUG` names the folder that holds `boot/` and `lib/modules/`, else `/usr/lib/debug`
//! (Debian's linux-image-…-dbg).

use crate::support::accuracy::{LEAST, measure, print_row};
use crate::support::addr2line::{addr2line_in_section, without_symbols};
use crate::support::compare::Comparison;
use crate::support::{addresses_in, have, llvm_symbolizer_in, lookup, run, skip};
use std::path::{Path, PathBuf};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

fn folder() -> PathBuf {
    std::env::var_os("SYMSEAL_KERNEL_DEBUG").map_or_else(|| "/usr/lib/debug".into(), PathBuf::from)
}

/// Files below a folder whose name passes, by path.
fn found(folder: &Path, passes: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(self::found(&path, passes));
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(passes) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn a_kernel_agrees_with_llvm_symbolizer() {
    let kernels = found(&folder().join("boot"), &|name| name.starts_with("vmlinux"));
    let Some(path) = kernels.first() else {
        skip("linux-image-dbg");
        return;
    };
    if !have("llvm-symbolizer") {
        return;
    }
    let bytes = std::fs::read(path).expect("the kernel");
    let object = ObjectFile::parse(&bytes).expect("an object");
    if have("eu-readelf") {
        let notes = run("eu-readelf", &["-n", &path.display().to_string()], Path::new(".")).expect("notes");
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
        assert_eq!(id.map(str::to_owned), object.debug_id().map(ToString::to_string), "the kernel's build-id");
    }
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let measured = measure(&object.unwind_inputs().text, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(llvm_symbolizer_in(Path::new("."), path, addresses)) {
            comparison.add(*address, &expected, &lookup::frames(&stream, address.wrapping_sub(object.image_base().0)));
        }
        comparison
    });
    let name = path.file_name().expect("a name").to_string_lossy();
    measured.print("A Linux kernel", &name);
    println!("{name}: {}{:?}", measured.comparison, stream.statistics);
    assert_eq!(measured.verdict(&name), None);
}

#[test]
fn kernel_modules_agree_with_addr2line() {
    let modules = found(&folder().join("lib/modules"), &|name| name.ends_with(".ko") || name.ends_with(".ko.debug"));
    if modules.is_empty() {
        skip("linux-image-dbg");
        return;
    }
    if !have("addr2line") {
        return;
    }
    let mut comparison = Comparison::default();
    let step = modules.len().div_ceil(40);
    for path in modules.iter().step_by(step) {
        let bytes = std::fs::read(path).expect("a module");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        lookup::check_shape(&stream);
        // Alone: behind it may lie `.exit.text`, of which addr2line knows nothing under this section's name. It is at 0.
        let sections = object.code_sections().into_iter();
        let text: Vec<_> = sections.filter(|(name, _)| *name == b".text").map(|(_, range)| range).collect();
        assert_eq!(text.first().map(|text| text.start), Some(0), "{}", path.display());
        let addresses = addresses_in(&text, 200, 19);
        for (address, expected) in addresses.iter().zip(addr2line_in_section(".text", path, &addresses)) {
            let found = lookup::frames(&stream, *address);
            comparison.add(*address, &without_symbols(expected, &found), &found);
        }
    }
    print_row(
        "A Linux kernel",
        &format!("{} of its modules, {} in all", modules.iter().step_by(step).count(), modules.len()),
        "",
        &comparison,
    );
    println!("{comparison}");
    assert!(comparison.compared >= 2_000 && comparison.ratio(comparison.lines_equal) >= LEAST, "{comparison}");
    assert!(comparison.ratio(comparison.names_equal) >= LEAST, "{comparison}");
}
