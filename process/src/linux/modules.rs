//! The modules of a process, from its mappings.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use symseal_module::escape::escape;
use symseal_module::{Avma, DebugId, MappedModule};

use super::memory::read_memory;
use super::neighbours::{MappedFile, Neighbours, file_of};
use super::open::{file_build_id, file_image, open_module};
use super::proc_maps;
use crate::image::Image;
use crate::maps::is_moved_code;
use crate::{IdentifiedBy, Mapping, ProcessError, ProcessModule};

const PAGE: u64 = 4096;

/// The modules of a process, by rising address: every file that is mapped executable, or whose code was moved to memory, and is ELF or PE, and the vDSO.
pub fn modules_of(pid: u32) -> Result<Vec<ProcessModule>, ProcessError> {
    modules_in(pid, &proc_maps(pid)?)
}

/// The same, from mappings that were read before.
pub fn modules_in(pid: u32, mappings: &[Mapping]) -> Result<Vec<ProcessModule>, ProcessError> {
    modules_again(pid, mappings, &[])
}

/// The same, where `before` were the modules a moment ago. What lies in memory is read again, as another file may have come to
/// the same address; files are opened of those modules alone whose mapping or build-id in memory is another one now.
pub fn modules_again(
    pid: u32,
    mappings: &[Mapping],
    before: &[&ProcessModule],
) -> Result<Vec<ProcessModule>, ProcessError> {
    let mut reading = Reading {
        pid,
        mappings,
        neighbours: Neighbours::of(mappings),
        before: before.iter().map(|module| (module.mapping_start, *module)).collect(),
        in_memory: HashMap::new(),
        in_file: HashMap::new(),
    };
    let mut modules: Vec<ProcessModule> = Vec::new();
    // The last module of each file.
    let mut last: HashMap<MappedFile, usize> = HashMap::new();
    for at in 0..mappings.len() {
        // Of code that was moved out of its file, the mapping before it tells the file.
        let is_moved = is_moved_code(mappings, at);
        let index = if is_moved { at.saturating_sub(1) } else { at };
        let Some(mapping) = mappings.get(index) else { break };
        let is_code = is_moved || mapping.executable && (mapping.is_file() || mapping.path == b"[vdso]");
        // One module often has several executable mappings: mprotect splits them.
        let known = last
            .get(&file_of(mapping))
            .and_then(|at| modules.get(*at))
            .is_some_and(|module| module.module.start <= mapping.start && mapping.end <= module.module.end);
        if is_code
            && !known
            && let Some(module) = reading.module_at(index, mapping)?
        {
            last.insert(file_of(mapping), modules.len());
            modules.push(module);
        }
    }
    Ok(modules)
}

/// What is read once for all mappings of a file.
struct Reading<'m> {
    pid: u32,
    mappings: &'m [Mapping],
    neighbours: Neighbours<'m>,
    /// By the mapping that each was found by.
    before: HashMap<Avma, &'m ProcessModule>,
    /// The headers in memory, by the mapping that they lie in; `None` where there are none.
    in_memory: HashMap<usize, Option<Image>>,
    /// The headers in the file.
    in_file: HashMap<MappedFile, Option<Image>>,
}

impl Reading<'_> {
    /// The module that an executable mapping belongs to; `None` where that is neither ELF nor PE.
    fn module_at(&mut self, index: usize, mapping: &Mapping) -> Result<Option<ProcessModule>, ProcessError> {
        let mut module = ProcessModule {
            module: MappedModule {
                path: escape(&mapping.path),
                debug_id: None,
                start: mapping.start,
                end: mapping.end,
                bias: 0,
                image_base: Default::default(),
            },
            path: mapping.path.clone(),
            device: mapping.device,
            inode: mapping.inode,
            deleted: mapping.deleted,
            mapping_start: mapping.start,
            mapping_end: mapping.end,
            identified_by: IdentifiedBy::None,
            opened_by: None,
            file_debug_id: None,
        };
        let Some(image) = self.image(&module, mapping)?.cloned() else { return Ok(None) };
        let Some(bias) = image.bias(mapping.start.0, mapping.offset) else { return Ok(None) };
        module.module.bias = bias;
        module.module.image_base = image.image_base();
        (module.module.start, module.module.end) = range(&image, bias, mapping, self.neighbours.room(index));
        if let Some(id) = build_id_in_memory(self.pid, &image, bias)? {
            module.module.debug_id = Some(id);
            module.identified_by = IdentifiedBy::Memory;
        }
        if let Some(before) = self.before.get(&mapping.start).filter(|before| is_same_file(before, &module)) {
            (module.opened_by, module.file_debug_id) = (before.opened_by, before.file_debug_id.clone());
        } else if !module.is_vdso()
            && let Ok(opened) = open_module(self.pid, &module)
        {
            module.opened_by = Some(opened.by);
            module.file_debug_id = file_build_id(&opened.file);
            if module.module.debug_id.is_none() && module.file_debug_id.is_some() {
                module.module.debug_id = module.file_debug_id.clone();
                module.identified_by = IdentifiedBy::File;
            }
        }
        Ok(Some(module))
    }

    /// The headers of the file that is mapped here: those in memory, else those in the file.
    fn image(&mut self, module: &ProcessModule, code: &Mapping) -> Result<Option<&Image>, ProcessError> {
        let Self { pid, mappings, neighbours, in_memory, in_file, .. } = self;
        let head = neighbours.head(code).and_then(|index| Some((index, mappings.get(index)?)));
        if let Some((index, head)) = head {
            let image = match in_memory.entry(index) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => unread.insert(image_in_memory(*pid, head)?),
            };
            if let Some(image) = image {
                return Ok(Some(image));
            }
        }
        if module.is_vdso() {
            return Ok(None);
        }
        let read = || open_module(*pid, module).ok().and_then(|opened| file_image(&opened.file));
        Ok(in_file.entry(file_of(code)).or_insert_with(read).as_ref())
    }
}

/// Whether a module is the one of before, as its mapping and its build-id in memory tell.
fn is_same_file(before: &ProcessModule, now: &ProcessModule) -> bool {
    let mapping = |module: &ProcessModule| {
        (module.mapping_start, module.mapping_end, module.device, module.inode, module.deleted)
    };
    let id_in_memory = |module: &ProcessModule| {
        module.module.debug_id.clone().filter(|_| module.identified_by == IdentifiedBy::Memory)
    };
    let id = id_in_memory(now);
    id.is_some() && id == id_in_memory(before) && mapping(before) == mapping(now) && before.path == now.path
}

/// The headers in memory, from the mapping of the file's first byte; `None` where there are none.
fn image_in_memory(pid: u32, head: &Mapping) -> Result<Option<Image>, ProcessError> {
    let mut failure = None;
    let image = Image::read(|offset, out| {
        let Some(address) = head.start.checked_add(offset).filter(|address| head.contains(*address)) else {
            return false;
        };
        fills(read_memory(pid, address, out), out.len(), &mut failure)
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(image),
    }
}

fn build_id_in_memory(pid: u32, image: &Image, bias: u64) -> Result<Option<DebugId>, ProcessError> {
    let mut failure = None;
    let id = image.build_id(|segment, out| {
        fills(read_memory(pid, Avma(segment.svma.0.wrapping_add(bias)), out), out.len(), &mut failure)
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(id),
    }
}

/// Whether all bytes were read. Memory that is not there, or not shown (Yama shows mappings to some who may not read
/// memory), is no failure: then the file tells. A process that is not there is one.
fn fills(read: Result<usize, ProcessError>, wanted: usize, failure: &mut Option<ProcessError>) -> bool {
    match read {
        Ok(read) => read == wanted,
        Err(ProcessError::NotPermitted { .. }) => false,
        Err(error) => {
            *failure = Some(error);
            false
        }
    }
}

/// Where the image lies. Its headers say how far it reaches, but never over another file's mapping: `room` is what those leave.
fn range(image: &Image, bias: u64, code: &Mapping, room: (Avma, Avma)) -> (Avma, Avma) {
    let start = Avma(image.image_base().0.wrapping_add(bias) & !(PAGE - 1));
    let end = image.image_end().map(|end| Avma(end.0.wrapping_add(bias)));
    (start.max(room.0).min(code.start), end.unwrap_or(code.end).min(room.1).max(code.end))
}
