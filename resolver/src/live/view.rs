//! What is mapped in a process at one moment.

use std::sync::Arc;
use std::time::SystemTime;

use symseal_module::{Avma, DebugId, LocatedAddress, MappedModule, ModuleMap};
use symseal_process::{
    Mapping, ProcessError, ProcessIdentity, ProcessModule, identity_of, maps, modules_in, open_module, proc_maps,
    read_memory,
};

use crate::{MAX_IMAGE_BYTES, VdsoModule, vdso_module};

/// What makes two modules the same one, also in different processes: what it is called, and the file itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModuleKey {
    debug_id: Option<DebugId>,
    path: String,
    file: (symseal_process::Device, u64),
    /// Bytes and time of change of the file of a module without an id: another one may get its path and number.
    stamp: Option<(u64, SystemTime)>,
}

/// A module with what its names are read from.
#[derive(Debug)]
pub(super) struct ViewedModule {
    pub(super) key: ModuleKey,
    pub(super) module: ProcessModule,
    /// The image of a module that is no file.
    pub(super) image: Option<VdsoModule>,
}

/// The mappings and modules of a process, with who it was then.
#[derive(Debug)]
pub(super) struct View {
    pub(super) identity: ProcessIdentity,
    pub(super) mappings: Vec<Mapping>,
    map: ModuleMap,
    /// One for each of the map, in its order.
    modules: Vec<Arc<ViewedModule>>,
}

impl View {
    /// Reads it now. Where nothing changed since `before`, that one is given.
    pub(super) fn read(pid: u32, before: Option<&Arc<Self>>) -> Result<Arc<Self>, ProcessError> {
        let mut identity = identity_of(pid)?;
        loop {
            let mappings = proc_maps(pid)?;
            if let Some(before) = before.filter(|view| view.identity == identity && view.mappings == mappings) {
                return Ok(Arc::clone(before));
            }
            let modules = modules_in(pid, &mappings)?;
            let modules = modules.into_iter().map(|module| ViewedModule::new(pid, module)).map(Arc::new).collect();
            // An exec in the middle would give modules of two programs.
            let after = identity_of(pid)?;
            if after == identity {
                return Ok(Arc::new(Self::new(identity, mappings, modules)));
            }
            if !after.is_same_process(&identity) {
                return Err(ProcessError::NoSuchProcess { pid });
            }
            identity = after;
        }
    }

    fn new(identity: ProcessIdentity, mappings: Vec<Mapping>, read: Vec<Arc<ViewedModule>>) -> Self {
        let map = ModuleMap::new(read.iter().map(|viewed| viewed.module.module.clone()).collect());
        // The map sorts, and leaves out what overlaps.
        let of = |module: &MappedModule| read.iter().find(|viewed| viewed.module.module == *module).cloned();
        let modules: Vec<Arc<ViewedModule>> = map.modules().iter().filter_map(of).collect();
        Self { identity, mappings, map, modules }
    }

    /// The module that holds `address`.
    pub(super) fn locate(&self, address: Avma) -> Option<(&Arc<ViewedModule>, LocatedAddress)> {
        let at = self.map.locate(address)?;
        // A module's range may have holes in which others lie.
        let mapping = maps::find(&self.mappings, address);
        let viewed = self.modules.get(at.module)?;
        let own = mapping.is_some_and(|mapping| mapping.inode == 0 || mapping.inode == viewed.module.inode);
        own.then_some((viewed, at))
    }

    /// The mapping that holds `address`.
    pub(super) fn mapping(&self, address: Avma) -> Option<&Mapping> {
        maps::find(&self.mappings, address)
    }

    /// Estimated.
    pub(super) fn bytes(&self) -> u64 {
        let paths: usize = self.mappings.iter().map(|mapping| mapping.path.len()).sum();
        let mappings = self.mappings.len().saturating_mul(size_of::<Mapping>());
        let modules = self.modules.len().saturating_mul(size_of::<ViewedModule>().saturating_mul(2));
        paths.saturating_add(mappings).saturating_add(modules) as u64
    }
}

impl ViewedModule {
    fn new(pid: u32, module: ProcessModule) -> Self {
        let image = if module.is_vdso() { vdso(pid, &module) } else { None };
        let key = ModuleKey {
            debug_id: module.module.debug_id.clone(),
            path: module.module.path.clone(),
            file: (module.device, module.inode),
            stamp: if module.module.debug_id.is_none() && image.is_none() { stamp(pid, &module) } else { None },
        };
        Self { key, module, image }
    }
}

fn stamp(pid: u32, module: &ProcessModule) -> Option<(u64, SystemTime)> {
    let found = open_module(pid, module).ok()?.file.metadata().ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// The vDSO as it lies in the process.
fn vdso(pid: u32, module: &ProcessModule) -> Option<VdsoModule> {
    let bytes = module.mapping_end.0.saturating_sub(module.mapping_start.0);
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_IMAGE_BYTES)?;
    let mut image = vec![0; bytes];
    let read = read_memory(pid, module.mapping_start, &mut image).ok()?;
    image.truncate(read);
    vdso_module(&image).ok()
}
