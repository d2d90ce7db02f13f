//! The modules of a process, from its mappings.

use symseal_module::escape::escape;
use symseal_module::{Avma, DebugId, MappedModule};

use super::memory::read_memory;
use super::open::{file_build_id, file_image, open_module};
use super::proc_maps;
use crate::{ElfImage, IdentifiedBy, Mapping, ProcessError, ProcessModule};

const PAGE: u64 = 4096;

/// The modules of a process, by rising address: every file that is mapped executable and is ELF, and the vDSO.
pub fn modules_of(pid: u32) -> Result<Vec<ProcessModule>, ProcessError> {
    modules_in(pid, &proc_maps(pid)?)
}

/// The same, from mappings that were read before.
pub fn modules_in(pid: u32, mappings: &[Mapping]) -> Result<Vec<ProcessModule>, ProcessError> {
    let mut modules: Vec<ProcessModule> = Vec::new();
    let code = mappings.iter().filter(|mapping| mapping.executable && (mapping.is_file() || mapping.path == b"[vdso]"));
    for mapping in code {
        // One module often has several executable mappings: mprotect splits them.
        let known = |module: &ProcessModule| {
            (module.device, module.inode) == (mapping.device, mapping.inode)
                && module.module.start <= mapping.start
                && mapping.end <= module.module.end
        };
        if !modules.iter().any(known) {
            modules.extend(module_at(pid, mapping, mappings)?);
        }
    }
    Ok(modules)
}

/// The module that an executable mapping belongs to; `None` where that is not ELF.
fn module_at(pid: u32, mapping: &Mapping, mappings: &[Mapping]) -> Result<Option<ProcessModule>, ProcessError> {
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
    let in_memory = image_in_memory(pid, mapping, mappings)?;
    let image = match in_memory {
        Some(image) => Some(image),
        None if module.is_vdso() => None,
        None => open_module(pid, &module).ok().and_then(|opened| file_image(&opened.file)),
    };
    let Some(image) = image else { return Ok(None) };
    let Some(bias) = image.bias(mapping.start.0, mapping.offset) else { return Ok(None) };
    module.module.bias = bias;
    module.module.image_base = image.image_base();
    (module.module.start, module.module.end) = range(&image, bias, mapping, mappings);
    if let Some(id) = build_id_in_memory(pid, &image, bias)? {
        module.module.debug_id = Some(id);
        module.identified_by = IdentifiedBy::Memory;
    }
    if !module.is_vdso()
        && let Ok(opened) = open_module(pid, &module)
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

/// The program headers in memory: where the file's first byte is mapped, nearest below the code.
fn image_in_memory(pid: u32, code: &Mapping, mappings: &[Mapping]) -> Result<Option<ElfImage>, ProcessError> {
    let same_file = |mapping: &&Mapping| {
        (mapping.device, mapping.inode, &mapping.path) == (code.device, code.inode, &code.path)
            && mapping.offset == 0
            && mapping.readable
            && mapping.start <= code.start
    };
    let Some(head) = mappings.iter().rev().find(same_file) else { return Ok(None) };
    let mut failure = None;
    let image = ElfImage::read(|offset, out| {
        let Some(address) = head.start.checked_add(offset).filter(|address| head.contains(*address)) else {
            return false;
        };
        fills(read_memory(pid, address, out), out.len(), &mut failure)
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(image.ok()),
    }
}

fn build_id_in_memory(pid: u32, image: &ElfImage, bias: u64) -> Result<Option<DebugId>, ProcessError> {
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

/// Where the image lies. Its headers say how far it reaches, but never over another file's mapping.
fn range(image: &ElfImage, bias: u64, code: &Mapping, mappings: &[Mapping]) -> (Avma, Avma) {
    let start = Avma(image.image_base().0.wrapping_add(bias) & !(PAGE - 1));
    let end = image.image_end().map(|end| Avma(end.0.wrapping_add(bias)));
    let foreign =
        |mapping: &&Mapping| mapping.inode != 0 && (mapping.device, mapping.inode) != (code.device, code.inode);
    let below = mappings.iter().filter(foreign).filter(|mapping| mapping.end <= code.start).map(|mapping| mapping.end);
    let above =
        mappings.iter().filter(foreign).filter(|mapping| mapping.start >= code.end).map(|mapping| mapping.start);
    let start = start.max(below.max().unwrap_or_default()).min(code.start);
    let end = end.unwrap_or(code.end).min(above.min().unwrap_or(Avma(u64::MAX))).max(code.end);
    (start, end)
}
