//! Builds a bundle from files and directories, and verifies its contents: `build_bundle LAYOUT PATH…`.
//!
//! Prints times and sizes; `/usr/bin/time -v` around it gives the peak of memory.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use symseal_artifact::ReleaseFile;
use symseal_builder::{Options, SymbolBundleBuilder};
use symseal_bundle::verify::verify_contents;
use symseal_bundle::{Bundle, FileRole, LayoutDir};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let layout = arguments.next().ok_or("usage: build_bundle LAYOUT PATH…")?;
    let options = Options { name: "measured".to_owned(), version: "1.0".to_owned(), progress: None };
    let builder = arguments.fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path));

    let started = Instant::now();
    let built = builder.build_into(&layout)?;
    println!("{} in {:.3} s", built.digest, started.elapsed().as_secs_f64());
    println!(
        "modules {}, files {}, bytes {}",
        built.index.statistics.modules, built.index.statistics.files, built.index.statistics.bytes
    );
    println!("symbol_index.json {} bytes", built.index.to_canonical_json()?.len());
    for role in
        [FileRole::Debuginfo, FileRole::SymbolTable, FileRole::UnwindTable, FileRole::ModuleIndex, FileRole::PageHashes]
    {
        let bytes: u64 = built.index.files().filter(|file| file.role == role).map(|file| file.size).sum();
        println!("{role:14} {bytes} bytes");
    }

    let bundle = Bundle::open(LayoutDir::open(&layout)?, Some(&built.digest))?;
    let started = Instant::now();
    let contents =
        verify_contents(&bundle, &|bytes| ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default());
    println!(
        "verified {} files, {} bytes: {} in {:.3} s",
        contents.files,
        contents.bytes,
        contents.holds(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
