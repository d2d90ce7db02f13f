//! One opened symbol table, mapped or in memory, and lookups in it. It is opened once; what it borrows is held beside it.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use memmap2::Mmap;
use self_cell::self_cell;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Rva, Svma};
use symseal_symx::{Frame, Function, Name, SparseFrame, SymbolSource, Table};

use crate::naming::tells;
use crate::slots::{Slots, mixed};
use crate::{SourceFrame, Text};

/// Functions of a table whose aliases are kept.
const ALIASED: usize = 1024;

/// Names and paths of a table that answers share, and the longest that is kept for it, in bytes: half a MiB at most.
const SHARED_TEXTS: usize = 512;
const LONGEST_SHARED: usize = 1024;

/// The bytes of a table.
#[derive(Debug)]
pub(crate) enum TableBytes {
    /// A map of a file in our own store, where nothing is rewritten after its rename.
    Mapped(Mmap),
    /// Read or made in this process.
    Owned(Vec<u8>),
}

impl TableBytes {
    /// Maps `file`, which must lie in our own store.
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        // SAFETY: the caller says that the file is in a store of ours: its content is fixed before its
        // rename to the name it was opened by, and it is never truncated or rewritten afterwards.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self::Mapped(map))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A symbol table whose header was checked and whose digest is known.
#[derive(Debug)]
pub(crate) struct LoadedTable {
    opened: OpenedTable,
    /// The aliases of functions that were asked for, by where they start: the answers at their addresses share them.
    aliases: Slots<Rva, Arc<[String]>>,
    /// Names and paths that were asked for: answers share them too.
    texts: Slots<u64, Text>,
    /// The digest of the table, where it is a file of a bundle.
    pub(crate) digest: Option<Digest>,
    /// What it was derived from.
    pub(crate) sources: Vec<Digest>,
}

self_cell!(
    struct OpenedTable {
        owner: TableBytes,
        #[covariant]
        dependent: Table,
    }

    impl {Debug}
);

/// What a table says about one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) frames: Vec<SourceFrame>,
    /// The first address of the function's range.
    pub(crate) start: Rva,
    pub(crate) source: SymbolSource,
    pub(crate) approximate: bool,
    pub(crate) folded: bool,
    /// Other linkage names of the function.
    pub(crate) aliases: Arc<[String]>,
}

impl LoadedTable {
    /// Opens a table of the module `debug_id`; the reason and a word about it where it is none.
    pub(crate) fn open(
        bytes: TableBytes,
        debug_id: Option<&DebugId>,
        digest: Option<Digest>,
        sources: Vec<Digest>,
    ) -> Result<Self, (MissReason, String)> {
        let opened = OpenedTable::try_new(bytes, |bytes| Table::open(bytes.as_slice()))
            .map_err(|error| (MissReason::Malformed, error.to_string()))?;
        if let Some(expected) = debug_id {
            let found = opened.borrow_dependent().debug_id();
            if found != *expected {
                return Err((MissReason::DebugIdMismatch, format!("the table is of {found}")));
            }
        }
        let (aliases, texts) = (Slots::with_capacity(ALIASED), Slots::with_capacity(SHARED_TEXTS));
        Ok(Self { opened, aliases, texts, digest, sources })
    }

    /// What is added to the addresses of the table to get stated ones.
    pub(crate) fn image_base(&self) -> Svma {
        self.opened.borrow_dependent().image_base()
    }

    /// The bytes of memory that the table takes; a map of a file takes none of its own.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self.opened.borrow_owner() {
            TableBytes::Mapped(_) => 0,
            TableBytes::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// The functions at `address`, the innermost first; `None` where no function's range holds it. Where nothing names code that has lines, the frame tells
    /// its place alone.
    pub(crate) fn lookup(&self, address: Rva) -> Option<Named> {
        let hit = self.opened.borrow_dependent().lookup(address)?;
        let frames: Vec<SourceFrame> = hit.frames().map(|frame| self.source_frame(&frame)).collect();
        if !tells(&frames) {
            return None;
        }
        let function = hit.function();
        let Function { start, source, flags, .. } = function;
        let aliases = self.aliases_of(&function);
        Some(Named { frames, start, source, approximate: flags.approximate, folded: flags.folded, aliases })
    }

    /// What the table says of one function at an address.
    fn source_frame(&self, frame: &Frame<'_>) -> SourceFrame {
        let name = |name: Name<'_>| self.text(u64::from(name.place()), || name.text());
        let function = name(frame.function);
        let symbol = match frame.function.place() == frame.symbol.place() {
            true => function.clone(),
            false => name(frame.symbol),
        };
        SourceFrame {
            function: function.or_else(|| symbol.clone()),
            symbol,
            // Where it lies tells a path from another, and from names.
            file: self.text(frame.file.as_ptr() as u64 | 1 << 63, || frame.file.into()),
            line: frame.line,
            // Code without a line has no column either.
            column: frame.column().filter(|_| frame.line.is_some()),
            inlined: frame.inlined,
            demangling: None,
        }
    }

    /// A text of the table, which `key` tells from its others; `None` where it is empty.
    fn text<'t>(&self, key: u64, text: impl FnOnce() -> Cow<'t, str>) -> Option<Text> {
        if let Some(known) = self.texts.find(mixed(key), |known| *known == key) {
            return Some(known);
        }
        let text = Some(text()).filter(|text| !text.is_empty())?;
        let is_kept = text.len() <= LONGEST_SHARED;
        let text = Text::from(text);
        if is_kept {
            self.texts.put(mixed(key), key, text.clone());
        }
        Some(text)
    }

    /// Other linkage names of a function of the table.
    fn aliases_of(&self, function: &Function<'_>) -> Arc<[String]> {
        let mut aliases = function.aliases().peekable();
        if aliases.peek().is_none() {
            return Arc::default();
        }
        let hash = mixed(function.start.0);
        if let Some(known) = self.aliases.find(hash, |start| *start == function.start) {
            return known;
        }
        let made: Arc<[String]> = aliases.map(|alias| alias.text().into_owned()).collect();
        self.aliases.put(hash, function.start, Arc::clone(&made));
        made
    }
}

impl From<SparseFrame> for SourceFrame {
    fn from(frame: SparseFrame) -> Self {
        Self {
            line: frame.line,
            column: frame.column.filter(|_| frame.line.is_some()),
            inlined: frame.inlined,
            ..Self::of_texts(&frame.function, &frame.symbol, &frame.file)
        }
    }
}

impl SourceFrame {
    /// From a table's texts, in which an empty one says that nothing is known.
    fn of_texts(function: &str, symbol: &str, file: &str) -> Self {
        Self {
            function: some_text(function).or_else(|| some_text(symbol)),
            symbol: some_text(symbol),
            file: some_text(file),
            ..Self::default()
        }
    }
}

fn some_text(text: &str) -> Option<Text> {
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::{quality_of, why_nameless};
    use symseal_module::Quality;
    use symseal_symx::{FunctionFlags, FunctionRecord, NO_INLINE, Row, Strings, TableInput};

    /// A table of one function that is known by this name and source, all of it in line 7 of a file where that has a path.
    fn table_of(name: &str, source: SymbolSource, file: &str) -> LoadedTable {
        let mut strings = Strings::new();
        let (name, file) = (strings.intern(name), strings.intern(file));
        let row = Row { start: Rva(0x1000), file, line: 7, column: 0, inline: NO_INLINE };
        let function = FunctionRecord {
            start: Rva(0x1000),
            size: 0x20,
            name,
            symbol: name,
            aliases: Vec::new(),
            source,
            flags: FunctionFlags { approximate: true, ..FunctionFlags::default() },
            file: symseal_symx::StrId::EMPTY,
            line: 0,
            rows: Some(row).filter(|row| !row.file.is_empty()).into_iter().collect(),
            inlines: Vec::new(),
        };
        let debug_id = "abcdef".parse().unwrap();
        let input = TableInput {
            debug_id: &debug_id,
            image_base: Svma(0),
            source_sha256: [0; 32],
            producer: "test",
            strings: &strings,
            functions: &[function],
        };
        let bytes = symseal_symx::write(&input).unwrap();
        LoadedTable::open(TableBytes::Owned(bytes), Some(&debug_id), None, Vec::new()).unwrap()
    }

    #[test]
    fn a_function_start_without_a_name_answers_nothing() {
        assert_eq!(table_of("", SymbolSource::FunctionStarts, "").lookup(Rva(0x1004)), None);
        let named = table_of("f", SymbolSource::Exports, "").lookup(Rva(0x1004)).unwrap();
        assert_eq!((named.frames.len(), named.approximate), (1, true));
    }

    #[test]
    fn code_without_a_name_has_its_place_and_no_better_quality() {
        let named = table_of("", SymbolSource::FunctionStarts, "a.s").lookup(Rva(0x1004)).unwrap();
        let [only] = named.frames.as_slice() else { panic!("{named:?}") };
        assert_eq!((only.function.as_deref(), only.file.as_deref(), only.line), (None, Some("a.s"), Some(7)));
        assert!(named.approximate, "so that it never counts as coverage");
        assert_eq!(quality_of(&named.frames), Quality::ModuleOffset);
        assert_eq!(why_nameless(&named.frames), Some(MissReason::NoSymbolAtAddress));
    }
}
