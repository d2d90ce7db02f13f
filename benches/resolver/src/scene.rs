//! The bundles, and the addresses that are asked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSymbol, SymbolKind};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_module::{Avma, DebugId, MappedModule, ModuleMap, Proof, Svma, UnwindMethod};
use symseal_resolver::{FrameAddress, Options, Resolver};

/// Libraries in the trace.
pub const MODULES: usize = 200;
/// Frames of the trace.
pub const FRAMES: usize = 10_000;
/// Bytes of the process between the libraries.
const DISTANCE: u64 = 1 << 32;

/// A library, with the addresses in it that are asked for.
pub struct Module {
    pub path: PathBuf,
    pub id: DebugId,
    /// Stated addresses.
    pub svmas: Vec<u64>,
}

pub struct Scene {
    folder: tempfile::TempDir,
    pub modules: Vec<Module>,
    pub map: ModuleMap,
    /// The trace, its frames in no order that would help.
    pub frames: Vec<FrameAddress>,
    /// 100 addresses of the C library, which has its debug file.
    pub libc: Module,
}

impl Scene {
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut random = Random(0x5eed);
        let mut modules = Vec::new();
        let mut seen = BTreeSet::new();
        for path in libraries()? {
            if modules.len() == MODULES {
                break;
            }
            if let Some(module) = module(&path, FRAMES / MODULES, &mut random)?
                && seen.insert(module.id.clone())
            {
                modules.push(module);
            }
        }
        if modules.len() < MODULES {
            eprintln!("this machine has {} libraries to draw from, of {MODULES}", modules.len());
        }
        let libc = module(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6"), 100, &mut random)?;
        let libc = libc.context("the C library has no symbols")?;
        let map = ModuleMap::new(modules.iter().zip(1..).map(|(module, at)| mapped(module, at * DISTANCE)).collect());
        let mut frames: Vec<FrameAddress> = modules
            .iter()
            .zip(1..)
            .flat_map(|(module, at)| module.svmas.iter().map(move |svma| Avma(at * DISTANCE + svma)))
            .map(|ip| FrameAddress { ip, exact: true, unwind: UnwindMethod::Context })
            .collect();
        for at in (1..frames.len()).rev() {
            frames.swap(at, random.below(at as u64 + 1) as usize);
        }
        let scene = Self { folder, modules, map, frames, libc };
        let trace: Vec<&Path> = scene.modules.iter().map(|module| module.path.as_path()).collect();
        build(&scene.store("trace"), &trace)?;
        let debug = debug_file(&scene.libc.id)?;
        build(&scene.store("libc"), &[&scene.libc.path, &debug])?;
        Ok(scene)
    }

    pub fn store(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A resolver of one of the two bundles, whose tables lie in a store of our own.
    pub fn resolver(&self, name: &str, address_cache: usize) -> Result<Resolver> {
        let bundle = Bundle::open(LayoutDir::open(self.store(name))?, None)?;
        let options = Options { address_cache, ..Options::default() };
        Ok(Resolver::new(options).with_stored_bundle(bundle, Proof::DigestKnown))
    }

    /// Bytes of the symbol tables of the trace's bundle.
    pub fn table_bytes(&self) -> Result<u64> {
        let bundle = Bundle::open(LayoutDir::open(self.store("trace"))?, None)?;
        let tables =
            bundle.index().modules().filter_map(|(_, _, module)| module.file(symseal_bundle::FileRole::SymbolTable));
        Ok(tables.map(|file| file.size).sum())
    }
}

fn mapped(module: &Module, base: u64) -> MappedModule {
    MappedModule {
        path: module.path.display().to_string(),
        debug_id: Some(module.id.clone()),
        start: Avma(base),
        end: Avma(base + DISTANCE - 1),
        bias: base,
        image_base: Svma(0),
    }
}

fn libraries() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/usr/lib/x86_64-linux-gnu")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && entry.file_name().to_string_lossy().contains(".so") {
                found.push(path);
            }
        }
    }
    // Those with the most code first: they have the most to look through.
    found.sort_by_key(|path| (std::cmp::Reverse(path.metadata().map_or(0, |it| it.len())), path.clone()));
    // The largest two are compilers, whose tables would be most of the bundle.
    Ok(found.into_iter().skip(2).collect())
}

/// A library with so many addresses of it; `None` where it has not as many functions.
fn module(path: &Path, addresses: usize, random: &mut Random) -> Result<Option<Module>> {
    let bytes = std::fs::read(path)?;
    let Ok(file) = object::File::parse(&*bytes) else { return Ok(None) };
    let Some(id) = file.build_id().ok().flatten().and_then(|id| DebugId::from_build_id(id).ok()) else {
        return Ok(None);
    };
    let mut middles: Vec<u64> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 8)
        .map(|symbol| symbol.address() + symbol.size() / 2)
        .collect();
    middles.sort_unstable();
    middles.dedup();
    if middles.len() < addresses {
        return Ok(None);
    }
    let svmas = (0..addresses).map(|_| middles[random.below(middles.len() as u64) as usize]).collect();
    Ok(Some(Module { path: path.to_owned(), id, svmas }))
}

fn debug_file(id: &DebugId) -> Result<PathBuf> {
    let id = id.to_string();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    if !path.exists() {
        bail!("{}: install libc6-dbg", path.display());
    }
    Ok(path)
}

fn build(output: &Path, paths: &[&Path]) -> Result<()> {
    let program = std::env::var_os("SYMSEAL").map_or_else(|| PathBuf::from("target/release/symseal"), PathBuf::from);
    let status = Command::new(&program)
        .args(["bundle", "build", "--name", "bench", "--version", "1", "--output"])
        .arg(output)
        .args(paths)
        .stdout(std::process::Stdio::null())
        .status()
        .with_context(|| format!("{}: build it with `cargo build --release`, or set SYMSEAL", program.display()))?;
    anyhow::ensure!(status.success(), "{} bundle build: {status}", program.display());
    Ok(())
}

/// A generator that is the same everywhere: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }
}
