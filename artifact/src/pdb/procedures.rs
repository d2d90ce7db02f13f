//! Procedures and inlined calls of one module, from its symbols.

use super::addresses::Addresses;
use super::annotations::{self, InlineRow};
use super::lines::ModuleLines;
use crate::cursor::Result;
use crate::work::Work;
use pdb2::{FallibleIterator, ModuleInfo, Symbol, SymbolData, TrampolineType};
use symseal_symx::NO_INLINE;

/// Inlined calls nested deeper than this are taken for their caller's code. The symbol table holds 1024 frames.
const MOST_INLINED: u32 = 512;

/// Symbols of formats before the present one, whose signature is 4: `CV_SIGNATURE_C7` and `CV_SIGNATURE_C11` in `cvinfo.h` of microsoft-pdb.
const OLDER_SIGNATURES: [u32; 2] = [1, 2];

/// Why a function has no address that has a symbol: what a linker dropped lies in no section.
pub(super) const OUTSIDE_OF_CODE: &str = "function outside of the code (dropped by the linker)";

/// Kinds of symbols that are read, by their names in `cvinfo.h` of microsoft-pdb.
mod kind {
    pub(super) const S_THUNK32: u16 = 0x1102;
    pub(super) const S_LABEL32: u16 = 0x1105;
    pub(super) const S_LPROC32: u16 = 0x110f;
    pub(super) const S_GPROC32: u16 = 0x1110;
    pub(super) const S_TRAMPOLINE: u16 = 0x112c;
    pub(super) const S_SEPCODE: u16 = 0x1132;
    pub(super) const S_LPROC32_ID: u16 = 0x1146;
    pub(super) const S_GPROC32_ID: u16 = 0x1147;
    pub(super) const S_INLINESITE: u16 = 0x114d;
    pub(super) const S_LPROC32_DPC: u16 = 0x1155;
    pub(super) const S_LPROC32_DPC_ID: u16 = 0x1156;
    pub(super) const S_INLINESITE2: u16 = 0x115d;
}

/// A contiguous piece of code with a name.
#[derive(Debug)]
pub(crate) struct Procedure {
    /// Original relative addresses.
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) name: ProcedureName,
    /// Its inlined calls in [`ModuleSymbols::sites`].
    pub(crate) first_site: usize,
    pub(crate) behind_sites: usize,
}

/// What a piece of code is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcedureName {
    /// By a symbol of its own.
    Own(Vec<u8>),
    /// It was separated from the procedure that starts at this original address.
    PartOf(u32),
    /// It jumps to the procedure at this original address; `ILT+` and the offset in its table is what debuggers call it.
    IncrementalThunk {
        /// Original address of what it jumps to.
        target: u32,
    },
}

/// An inlined call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineCall {
    /// The enclosing one in [`ModuleSymbols::sites`], which stands before it, or [`NO_INLINE`].
    pub(crate) parent: u32,
    /// How many enclose it, less the function.
    pub(crate) depth: u32,
    /// The number of the inlined function's id record.
    pub(crate) inlinee: u32,
    /// Its code in [`ModuleSymbols::inline_rows`].
    pub(crate) first_row: usize,
    pub(crate) behind_rows: usize,
}

/// What a module's symbols say; buffers are kept from module to module.
#[derive(Debug, Default)]
pub(crate) struct ModuleSymbols {
    pub(crate) procedures: Vec<Procedure>,
    pub(crate) sites: Vec<InlineCall>,
    pub(crate) inline_rows: Vec<InlineRow>,
    /// Original relative address and name of labels outside of procedures.
    pub(crate) labels: Vec<(u32, Vec<u8>)>,
    scopes: Vec<Scope>,
}

/// What holds within a symbol that has others in it.
#[derive(Clone, Copy, Debug)]
struct Scope {
    /// Number and start of the procedure.
    procedure: Option<(usize, u32)>,
    site: u32,
    depth: u32,
}

const OUTSIDE: Scope = Scope { procedure: None, site: NO_INLINE, depth: 0 };

impl ModuleSymbols {
    pub(crate) fn clear(&mut self) {
        self.procedures.clear();
        self.sites.clear();
        self.inline_rows.clear();
        self.labels.clear();
        self.scopes.clear();
    }

    /// Reads a module's symbols, which begin with a signature. One whose end is not known ends the module.
    pub(crate) fn fill(
        &mut self,
        module: &ModuleInfo<'_>,
        signature: Option<u32>,
        lines: &ModuleLines,
        addresses: &Addresses,
        work: &mut Work,
    ) {
        self.clear();
        let Ok(mut symbols) = module.symbols() else {
            let is_older = signature.is_some_and(|signature| OLDER_SIGNATURES.contains(&signature));
            work.skip(if is_older {
                "PDB module with symbols of another format"
            } else {
                "damaged symbols of a PDB module"
            });
            return;
        };
        loop {
            match symbols.next() {
                Ok(Some(symbol)) => {
                    if self.symbol(&symbol, lines, addresses, work).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    work.skip("rest of a PDB module, behind a damaged symbol");
                    break;
                }
            }
        }
        self.close_sites();
    }

    fn symbol(
        &mut self,
        symbol: &Symbol<'_>,
        lines: &ModuleLines,
        addresses: &Addresses,
        work: &mut Work,
    ) -> Result<()> {
        work.budget.charge(1)?;
        let top = self.scopes.last().copied().unwrap_or(OUTSIDE);
        let opened = match symbol.raw_kind() {
            kind::S_LPROC32
            | kind::S_GPROC32
            | kind::S_LPROC32_ID
            | kind::S_GPROC32_ID
            | kind::S_LPROC32_DPC
            | kind::S_LPROC32_DPC_ID
            | kind::S_THUNK32
            | kind::S_SEPCODE => self.code(symbol, addresses, work)?,
            kind::S_INLINESITE | kind::S_INLINESITE2 => self.inline_site(symbol, top, lines, work)?,
            kind::S_TRAMPOLINE => {
                self.trampoline(symbol, addresses);
                return Ok(());
            }
            kind::S_LABEL32 => {
                if self.scopes.is_empty() {
                    self.label(symbol, addresses, work)?;
                }
                return Ok(());
            }
            _ if symbol.starts_scope() => top,
            _ => {
                if symbol.ends_scope() {
                    self.scopes.pop();
                }
                return Ok(());
            }
        };
        self.scopes.push(opened);
        Ok(())
    }

    fn code(&mut self, symbol: &Symbol<'_>, addresses: &Addresses, work: &mut Work) -> Result<Scope> {
        let (at, size, name) = match symbol.parse() {
            Ok(SymbolData::Procedure(procedure)) => {
                (procedure.offset, procedure.len, ProcedureName::Own(procedure.name.as_bytes().to_vec()))
            }
            Ok(SymbolData::Thunk(thunk)) => {
                (thunk.offset, u32::from(thunk.len), ProcedureName::Own(thunk.name.as_bytes().to_vec()))
            }
            Ok(SymbolData::SeparatedCode(part)) => match addresses.original(part.parent_offset) {
                Some(parent) => (part.offset, part.len, ProcedureName::PartOf(parent)),
                None => return Ok(OUTSIDE),
            },
            _ => {
                work.skip("damaged symbol in a PDB");
                return Ok(OUTSIDE);
            }
        };
        if let ProcedureName::Own(name) = &name {
            work.budget.charge(name.len() as u64)?;
        }
        let Some(start) = addresses.original(at) else {
            work.skip(OUTSIDE_OF_CODE);
            return Ok(OUTSIDE);
        };
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else { return Ok(OUTSIDE) };
        self.close_sites();
        let first_site = self.sites.len();
        self.procedures.push(Procedure { start, end, name, first_site, behind_sites: first_site });
        Ok(Scope { procedure: Some((self.procedures.len() - 1, start)), site: NO_INLINE, depth: 0 })
    }

    /// What was inlined since the last procedure began belongs to it.
    fn close_sites(&mut self) {
        let behind = self.sites.len();
        if let Some(procedure) = self.procedures.last_mut() {
            procedure.behind_sites = behind;
        }
    }

    /// A label outside of procedures: code that handles exceptions is named by these alone. Its size is not known.
    fn label(&mut self, symbol: &Symbol<'_>, addresses: &Addresses, work: &mut Work) -> Result<()> {
        let Ok(SymbolData::Label(label)) = symbol.parse() else { return Ok(()) };
        work.budget.charge(label.name.len() as u64)?;
        // `__ehhandler$`, `__unwindfunclet$` and `__catch$` and a function's name; other labels are places in assembly.
        let name = label.name.as_bytes();
        if let Some(at) = addresses.original(label.offset).filter(|_| name.starts_with(b"__") && name.contains(&b'$')) {
            self.labels.push((at, label.name.as_bytes().to_vec()));
        }
        Ok(())
    }

    fn trampoline(&mut self, symbol: &Symbol<'_>, addresses: &Addresses) {
        let Ok(SymbolData::Trampoline(thunk)) = symbol.parse() else { return };
        let (Some(start), Some(target)) = (addresses.original(thunk.thunk), addresses.original(thunk.target)) else {
            return;
        };
        let Some(end) = start.checked_add(u32::from(thunk.size)).filter(|end| *end > start) else { return };
        if thunk.tramp_type == TrampolineType::Incremental {
            self.close_sites();
            let site = self.sites.len();
            let name = ProcedureName::IncrementalThunk { target };
            self.procedures.push(Procedure { start, end, name, first_site: site, behind_sites: site });
        }
    }

    fn inline_site(&mut self, symbol: &Symbol<'_>, top: Scope, lines: &ModuleLines, work: &mut Work) -> Result<Scope> {
        let Ok(SymbolData::InlineSite(site)) = symbol.parse() else {
            work.skip("damaged symbol in a PDB");
            return Ok(top);
        };
        // Sites of a procedure stand together, as procedures are not nested.
        let Some((_, function)) = top.procedure.filter(|(number, _)| *number + 1 == self.procedures.len()) else {
            return Ok(top);
        };
        if top.depth >= MOST_INLINED {
            work.skip("inlined call nested too deep");
            return Ok(top);
        }
        // Where there is no record of it, its lines are not known; that it was inlined is.
        let inlinee = lines.inlinees.get(&site.inlinee.0).copied();
        let first_row = self.inline_rows.len();
        work.budget.charge(symbol.raw_bytes().len() as u64)?;
        annotations::rows(&site.annotations, inlinee, function, &mut self.inline_rows);
        let rows = self.inline_rows.get_mut(first_row..).unwrap_or_default();
        if !rows.is_sorted_by_key(|row| row.start) {
            rows.sort_by_key(|row| row.start);
        }
        let Ok(number) = u32::try_from(self.sites.len()) else { return Ok(top) };
        self.sites.push(InlineCall {
            parent: top.site,
            depth: top.depth,
            inlinee: site.inlinee.0,
            first_row,
            behind_rows: self.inline_rows.len(),
        });
        Ok(Scope { site: number, depth: top.depth + 1, ..top })
    }
}

impl ModuleSymbols {
    pub(crate) fn rows(&self, site: &InlineCall) -> &[InlineRow] {
        self.inline_rows.get(site.first_row..site.behind_rows).unwrap_or_default()
    }
}
