//! Every debug file of three Debian packages against llvm-symbolizer: C with assembly, C++ templates, a large C program.

use crate::support::accuracy::{Measured, measure, print_row};
use crate::support::compare::Comparison;
use crate::support::debian::{debug_files, unpacked};
use crate::support::downloads::{Download, LIBC_DEBUG, LIBSTDCPP_DEBUG, PYTHON_DEBUG};
use crate::support::{have, in_parallel, llvm_symbolizer_in, lookup};
use std::path::Path;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const PACKAGES: [Download; 3] = [LIBC_DEBUG, LIBSTDCPP_DEBUG, PYTHON_DEBUG];

#[test]
fn every_debug_file_of_debian_packages_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") || !have("dpkg-deb") || !have("apt-get") {
        return;
    }
    for package in PACKAGES {
        let Some(folder) = unpacked(&package) else { continue };
        let package = package.name;
        let files = debug_files(&folder);
        assert!(!files.is_empty(), "{package} has debug files");
        let (mut all, mut wrong, mut worst) = (Comparison::default(), Vec::new(), 1.0_f64);
        let mut whole = 0;
        for (path, measured) in files.iter().zip(in_parallel(&files, |path| compare(path))) {
            let name = path.strip_prefix(&folder).unwrap_or(path).display().to_string();
            measured.print(&format!("files of {package}"), &name);
            wrong.extend(measured.verdict(&name));
            worst = worst.min(measured.comparison.ratio(measured.comparison.lines_equal));
            whole += u32::from(measured.is_whole());
            all.add_all(measured.comparison);
        }
        let remark = format!(" in {} files, all of the code in {whole} of them", files.len());
        print_row("Debian's debug packages", package, &remark, &all);
        println!("{package}: {} files, of the worst {worst:.5} agree\n{all}", files.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

fn compare(path: &Path) -> Measured {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let base = object.image_base().0;
    measure(&object.unwind_inputs().text, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(&llvm_symbolizer_in(Path::new("."), path, addresses)) {
            comparison.add(*address, expected, &lookup::frames(&stream, address.wrapping_sub(base)));
        }
        comparison
    })
}
