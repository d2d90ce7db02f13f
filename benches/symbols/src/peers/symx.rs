//! Ours.

use super::{BuildTimes, Built, Peer, Sum};
use crate::clock;
use crate::subject::Subject;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::num::NonZeroUsize;
use symseal_artifact::{DebugFiles, ObjectFile};
use symseal_module::{Rva, Svma};
use symseal_symx::{Counts, Form, Table, TableInput};

/// Names, paths and lines; columns and linkage names where they are asked for.
pub struct Symx<'a> {
    table: Table<'a>,
    base: Svma,
    name: &'static str,
    /// Linkage names are asked for as well.
    symbols: bool,
    /// Columns are.
    columns: bool,
}

impl<'a> Symx<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let table = Table::open(bytes)?;
        Ok(Self { base: table.image_base(), table, name: "symx", symbols: false, columns: false })
    }

    /// The same table, asked for columns as well: SymCache has none, addr2line reads them in any case.
    pub fn with_columns(bytes: &'a [u8]) -> Result<Self> {
        Ok(Self { name: "symx, with columns", columns: true, ..Self::open(bytes)? })
    }

    /// The same table, asked for columns and linkage names as well.
    pub fn with_symbols(bytes: &'a [u8]) -> Result<Self> {
        Ok(Self { name: "symx, with columns and linkage names", symbols: true, columns: true, ..Self::open(bytes)? })
    }

    /// A table in which names and contexts are whole.
    pub fn whole(bytes: &'a [u8]) -> Result<Self> {
        Ok(Self { name: "symx, names and contexts whole", ..Self::open(bytes)? })
    }

    pub fn counts(&self) -> Counts {
        self.table.counts()
    }
}

impl Peer for Symx<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn all(&self, addresses: &[u64]) -> Sum {
        let (mut sum, mut buffer) = (Sum::default(), Vec::new());
        for address in addresses {
            let rva = Rva(address.wrapping_sub(self.base.0));
            let Some(hit) = self.table.lookup(rva) else { continue };
            sum.hits += 1;
            for frame in hit.frames() {
                sum.frame(frame.function.text_in(&mut buffer), frame.file, frame.line.unwrap_or(0));
                if self.columns {
                    std::hint::black_box(frame.column());
                }
                if self.symbols {
                    std::hint::black_box(frame.symbol.text_in(&mut buffer));
                }
            }
        }
        sum
    }
}

/// The row alone, without frames: what the search and the decoding cost.
pub struct SymxLines<'a>(Symx<'a>);

impl<'a> SymxLines<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        Symx::open(bytes).map(Self)
    }
}

impl Peer for SymxLines<'_> {
    fn name(&self) -> &'static str {
        "symx, row without frames"
    }

    fn all(&self, addresses: &[u64]) -> Sum {
        let mut sum = Sum::default();
        for address in addresses {
            let rva = Rva(address.wrapping_sub(self.0.base.0));
            sum.hits += u64::from(std::hint::black_box(self.0.table.lookup(rva)).is_some());
        }
        sum
    }
}

pub fn build_symx(subject: &Subject, threads: NonZeroUsize, form: Form) -> Result<Built> {
    let (read, stream) = clock::measure(|| -> Result<_> {
        let binary = ObjectFile::parse(&subject.binary)?;
        let debug = subject.debug.as_deref().map(ObjectFile::parse).transpose()?;
        let stream = symseal_artifact::functions_on(threads, &binary, &DebugFiles::debug(debug.as_ref()))?;
        Ok((stream, binary.debug_id().context("a debug id")?.clone(), binary.image_base()))
    });
    let (stream, debug_id, image_base) = stream?;
    let source_sha256 = Sha256::digest(subject.debug_bytes()).into();
    let (write, bytes) = clock::measure(|| {
        let input = TableInput {
            debug_id: &debug_id,
            image_base,
            source_sha256,
            producer: "symseal-bench",
            strings: &stream.strings,
            functions: &stream.functions,
        };
        symseal_symx::write_as(&input, form)
    });
    Ok(Built { bytes: bytes?, times: BuildTimes { read, write } })
}
