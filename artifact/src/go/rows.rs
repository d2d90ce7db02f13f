//! Functions of the table to pieces with rows and inlined calls.

use super::header::{Entry, Function, Table};
use super::image::Image;
use super::inline_tree::{Node, Trees};
use super::names::{Declared, GO_UNIT, GoNames, go_number};
use super::pc_table::{self, Run, value_at};
use super::{GoTable, module_data};
use crate::code_ranges::Text;
use crate::cursor::{Damaged, Result};
use crate::described::{Described, Piece, Site};
use crate::work::Work;
use std::collections::HashMap;
use symseal_module::Svma;
use symseal_symx::{NO_INLINE, Row, StrId, SymbolSource};

/// Inlined calls nested deeper than this are taken for their caller's code; Go's inliner stays far below.
const MOST_INLINED: usize = 512;

/// What a row or an inlined call costs. Functions share tables, so that a small file could have very many rows; in real
/// ones there is one for a dozen bytes.
const RECORD_STEPS: u64 = 64;

/// Functions whose trees are tried before all are believed.
const TRIED_TREES: usize = 64;

pub(crate) fn read<'g>(go: &'g GoTable<'_>, text: &Text, image_base: Svma, work: &mut Work) -> Described<'g> {
    let mut functions = Vec::new();
    let mut pieces = Vec::new();
    if let Some(text_start) = go.text_start() {
        let mut reader = Reader {
            image: &go.image,
            table: &go.table,
            text_start,
            trees: None,
            image_base,
            paths: HashMap::new(),
            runs: Runs::default(),
            nodes: HashMap::new(),
            sites: Vec::new(),
        };
        reader.trees = reader.find_trees(work);
        let mut reached = 0;
        for number in 0..go.table.len() {
            if work.budget.charge(1).is_err() {
                work.skip("function of Go's table beyond the work limit");
                break;
            }
            let Some(entry) = go.table.entry(&go.image, number, text_start).filter(|entry| entry.start >= reached)
            else {
                work.skip("function of Go's table out of order");
                continue;
            };
            let Some((start, end)) = text.clip(entry.start, entry.end) else { continue };
            match reader.piece(&entry, start, end, functions.len() as u64, work) {
                Ok((piece, declared)) => {
                    reached = piece.end;
                    pieces.push(piece);
                    functions.push(declared);
                }
                Err(Damaged) => work.skip("damaged function of Go's table"),
            }
        }
    } else {
        work.skip("Go's table without the start of its code");
    }
    Described {
        source: SymbolSource::Pclntab,
        pieces,
        losers: Vec::new(),
        orphans: Vec::new(),
        without_code: Vec::new(),
        names: Box::new(GoNames { table: &go.table, functions }),
    }
}

/// The tables of the function at hand; buffers are kept.
#[derive(Default)]
struct Runs {
    files: Vec<Run>,
    lines: Vec<Run>,
    inlined: Vec<Run>,
}

struct Reader<'g, 'd> {
    image: &'g Image<'d>,
    table: &'g Table<'d>,
    text_start: u64,
    trees: Option<Trees>,
    image_base: Svma,
    /// By offset of the path.
    paths: HashMap<u32, StrId>,
    runs: Runs,
    /// Sites of the function at hand by their number in its tree.
    nodes: HashMap<i32, u32>,
    sites: Vec<Site>,
}

impl Reader<'_, '_> {
    /// Where inline trees are, if those of the first functions that have one can be read.
    fn find_trees(&mut self, work: &mut Work) -> Option<Trees> {
        let candidates = if self.table.version.counts_from_text() {
            let Some(module) = module_data::find(self.image, self.table) else {
                work.skip("inlined calls of Go's table: no module data");
                return None;
            };
            module.function_data(self.image, self.table.version)
        } else {
            vec![0]
        };
        let found = candidates.into_iter().map(|base| Trees { base }).find(|trees| self.are_sound(trees, work));
        if found.is_none() {
            work.skip("inlined calls of Go's table: a layout that is not read");
        }
        found
    }

    /// Whether the first trees hold names and places of their functions.
    fn are_sound(&mut self, trees: &Trees, work: &mut Work) -> bool {
        let mut tried = 0;
        for number in 0..self.table.len() {
            if tried == TRIED_TREES || work.budget.charge(1).is_err() {
                break;
            }
            let Some(entry) = self.table.entry(self.image, number, self.text_start) else { continue };
            let Ok(function) = self.table.function(self.image, &entry, self.text_start) else { continue };
            let Some(place) = function.inline_tree else { continue };
            if pc_table::read(self.table, function.pc_inline, &mut self.runs.inlined, &mut work.budget).is_err() {
                return false;
            }
            let last = self.runs.inlined.iter().map(|run| run.value).max().unwrap_or(-1);
            let Ok(last) = u32::try_from(last) else { continue };
            let length = entry.end - entry.start;
            for number in 0..=last {
                let node = trees.node(self.image, self.table, place, number);
                let is_sound = work.budget.charge(1).is_ok()
                    && node.is_ok_and(|node| u64::from(node.call) < length && self.table.starts_a_name(node.name));
                if !is_sound {
                    return false;
                }
            }
            tried += 1;
        }
        true
    }

    fn piece(
        &mut self,
        entry: &Entry,
        start: u64,
        end: u64,
        number: u64,
        work: &mut Work,
    ) -> Result<(Piece, Declared)> {
        let function = self.table.function(self.image, entry, self.text_start)?;
        let runs = &mut self.runs;
        let has_tree = self.trees.is_some() && function.inline_tree.is_some();
        let tables = [
            (function.pc_file, &mut runs.files),
            (function.pc_line, &mut runs.lines),
            (if has_tree { function.pc_inline } else { 0 }, &mut runs.inlined),
        ];
        for (offset, runs) in tables {
            // What stands before the damage is used.
            if pc_table::read(self.table, offset, runs, &mut work.budget).is_err() {
                work.skip("damaged line table of a Go function");
            }
        }
        // The tables end with the function, behind which padding stands.
        let length = [&runs.files, &runs.lines].iter().filter_map(|runs| Some(runs.last()?.end)).max();
        let end = length.filter(|length| *length > 0).map_or(end, |length| entry.start.saturating_add(length).min(end));
        let rows = self.rows(&function, start, end, work)?;
        let sites = std::mem::take(&mut self.sites);
        let file = rows.iter().find(|row| row.inline == NO_INLINE && !row.file.is_empty()).map(|row| row.file);
        let outer = || sites.iter().find(|site| site.parent == NO_INLINE).map(|site| site.call_file);
        let declared =
            Declared { name: function.name, file: file.or_else(outer).unwrap_or_default(), line: function.line };
        let function = go_number(number);
        Ok((Piece { start, end, function, unit: GO_UNIT, is_entry: true, rows, sites }, declared))
    }

    fn rows(&mut self, function: &Function, start: u64, end: u64, work: &mut Work) -> Result<Vec<Row>> {
        self.nodes.clear();
        self.sites.clear();
        let runs = std::mem::take(&mut self.runs);
        let mut rows: Vec<Row> = Vec::new();
        let (mut files, mut lines, mut inlined) =
            (runs.files.iter().peekable(), runs.lines.iter().peekable(), runs.inlined.iter().peekable());
        let length = end - start;
        let mut position = 0;
        while position < length {
            let mut until = length;
            let mut value = |runs: &mut std::iter::Peekable<std::slice::Iter<'_, Run>>| {
                while runs.next_if(|run| run.end <= position).is_some() {}
                let run = runs.peek()?;
                until = until.min(run.end);
                Some(run.value)
            };
            let (file, line, node) = (value(&mut files), value(&mut lines), value(&mut inlined));
            let file = self.file(function, file, work);
            let line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            let inline =
                node.filter(|node| *node >= 0).map_or(NO_INLINE, |node| self.site(function, &runs, node, work));
            let start = Svma(start + position).to_rva(self.image_base).unwrap_or_default();
            let row = Row { start, file, line, column: 0, inline };
            let is_new = rows.last().is_none_or(|last| (last.file, last.line, last.inline) != (file, line, inline));
            if is_new {
                if let Err(damaged) = work.budget.charge(RECORD_STEPS) {
                    self.runs = runs;
                    return Err(damaged);
                }
                rows.push(row);
            }
            position = until;
        }
        self.runs = runs;
        Ok(rows)
    }

    fn file(&mut self, function: &Function, number: Option<i32>, work: &mut Work) -> StrId {
        let number = number.and_then(|number| u32::try_from(number).ok());
        let Some(offset) = number.and_then(|number| self.table.file(function.unit, number)) else {
            return StrId::EMPTY;
        };
        if let Some(known) = self.paths.get(&offset) {
            return *known;
        }
        let path = self.table.path(offset).map_or(StrId::EMPTY, |path| work.text(path));
        if !path.is_empty() {
            work.source(path, None);
        }
        self.paths.insert(offset, path);
        path
    }

    /// The site of a node of the function's tree, made with those around it when it is first met.
    fn site(&mut self, function: &Function, runs: &Runs, node: i32, work: &mut Work) -> u32 {
        if let Some(known) = self.nodes.get(&node) {
            return *known;
        }
        // From the innermost call outwards, up to one that is known.
        let mut chain: Vec<(i32, Node)> = Vec::new();
        let mut at = node;
        let mut parent = loop {
            if at < 0 {
                break NO_INLINE;
            }
            if let Some(known) = self.nodes.get(&at) {
                break *known;
            }
            let is_circle = chain.len() >= MOST_INLINED;
            let Some(node) = self.node(function, at).filter(|_| !is_circle && work.budget.charge(RECORD_STEPS).is_ok())
            else {
                work.skip("damaged inlined call of Go's table");
                self.nodes.insert(node, NO_INLINE);
                return NO_INLINE;
            };
            chain.push((at, node));
            at = node.parent.or_else(|| value_at(&runs.inlined, node.call.into())).unwrap_or(-1);
        };
        for (number, node) in chain.into_iter().rev() {
            let call = u64::from(node.call);
            let call_file = self.file(function, value_at(&runs.files, call), work);
            let call_line = value_at(&runs.lines, call).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            let origin = go_number(node.name.into());
            self.sites.push(Site { parent, origin, call_file, call_line, call_column: 0 });
            // No more sites than nodes, which are numbered by 31 bits.
            parent = (self.sites.len() - 1) as u32;
            self.nodes.insert(number, parent);
        }
        parent
    }

    fn node(&self, function: &Function, number: i32) -> Option<Node> {
        let (trees, place) = (self.trees.as_ref()?, function.inline_tree?);
        trees.node(self.image, self.table, place, u32::try_from(number).ok()?).ok()
    }
}
