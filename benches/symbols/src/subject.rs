//! What is measured: a module, its debug file, its addresses and its DWARF.

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// How many different addresses are looked up.
const ADDRESSES: usize = 100_000;
/// Every run draws the same ones.
const SEED: u64 = 0x5eed_0123_4567_89ab;

pub struct Subject {
    pub name: String,
    pub binary: Vec<u8>,
    /// `None`: the binary has its debug information in itself.
    pub debug: Option<Vec<u8>>,
    path: PathBuf,
}

/// The subjects named on the command line, or the usual ones as far as they are there.
pub fn parse(arguments: &[String]) -> Result<Vec<Subject>> {
    if arguments.is_empty() {
        return Ok([libc(), ourselves()].into_iter().flatten().collect());
    }
    let one = |argument: &String| {
        let (name, paths) = argument.split_once('=').context("expected NAME=BINARY[,DEBUG-FILE]")?;
        let (binary, debug) = paths.split_once(',').map_or((paths, None), |(binary, debug)| (binary, Some(debug)));
        Subject::read(name, binary.as_ref(), debug.map(Path::new))
    };
    arguments.iter().map(one).collect()
}

fn libc() -> Option<Subject> {
    let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let bytes = std::fs::read(path).ok()?;
    let id = object::File::parse(&*bytes).ok()?.build_id().ok()??.to_vec();
    let (first, rest) = id.split_first()?;
    let mut name = format!("/usr/lib/debug/.build-id/{first:02x}/");
    rest.iter().try_for_each(|byte| write!(name, "{byte:02x}")).ok()?;
    name.push_str(".debug");
    let found = Subject::read("libc", path, Some(name.as_ref()));
    found.inspect_err(|error| eprintln!("SKIP libc6-dbg: {error:#}")).ok()
}

fn ourselves() -> Option<Subject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/symseal");
    let found = Subject::read("symseal", &path, None);
    found.inspect_err(|error| eprintln!("SKIP symseal: {error:#}")).ok()
}

impl Subject {
    fn read(name: &str, binary: &Path, debug: Option<&Path>) -> Result<Self> {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        Ok(Self {
            name: name.into(),
            binary: read(binary)?,
            debug: debug.map(read).transpose()?,
            path: debug.unwrap_or(binary).to_owned(),
        })
    }

    /// The file with the debug information.
    pub fn debug_path(&self) -> &Path {
        &self.path
    }

    pub fn debug_bytes(&self) -> &[u8] {
        self.debug.as_deref().unwrap_or(&self.binary)
    }

    pub fn dwarf_sections(&self) -> Result<DwarfSections<'_>> {
        DwarfSections::read(self.debug_bytes())
    }

    /// Different stated addresses, drawn evenly from the bytes of all functions in the symbol table.
    pub fn addresses(&self) -> Result<Vec<u64>> {
        let file = object::File::parse(self.debug_bytes())?;
        let mut ranges: Vec<(u64, u64)> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0 && !symbol.is_undefined())
            .map(|symbol| (symbol.address(), symbol.size()))
            .collect();
        ranges.sort_unstable();
        ranges.dedup();
        let total: u64 = ranges.iter().map(|(_, size)| size).sum();
        if total < 4 * ADDRESSES as u64 {
            bail!("{total} bytes of functions are too few to draw {ADDRESSES} addresses from");
        }
        let ends: Vec<u64> = ranges
            .iter()
            .scan(0, |end, (_, size)| {
                *end += size;
                Some(*end)
            })
            .collect();
        let (mut state, mut seen, mut addresses) = (SEED, BTreeSet::new(), Vec::with_capacity(ADDRESSES));
        while addresses.len() < ADDRESSES {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let at = state.wrapping_mul(0x2545_f491_4f6c_dd1d) % total;
            let index = ends.partition_point(|end| *end <= at);
            let (start, size) = ranges[index];
            let address = start + at - (ends[index] - size);
            if seen.insert(address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

pub type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Decompressed `.debug_*` sections.
pub struct DwarfSections<'d> {
    sections: Vec<(String, Cow<'d, [u8]>)>,
}

impl<'d> DwarfSections<'d> {
    pub fn read(bytes: &'d [u8]) -> Result<Self> {
        let file = object::File::parse(bytes)?;
        let mut sections = Vec::new();
        for section in file.sections() {
            let name = section.name()?;
            if name.starts_with(".debug_") {
                sections.push((name.to_owned(), section.uncompressed_data()?));
            }
        }
        Ok(Self { sections })
    }

    pub fn raw_bytes(&self) -> u64 {
        self.sections.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    pub fn dwarf(&self) -> Result<gimli::Dwarf<Slice<'_>>> {
        let load = |id: gimli::SectionId| -> Result<Slice<'_>, gimli::Error> {
            let found = self.sections.iter().find(|(name, _)| name == id.name());
            Ok(Slice::new(found.map_or(&[], |(_, bytes)| bytes), gimli::LittleEndian))
        };
        Ok(gimli::Dwarf::load(load)?)
    }
}
