//! A folder with a program and its debug files, and what is asked of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_module::{Avma, DebugId, MappedModule, ModuleMap, Proof, Quality, ResolverStep, Rva, UnwindMethod};
use symseal_resolver::{Options, ResolvedFrame, Resolver, Tried};

pub(crate) const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
static __attribute__((noinline)) int hidden(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return hidden(argc, &y); }
";

/// Where modules are mapped.
pub(crate) const BIAS: u64 = 0x7000_0000;

/// Runs a tool in a folder; `None`, with a word about it, where there is none.
pub(crate) fn tool(names: &[&str], arguments: &[&str], folder: &Path) -> Option<()> {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    for name in names {
        let Ok(ran) = Command::new(name).args(arguments).current_dir(folder).output() else { continue };
        assert!(ran.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        return Some(());
    }
    assert!(!required.split(',').any(|name| names.contains(&name)), "{names:?}: not found, and it is required");
    eprintln!("SKIP {}: not found", names[0]);
    None
}

/// A folder with a program in it, and directories for debug files.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) id: DebugId,
}

impl Scene {
    /// Compiles `app`; every other file is the test's to make.
    pub(crate) fn new(flags: &[&str]) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("app.c"), SOURCE).unwrap();
        let arguments = [&["-O2", "app.c", "-Wl,--build-id", "-o", "app"], flags].concat();
        tool(&["gcc", "clang"], &arguments, root.path())?;
        let id = id_of(&root.path().join("app"));
        Some(Self { root, id })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Option<()> {
        tool(&[program], arguments, self.root.path())
    }

    /// Moves the debug information to `to`; the program keeps neither it nor its symbols.
    pub(crate) fn split(&self, to: &str) -> Option<()> {
        std::fs::create_dir_all(self.at(to).parent().unwrap()).unwrap();
        self.run("objcopy", &["--only-keep-debug", "app", to])?;
        self.run("objcopy", &["--strip-all", "app"])
    }

    pub(crate) fn by_build_id(&self) -> String {
        let hex = self.id.to_string();
        format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..])
    }

    pub(crate) fn resolver(&self) -> Resolver {
        Resolver::new(Options { local_files: true, ..Options::default() })
            .with_debug_directories(vec![self.at("debug")])
    }

    pub(crate) fn ask(&self, resolver: &Resolver, rva: u64) -> ResolvedFrame {
        ask(resolver, &self.at("app"), &self.id, rva)
    }

    /// What a bundle of these files says, which the builder paired.
    pub(crate) fn bundled(&self, paths: &[&str]) -> Resolver {
        let layout = LayoutDir::create(self.at("layout")).unwrap();
        let options = BuildOptions { name: "app".into(), version: "1".into(), progress: None };
        let builder =
            paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(self.at(path)));
        let built = builder.build(&layout).unwrap();
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        Resolver::new(Options::default()).with_bundle(bundle, Proof::DigestKnown)
    }

    /// Every address of the program's code has the same frames in both.
    pub(crate) fn agrees(&self, local: &Resolver, bundled: &Resolver, step: ResolverStep) {
        let bytes = std::fs::read(self.at("app")).unwrap();
        let text = ObjectFile::parse(&bytes).unwrap().unwind_inputs().text;
        let mut named = 0;
        for rva in text.into_iter().flatten() {
            let (found, expected) = (self.ask(local, rva), bundled.symbolize(&self.id, Rva(rva)));
            if expected.quality == Quality::Full {
                assert_eq!((found.resolver, &found.frames), (step, &expected.frames), "{rva:#x}");
                named += 1;
            }
        }
        assert!(named > 20, "{named} addresses have lines");
    }
}

pub(crate) fn id_of(path: &Path) -> DebugId {
    let bytes = std::fs::read(path).unwrap();
    ReleaseFile::parse(&bytes).unwrap().debug_ids().first().unwrap().clone()
}

/// A process in which the file at `path` is mapped by the name `called`.
pub(crate) fn mapped(path: &Path, called: &str, id: &DebugId) -> ModuleMap {
    let bytes = std::fs::read(path).unwrap();
    let image_base = ObjectFile::parse(&bytes).unwrap().image_base();
    ModuleMap::new(vec![MappedModule {
        path: called.into(),
        debug_id: Some(id.clone()),
        start: Avma(BIAS + image_base.0),
        end: Avma(BIAS + image_base.0 + 0x100_0000),
        bias: BIAS,
        image_base,
    }])
}

pub(crate) fn ask_in(resolver: &Resolver, map: &ModuleMap, rva: u64) -> ResolvedFrame {
    let ip = Avma(BIAS + map.modules()[0].image_base.0 + rva);
    resolver.resolve(map, ip, true, UnwindMethod::Context)
}

pub(crate) fn ask(resolver: &Resolver, path: &Path, id: &DebugId, rva: u64) -> ResolvedFrame {
    ask_in(resolver, &mapped(path, path.to_str().unwrap(), id), rva)
}

/// The address of a function, by the program's own symbols before they were taken away.
pub(crate) fn address(path: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
    let found = stream.functions.iter().find(|function| stream.strings.get(function.name) == name);
    found.unwrap_or_else(|| panic!("no function {name}")).start.0
}

pub(crate) fn tried(frame: &ResolvedFrame, step: ResolverStep) -> &Tried {
    frame.tried.iter().find(|tried| tried.step == step).unwrap_or_else(|| panic!("{step}: {:#?}", frame.tried))
}

pub(crate) const DEBUG_FILE: ResolverStep = ResolverStep::DebugFile;
