//! Names of procedures and of inlined functions.

use super::cross::CrossModule;
use super::pages::Pages;
use super::publics::{Public, linkage_name};
use super::records::{IPI_STREAM, Records, TPI_STREAM, function_name};
use crate::described::{FunctionNames, InlinedNames, Naming, Piece};
use crate::work::Work;
use pdb2::PDB;
use std::collections::HashMap;
use symseal_symx::StrId;

/// A procedure by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// Original relative address.
    start: u32,
    name: FunctionName,
    /// The public symbol that is its linkage name.
    linkage: Option<StrId>,
    file: StrId,
    line: u32,
}

/// What a procedure is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FunctionName {
    /// By a symbol of its own.
    Own(StrId),
    /// As the procedure at this original address, of which it is a part.
    PartOf(u32),
    /// After the procedure at `target` that it jumps to.
    IncrementalThunk {
        /// Original address.
        target: u32,
        /// Bytes from the start of the table of such jumps.
        offset: u32,
    },
}

impl Function {
    pub(crate) fn new(start: u32, name: FunctionName) -> Self {
        Self { start, name, linkage: None, file: StrId::EMPTY, line: 0 }
    }
}

/// The names of a PDB.
#[derive(Debug)]
pub(crate) struct PdbNames {
    functions: Vec<Function>,
    /// The number of the first procedure with a name of its own, by original address.
    by_start: HashMap<u32, usize>,
    /// By what sites have as their origin.
    inlined: HashMap<u64, InlinedNames>,
}

impl PdbNames {
    pub(crate) fn new(functions: Vec<Function>) -> Self {
        let mut by_start = HashMap::new();
        for (number, function) in functions.iter().enumerate() {
            if matches!(function.name, FunctionName::Own(_)) {
                by_start.entry(function.start).or_insert(number);
            }
        }
        Self { functions, by_start, inlined: HashMap::new() }
    }

    /// Finds linkage names among the public symbols.
    pub(crate) fn link(&mut self, publics: &[Public<'_>], work: &mut Work) {
        for function in &mut self.functions {
            if let FunctionName::Own(name) = function.name {
                let name = work.strings.get(name).as_bytes().to_vec();
                function.linkage = linkage_name(publics, function.start, &name).map(|name| work.text(name));
            }
        }
    }

    /// Reads the names of the inlined functions that the pieces have, and where their procedures start.
    pub(crate) fn read_inlined<'d>(
        &mut self,
        pdb: &mut PDB<'d, Pages<'d>>,
        cross: &CrossModule,
        pieces: &[Piece],
        work: &mut Work,
    ) {
        for piece in pieces.iter().filter(|piece| piece.is_entry) {
            let function = usize::try_from(piece.function).ok().and_then(|number| self.functions.get_mut(number));
            // The first line of a procedure's own table is that of its opening brace.
            let mut own = piece.rows.iter().map(|row| match piece.sites.get(row.inline as usize) {
                Some(site) => outermost(piece, site.parent, (site.call_file, site.call_line)),
                None => (row.file, row.line),
            });
            if let (Some(function), Some((file, line))) = (function, own.find(|(_, line)| *line != 0)) {
                (function.file, function.line) = (file, line);
            }
        }
        let ids = Records::read(pdb, IPI_STREAM);
        let types = Records::read(pdb, TPI_STREAM);
        // Only inlined functions are named by these.
        if pieces.iter().any(|piece| !piece.sites.is_empty()) {
            let lists = [(&ids, "damaged list of a PDB's ids"), (&types, "damaged list of a PDB's types")];
            lists.iter().filter(|(list, _)| !list.is_whole).for_each(|(_, reason)| work.skip(reason));
        }
        let mut by_number: HashMap<u32, InlinedNames> = HashMap::new();
        for site in pieces.iter().flat_map(|piece| &piece.sites) {
            if self.inlined.contains_key(&site.origin) {
                continue;
            }
            // The upper half is the module that speaks of the id, the lower one its number there.
            let (module, number) = ((site.origin >> 32) as u32, site.origin as u32);
            let Some(number) = cross.resolve(module, number) else {
                work.skip("inlined function of another module that does not name it");
                self.inlined.insert(site.origin, InlinedNames::default());
                continue;
            };
            let names = *by_number.entry(number).or_insert_with(|| {
                let Some((bare, qualified)) = function_name(&ids, &types, number) else {
                    work.skip("inlined function without a name");
                    return InlinedNames::default();
                };
                let symbol = work.text(&bare);
                InlinedNames::new(work.text(&qualified), symbol)
            });
            self.inlined.insert(site.origin, names);
        }
    }

    /// The name of a procedure with a name of its own at this address.
    fn own_name(&self, start: u32) -> Option<(StrId, Option<StrId>)> {
        let function = self.functions.get(*self.by_start.get(&start)?)?;
        match function.name {
            FunctionName::Own(name) => Some((name, function.linkage)),
            _ => None,
        }
    }
}

/// The place of the outermost call, which is in the function itself.
fn outermost(piece: &Piece, parent: u32, place: (StrId, u32)) -> (StrId, u32) {
    let (mut parent, mut place) = (parent, place);
    // Parents stand before what they call, so this ends.
    while let Some(site) = piece.sites.get(parent as usize) {
        place = (site.call_file, site.call_line);
        parent = site.parent;
    }
    place
}

impl Naming for PdbNames {
    fn function(&mut self, function: u64, work: &mut Work) -> FunctionNames {
        let Some(found) = usize::try_from(function).ok().and_then(|number| self.functions.get(number)).copied() else {
            return FunctionNames::default();
        };
        let (name, linkage) = match found.name {
            FunctionName::Own(name) => (name, found.linkage),
            FunctionName::PartOf(start) => self.own_name(start).unwrap_or_default(),
            FunctionName::IncrementalThunk { target, offset } => {
                let target = self.own_name(target).map_or(StrId::EMPTY, |(name, linkage)| linkage.unwrap_or(name));
                let text = format!("ILT+{offset}({})", work.strings.get(target));
                (work.text(text.as_bytes()), None)
            }
        };
        FunctionNames {
            name,
            symbol: linkage.unwrap_or(name),
            has_linkage_name: linkage.is_some(),
            file: found.file,
            line: found.line,
        }
    }

    fn inlined(&mut self, origin: u64, _: &mut Work) -> InlinedNames {
        self.inlined.get(&origin).copied().unwrap_or_default()
    }
}
