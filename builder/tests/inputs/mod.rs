//! Release files for the tests, made with the machine's C compiler, and the tools that look at bundles.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use symseal_builder::{BuildError, Built, Options, SymbolBundleBuilder};
use symseal_bundle::{Bundle, LayoutDir};

/// The tool's path; where it is missing, says so, or fails where `SYMSEAL_REQUIRE` names it.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|candidate| candidate.is_file());
    if found.is_none() {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|tool| tool == name || tool == "all"), "{name} is required and was not found");
        println!("SKIP {name}: not found");
    }
    found
}

pub(crate) fn run(program: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}{}",
        program.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Compiles C into `dir/name`, without a C library: fast, and small.
pub(crate) fn compile(cc: &Path, dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (file, output) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&file, source).unwrap();
    let mut arguments =
        vec!["-shared", "-fPIC", "-nostdlib", "-O1", "-o", output.to_str().unwrap(), file.to_str().unwrap()];
    arguments.extend(flags);
    run(cc, &arguments);
    std::fs::remove_file(file).unwrap();
    output
}

pub(crate) const SOURCE: &str = "
volatile int global;
static inline __attribute__((always_inline)) int twice(int x) { global ^= x; global += 3; return global * 2; }
__attribute__((noinline)) int add(int a, int b) { global += a; return twice(a) + b; }
int main_like(int n) { int s = 0; for (int i = 0; i < n; i++) s += add(i, s); return s; }
";

/// Three modules: `full` with debug information, `split` with a debug file apart, `bare` stripped.
pub(crate) struct Release {
    pub(crate) dir: tempfile::TempDir,
}

impl Release {
    /// `None` where there is no C compiler.
    pub(crate) fn make() -> Option<Self> {
        let (cc, objcopy, strip) = (tool("cc")?, tool("objcopy")?, tool("strip")?);
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        compile(&cc, at, "full.so", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
        let split = compile(&cc, at, "split.so", SOURCE, &["-g", "-Wl,--build-id=0xbb01020304"]);
        let debug = at.join("split.debug");
        let (split, debug) = (split.to_str().unwrap(), debug.to_str().unwrap());
        run(&objcopy, &["--only-keep-debug", split, debug]);
        run(&strip, &["--strip-all", split]);
        compile(&cc, at, "bare.so", SOURCE, &["-s", "-Wl,--build-id=0xcc01020304"]);
        Some(Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

pub(crate) fn builder(paths: &[PathBuf]) -> SymbolBundleBuilder {
    let options = Options { name: "app".to_owned(), version: "1.0".to_owned(), progress: None };
    paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path))
}

pub(crate) fn build(paths: &[PathBuf], layout: &LayoutDir) -> Result<Built, BuildError> {
    builder(paths).build(layout)
}

/// The lent inputs, where there are some.
pub(crate) fn fixtures() -> Option<PathBuf> {
    let found = std::env::var_os("SYMSEAL_FIXTURES").map(PathBuf::from);
    if found.is_none() {
        println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
    }
    found
}

/// What a build of these paths reports, without a bundle.
pub(crate) fn report(paths: &[PathBuf]) -> symseal_builder::BuildReport {
    builder(paths).report().unwrap()
}

/// What a tool prints.
pub(crate) fn output(program: &Path, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&run(program, arguments).stdout).into_owned()
}

/// Every file of the bundle at its title, which is what `oras pull` leaves.
pub(crate) fn lay_out(layout: &LayoutDir, into: &Path) {
    let bundle = Bundle::open(layout.clone(), None).unwrap();
    for file in bundle.index().files() {
        let path = into.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bundle.read(file).unwrap()).unwrap();
    }
}
