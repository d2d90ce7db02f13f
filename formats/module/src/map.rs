//! Which module an actual address belongs to.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Avma, DebugId, Rva, Svma};

/// One module as it is mapped in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedModule {
    /// The path as the process names it, or a name in brackets such as `[vdso]`.
    pub path: String,
    /// The module's identity, where its file or memory told one.
    pub debug_id: Option<DebugId>,
    /// First address of the lowest mapping.
    pub start: Avma,
    /// First address after the highest mapping.
    pub end: Avma,
    /// Actual minus stated address, wrapping: `svma = avma - bias`.
    pub bias: u64,
    /// The image base: the svma of the lowest loaded segment.
    pub image_base: Svma,
}

impl MappedModule {
    /// The stated address of `address` in this module.
    pub fn svma(&self, address: Avma) -> Svma {
        Svma(address.0.wrapping_sub(self.bias))
    }

    /// The actual address of `svma` in this module.
    pub fn avma(&self, svma: Svma) -> Avma {
        Avma(svma.0.wrapping_add(self.bias))
    }
}

/// An address with the module that it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocatedAddress {
    /// Index into [`ModuleMap::modules`].
    pub module: usize,
    /// The stated address there.
    pub svma: Svma,
    /// The address relative to the module's image base.
    pub rva: Rva,
}

/// The modules of one process, sorted by start address and without overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleMap {
    modules: Vec<MappedModule>,
}

impl ModuleMap {
    /// Sorts `modules`; where two overlap, the later one in the given order is left out.
    pub fn new(modules: Vec<MappedModule>) -> Self {
        let mut kept: Vec<MappedModule> = Vec::with_capacity(modules.len());
        for module in modules {
            if module.start >= module.end {
                continue;
            }
            let at = kept.partition_point(|other| other.start < module.start);
            let clear_below =
                at.checked_sub(1).and_then(|at| kept.get(at)).is_none_or(|below| below.end <= module.start);
            let clear_above = kept.get(at).is_none_or(|above| module.end <= above.start);
            if clear_below && clear_above {
                kept.insert(at, module);
            }
        }
        Self { modules: kept }
    }

    /// The modules by rising start address.
    pub fn modules(&self) -> &[MappedModule] {
        &self.modules
    }

    /// The index of the module whose range holds `address`.
    pub fn find(&self, address: Avma) -> Option<usize> {
        let after = self.modules.partition_point(|module| module.start <= address);
        let index = after.checked_sub(1)?;
        (address < self.modules.get(index)?.end).then_some(index)
    }

    /// The module that holds `address`, and the address there.
    pub fn locate(&self, address: Avma) -> Option<LocatedAddress> {
        let index = self.find(address)?;
        let module = self.modules.get(index)?;
        let svma = module.svma(address);
        Some(LocatedAddress { module: index, svma, rva: svma.to_rva(module.image_base)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn module(path: &str, start: u64, end: u64) -> MappedModule {
        MappedModule {
            path: path.to_string(),
            debug_id: None,
            start: Avma(start),
            end: Avma(end),
            bias: start,
            image_base: Svma(0),
        }
    }

    #[test]
    fn an_address_belongs_to_the_module_around_it_and_to_no_other() {
        let map = ModuleMap::new(vec![module("b", 0x3000, 0x4000), module("a", 0x1000, 0x2000)]);
        let name = |address| map.find(Avma(address)).map(|index| map.modules()[index].path.as_str());
        assert_eq!(name(0xfff), None);
        assert_eq!(name(0x1000), Some("a"));
        assert_eq!(name(0x1fff), Some("a"));
        assert_eq!(name(0x2000), None);
        assert_eq!(name(0x3abc), Some("b"));
        assert_eq!(map.locate(Avma(0x3abc)).map(|at| at.rva), Some(Rva(0xabc)));
    }

    #[test]
    fn of_two_overlapping_modules_the_first_given_stays() {
        let map =
            ModuleMap::new(vec![module("a", 0x1000, 0x3000), module("b", 0x2000, 0x4000), module("c", 0x800, 0x1001)]);
        assert_eq!(map.modules().len(), 1);
        assert_eq!(map.modules()[0].path, "a");
    }
}
