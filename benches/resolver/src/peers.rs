//! The peers, each at its best setting: files opened before, no demangling, one call for all addresses of a file.

use addr2line::Loader;
use anyhow::Result;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use crate::scene::{Module, Scene};

pub struct Blazesym(Symbolizer);

impl Blazesym {
    pub fn new() -> Self {
        let builder = Symbolizer::builder().enable_code_info(true).enable_inlined_fns(true);
        // Files do not change here; whether they did need not be asked.
        Self(builder.enable_demangling(false).enable_auto_reload(false).build())
    }

    /// Names the whole trace, file by file; how many addresses have a name.
    pub fn trace(&self, scene: &Scene) -> Result<usize> {
        scene.modules.iter().map(|module| self.module(module)).sum()
    }

    pub fn module(&self, module: &Module) -> Result<usize> {
        let found = self.0.symbolize(&Source::Elf(Elf::new(&module.path)), Input::VirtOffset(&module.svmas))?;
        Ok(found.iter().filter(|found| matches!(found, Symbolized::Sym(_))).count())
    }

    /// How many addresses have a line.
    pub fn lines(&self, module: &Module) -> Result<usize> {
        let found = self.0.symbolize(&Source::Elf(Elf::new(&module.path)), Input::VirtOffset(&module.svmas))?;
        let has_line = |found: &Symbolized<'_>| found.as_sym().and_then(|sym| sym.code_info.as_ref()).is_some();
        Ok(found.iter().filter(|found| has_line(found)).count())
    }
}

/// The addr2line crate over the debug file.
pub struct Addr2line(Loader);

/// Function, file and line of a frame.
type Named = (Option<String>, Option<String>, Option<u32>);

impl Addr2line {
    pub fn open(module: &Module) -> Result<Self> {
        let id = module.id.to_string();
        let path = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
        Loader::new(path).map(Self).map_err(|error| anyhow::anyhow!("addr2line: {error}"))
    }

    /// Strings of their own, as the others give them.
    pub fn names(&self, addresses: &[u64]) -> Result<Vec<Vec<Named>>> {
        let name = |address: &u64| {
            let mut frames = self.0.find_frames(*address).map_err(|error| anyhow::anyhow!("addr2line: {error}"))?;
            let mut names = Vec::new();
            while let Some(frame) = frames.next()? {
                let function = frame.function.as_ref().and_then(|it| it.raw_name().ok()).map(|it| it.into_owned());
                let location = frame.location.as_ref();
                let file = location.and_then(|it| it.file).map(str::to_owned);
                names.push((function, file, location.and_then(|it| it.line)));
            }
            Ok(names)
        };
        addresses.iter().map(name).collect()
    }
}
