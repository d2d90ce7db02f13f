//! A program as its file has it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use framehop::Unwinder;
use object::{Object, ObjectSymbol};
use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, CodeBytes, Module, Table};

use crate::effect::IA_32_CALL;
use crate::elf::Binary;
use crate::framehop_peer::{Framehop, Sections};

/// The program's table, code and symbols. Leaked: they live as long as the test.
pub(crate) struct Program {
    arch: Arch,
    table: Table<'static>,
    image_base: Svma,
    /// The address behind its code.
    pub(crate) end: u64,
    code: (u64, &'static [u8]),
    symbols: BTreeMap<u64, String>,
    read_by_framehop: Sections,
}

impl Program {
    /// With the table of `stripped`, the same program without symbols, if that is given.
    pub(crate) fn read(path: &Path, stripped: Option<&Path>) -> Self {
        let binary: &'static Binary = Box::leak(Box::new(Binary::read(path).expect("the program")));
        let parts = binary.parts();
        let start = parts.code.iter().map(|(start, _)| *start).min().expect("code");
        let mut code = Vec::new();
        for (address, bytes) in &parts.code {
            code.resize((address - start) as usize, 0);
            code.extend_from_slice(bytes);
        }
        let compiled = match stripped {
            Some(stripped) => Binary::read(stripped).expect("the stripped program").compile(),
            None => binary.compile(),
        };
        let table = Table::open(compiled.bytes.leak()).expect("our own table");
        table.verify().expect("our own table");
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        let symbols = file
            .symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())));
        Self {
            arch: parts.arch,
            image_base: parts.image_base,
            end: parts.text.iter().map(|text| text.end).max().expect("code"),
            code: (start, code.leak()),
            symbols: symbols.collect(),
            read_by_framehop: Sections::of(&parts),
            table,
        }
    }

    /// Another unwinder with the program.
    pub(crate) fn in_framehop<U: Unwinder<Module = framehop::Module<Arc<[u8]>>> + Default>(&self) -> Framehop<U>
    where
        U::Cache: Default,
    {
        let mut framehop = Framehop::default();
        framehop.add("program", self.image_base.0..self.end, &self.read_by_framehop);
        framehop
    }

    pub(crate) fn module(&self) -> Module<'static> {
        Module {
            start: Avma(self.image_base.0),
            end: Avma(self.end),
            bias: 0,
            image_base: self.image_base,
            table: Some(self.table.clone()),
            code: Some(CodeBytes { start: Avma(self.code.0), bytes: self.code.1 }),
        }
    }

    /// The function that `address` lies in, and the distance from its beginning.
    pub(crate) fn name(&self, address: u64) -> String {
        match self.symbols.range(..=address).next_back() {
            Some((start, name)) if address < self.end => format!("{name}+{:#x}", address - start),
            _ => format!("{address:#x}"),
        }
    }

    /// Whether one of the three instructions is at `pc` with which a function of MIPS sets up $gp, where a linkage table may have called it: `.cpload`.
    pub(crate) fn sets_up_gp(&self, pc: u64) -> bool {
        const LUI_GP: u32 = 0x3c1c_0000;
        const ADDIU_GP: u32 = 0x279c_0000;
        const ADDU_GP_T9: u32 = 0x0399_e021;
        if !matches!(self.arch, Arch::Mips32 | Arch::Mips32Little) {
            return false;
        }
        let Some((start, _)) = self.symbols.range(..=pc).next_back().filter(|(start, _)| pc - **start < 12) else {
            return false;
        };
        let upper = |at: u64| self.word(start + at).map(|word| word & 0xffff_0000);
        upper(0) == Some(LUI_GP) && upper(4) == Some(ADDIU_GP) && self.word(start + 8) == Some(ADDU_GP_T9)
    }

    /// Four bytes of code, as its processor reads them.
    pub(crate) fn word(&self, address: u64) -> Option<u32> {
        let offset = usize::try_from(address.checked_sub(self.code.0)?).ok()?;
        let word = self.code.1.get(offset..)?.first_chunk::<4>()?;
        Some(if self.arch.is_big_endian() { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
    }

    /// Where an exclusive load and the store that belongs to it are left, if there is such a load at `pc`. A stop between
    /// the two makes the store fail, forever. (Arm ARM, B2.9)
    pub(crate) fn ends_of_exclusive(&self, pc: u64) -> Option<Vec<u64>> {
        const LONGEST: u64 = 16;
        let is_load = |word: u32| word & 0x3fc0_0000 == 0x0840_0000;
        if self.arch != Arch::Aarch64 || !self.word(pc).is_some_and(is_load) {
            return None;
        }
        let mut ends = Vec::new();
        for at in (pc..).step_by(4).take(LONGEST as usize) {
            let word = self.word(at)?;
            // b.cond, cbz and cbnz with their distance
            if word >> 24 == 0x54 || word & 0x7e00_0000 == 0x3400_0000 {
                let words = ((word << 8) as i32) >> 13;
                ends.push(at.wrapping_add_signed(i64::from(words) * 4));
            }
            if word & 0x3fc0_0000 == 0x0800_0000 {
                ends.push(at + 4);
                return Some(ends);
            }
        }
        None
    }

    /// Whether the instruction before `returns_to` is a direct call of IA-32 to `target`.
    pub(crate) fn calls(&self, returns_to: u64, target: u64) -> bool {
        let opcode = self.word(returns_to.wrapping_sub(5)).map(|word| word & 0xff);
        let distance = self.word(returns_to.wrapping_sub(4));
        let leads_to = distance.map(|distance| returns_to.wrapping_add(distance.into()) & 0xffff_ffff);
        opcode == Some(IA_32_CALL) && leads_to == Some(target)
    }
}
