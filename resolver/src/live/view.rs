//! What is mapped in a process at one moment.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use symseal_module::{Avma, DebugId, LocatedAddress, MappedModule, ModuleMap};
use symseal_process::{
    Mapping, ProcessError, ProcessIdentity, ProcessModule, identity_of, maps, modules_again, open_module, proc_maps,
    read_memory,
};

use super::modules::Names;
use super::shelf::Place;
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
    /// Where its names are, once somebody asked for it.
    pub(super) place: OnceLock<Arc<Place<Names>>>,
}

/// The mappings and modules of a process, with who it was then.
#[derive(Debug)]
pub(super) struct View {
    pub(super) identity: ProcessIdentity,
    pub(super) mappings: Vec<Mapping>,
    /// As they were read.
    read: Vec<Arc<ViewedModule>>,
    map: ModuleMap,
    /// One for each of the map, in its order.
    modules: Vec<Arc<ViewedModule>>,
    bytes: u64,
}

impl View {
    /// Reads it now. Where nothing changed since `before`, that one is given.
    ///
    /// That the mappings are the same says little: a library that was unloaded, built again and loaded again often lies at
    /// the same addresses, and has the number of the old file too. So the build-ids in memory are read each time, which takes
    /// three short reads a module; what else is known of a module is kept where its mapping and id are the same.
    pub(super) fn read(pid: u32, before: Option<&Arc<Self>>) -> Result<Arc<Self>, ProcessError> {
        let mut identity = identity_of(pid)?;
        loop {
            let before = before.filter(|view| view.identity == identity);
            let known: &[Arc<ViewedModule>] = before.map_or(&[], |view| &view.read);
            let mappings = proc_maps(pid)?;
            let modules: Vec<&ProcessModule> = known.iter().map(|viewed| &viewed.module).collect();
            let modules = modules_again(pid, &mappings, &modules)?;
            let read: Vec<_> = modules.into_iter().map(|module| ViewedModule::again(pid, module, known)).collect();
            let is_same = |view: &&Arc<Self>| {
                view.mappings == mappings
                    && view.read.len() == read.len()
                    && view.read.iter().zip(&read).all(|(old, new)| Arc::ptr_eq(old, new))
            };
            if let Some(before) = before.filter(is_same) {
                return Ok(Arc::clone(before));
            }
            // An exec in the middle would give modules of two programs.
            let after = identity_of(pid)?;
            if after == identity {
                return Ok(Arc::new(Self::new(identity, mappings, read)));
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
        let mut by_start: HashMap<Avma, Vec<&Arc<ViewedModule>>> = HashMap::new();
        for viewed in &read {
            by_start.entry(viewed.module.module.start).or_default().push(viewed);
        }
        let of = |module: &MappedModule| {
            let mut there = by_start.get(&module.start)?.iter();
            there.find(|viewed| viewed.module.module == *module).map(|viewed| Arc::clone(viewed))
        };
        let modules: Vec<Arc<ViewedModule>> = map.modules().iter().filter_map(of).collect();
        let bytes = bytes_of(&mappings, &modules);
        Self { identity, mappings, read, map, modules, bytes }
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

    /// What it weighs, estimated.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn bytes_of(mappings: &[Mapping], modules: &[Arc<ViewedModule>]) -> u64 {
    let paths: usize = mappings.iter().map(|mapping| mapping.path.len()).sum();
    let mappings = mappings.len().saturating_mul(size_of::<Mapping>());
    let modules = modules.len().saturating_mul(size_of::<ViewedModule>().saturating_mul(2));
    paths.saturating_add(mappings).saturating_add(modules) as u64
}

impl ViewedModule {
    /// A module that was read now; the one in `before`, which rises as the mappings do, where it is the same.
    fn again(pid: u32, module: ProcessModule, before: &[Arc<Self>]) -> Arc<Self> {
        let found = before.binary_search_by_key(&module.mapping_start, |viewed| viewed.module.mapping_start);
        let before = found.ok().and_then(|at| before.get(at)).filter(|before| before.module == module);
        if let Some(before) = before.filter(|before| before.key.stamp.is_none() && before.key.debug_id.is_some()) {
            return Arc::clone(before);
        }
        let read = Self::new(pid, module);
        // Nothing but its file tells whether a module without an id is the same.
        before.filter(|before| before.key == read.key).map_or_else(|| Arc::new(read), Arc::clone)
    }

    fn new(pid: u32, module: ProcessModule) -> Self {
        let image = if module.is_vdso() { vdso(pid, &module) } else { None };
        let key = ModuleKey {
            debug_id: module.module.debug_id.clone(),
            path: module.module.path.clone(),
            file: (module.device, module.inode),
            stamp: if module.module.debug_id.is_none() && image.is_none() { stamp(pid, &module) } else { None },
        };
        Self { key, module, image, place: OnceLock::new() }
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
