//! Names for frames, out of the symbol tables of bundles.

use std::collections::HashMap;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;
use serde::Serialize;
use symseal_module::Rva;
use symseal_symx::{Name, Table};

use super::request::{Job, Offset, Request};
use super::{MadeTables, Refused};
use crate::app::App;
use crate::blobs::{NotGiven, check_size};
use crate::bundled_tables::bundled_table;
use crate::debug_files::Scope;
use crate::endpoints::told_of_storage;
use crate::http::GrowingText;
use crate::ingest::parse_breakpad_id;
use crate::made_tables::MadeTable;
use crate::upstream::UpstreamAway;

/// The largest answer, in bytes. A short request may name one long function a million times.
const ANSWER_LIMIT: usize = 64 << 20;

/// Bytes of demangled names that are kept while a request is answered.
const NAMES_BYTES: usize = 8 << 20;

/// Names the frames of every job; the answer's JSON. Blocks.
pub(super) fn name_all(
    app: &App,
    scope: &Scope,
    request: &Request<'_>,
    made: &MadeTables,
) -> Result<GrowingText, Refused> {
    let mut answer = app.memory.growing();
    write(&mut answer, br#"{"results":["#)?;
    for (at, job) in request.jobs.iter().enumerate() {
        separate(&mut answer, at)?;
        name_job((app, scope, made), job, &mut answer)?;
    }
    write(&mut answer, b"]}")?;
    Ok(answer)
}

/// One job's answer, written stack by stack, so that a long one ends before it fills the memory.
fn name_job(
    (app, scope, made): (&App, &Scope, &MadeTables),
    job: &Job<'_>,
    answer: &mut GrowingText,
) -> Result<(), Refused> {
    let mut modules: Vec<Module> = job.modules.iter().map(|(name, id)| Module { name, id, table: None }).collect();
    for (index, _) in job.stacks.frames() {
        if let Some(module) = usize::try_from(*index).ok().and_then(|index| modules.get_mut(index)) {
            module.table.get_or_insert_with(|| find_table((app, scope, made), (module.name, module.id)));
        }
    }
    // Few of a hundred thousand modules have one.
    let opened: HashMap<usize, Table<'_>> =
        modules.iter().enumerate().filter_map(|(at, module)| Some((at, module.open()?))).collect();
    let mut names = Names::default();
    write(answer, br#"{"stacks":["#)?;
    for (at, stack) in job.stacks.iter().enumerate() {
        separate(answer, at)?;
        write(answer, b"[")?;
        for (at, (index, offset)) in stack.iter().enumerate() {
            separate(answer, at)?;
            let index = usize::try_from(*index).ok();
            let name = index.and_then(|index| modules.get(index)).map_or("<unknown>", |module| module.name);
            let known = index.and_then(|index| Some((index, opened.get(&index)?)));
            let mut frame = Frame::at(at, name, *offset);
            if let (Some(table), Some(offset)) = (known, offset.0) {
                names.fill(&mut frame, table, offset);
            }
            write_json(answer, &frame)?;
        }
        write(answer, b"]")?;
    }
    let mut keyed: Vec<(&Module, bool)> =
        modules.iter().enumerate().map(|(at, module)| (module, opened.contains_key(&at))).collect();
    // Of two alike the last one counts, as in JSON.
    keyed.reverse();
    keyed.sort_by_key(|(module, _)| (module.name, module.id));
    keyed.dedup_by_key(|(module, _)| (module.name, module.id));
    let found = |module: &Module, is_opened| Some(module.table.as_ref().map(|_| is_opened));
    write(answer, br#"],"found_modules":"#)?;
    write_by_key(answer, &keyed, found)?;
    write(answer, br#","module_errors":"#)?;
    write_by_key(answer, &keyed, |module, is_opened| {
        (!is_opened).then(|| module.error()).flatten().map(|error| [error])
    })?;
    // A field of its own: of samply a module with an error has no names at all, and the Firefox Profiler reads neither.
    if modules.iter().any(|module| module.lacks().is_some()) {
        write(answer, br#","module_lacks":"#)?;
        write_by_key(answer, &keyed, |module, _| module.lacks().map(str::to_owned))?;
    }
    write(answer, b"}")
}

/// An object with something of each module that has it.
fn write_by_key<T: Serialize>(
    answer: &mut GrowingText,
    modules: &[(&Module<'_>, bool)],
    of: impl Fn(&Module<'_>, bool) -> Option<T>,
) -> Result<(), Refused> {
    write(answer, b"{")?;
    let all = modules.iter().filter_map(|(module, is_opened)| Some((module, of(module, *is_opened)?)));
    for (at, (module, value)) in all.enumerate() {
        separate(answer, at)?;
        write_json(answer, &module.key())?;
        write(answer, b":")?;
        write_json(answer, &value)?;
    }
    write(answer, b"}")
}

fn separate(answer: &mut GrowingText, at: usize) -> Result<(), Refused> {
    if at == 0 { Ok(()) } else { write(answer, b",") }
}

fn write_json(answer: &mut GrowingText, value: &impl Serialize) -> Result<(), Refused> {
    // Values of these kinds have a text each.
    write(answer, &serde_json::to_vec(value).unwrap_or_default())
}

fn write(answer: &mut GrowingText, text: &[u8]) -> Result<(), Refused> {
    answer.push(text)?;
    if answer.len() > ANSWER_LIMIT {
        return Err(Refused::TooMuch(format!(
            "the answer has more than {ANSWER_LIMIT} bytes: ask in several requests"
        )));
    }
    Ok(())
}

/// A module of the request, with its table once a frame asked for it.
struct Module<'r> {
    name: &'r str,
    id: &'r str,
    table: Option<Result<Bytes<'r>, Missing>>,
}

/// The bytes of a table.
enum Bytes<'r> {
    Bundle(Mmap),
    Made(&'r MadeTable),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bundle(map) => map,
            Self::Made(table) => table,
        }
    }
}

/// Why there is no table.
enum Missing {
    /// The id is none.
    BadId,
    /// Nothing here has it.
    Unknown,
    /// It cannot be read.
    Unreadable(String),
}

/// What samply's server says of a module that gave no names.
#[derive(Serialize)]
struct ModuleError {
    name: &'static str,
    message: String,
}

impl Module<'_> {
    fn key(&self) -> String {
        format!("{}/{}", self.name, self.id)
    }

    fn open(&self) -> Option<Table<'_>> {
        // It was checked when its bundle was published.
        Table::open(self.table.as_ref()?.as_ref().ok()?).ok()
    }

    /// What its table was made without, for people.
    fn lacks(&self) -> Option<&str> {
        match self.table.as_ref()? {
            Ok(Bytes::Made(table)) => Some(table.lacks.as_str()).filter(|lacks| !lacks.is_empty()),
            _ => None,
        }
    }

    fn error(&self) -> Option<ModuleError> {
        let (name, message) = match self.table.as_ref()? {
            Ok(_) => ("BadTable", "its symbol table is damaged".to_owned()),
            Err(Missing::BadId) => ("BadDebugId", format!("expected 32 hex digits and an age, found {:?}", self.id)),
            Err(Missing::Unknown) => {
                ("NotFound", "this server has no symbol table of this module, and no file to make one of".to_owned())
            }
            Err(Missing::Unreadable(error)) => ("Unreadable", error.clone()),
        };
        Some(ModuleError { name, message })
    }
}

fn find_table<'r>(
    (app, scope, made): (&App, &Scope, &'r MadeTables),
    (name, id): (&str, &str),
) -> Result<Bytes<'r>, Missing> {
    let (guid, age) = parse_breakpad_id(id).ok_or(Missing::BadId)?;
    if let Some(found) = bundled_table(app, scope, (guid, age)) {
        let whole = |map: memmap2::Mmap| check_size(&found.digest, map.len() as u64, found.size).map(|()| map);
        let map = app.blobs.map(&found.digest).and_then(whole);
        return map.map(Bytes::Bundle).map_err(|error| missing(&error));
    }
    let of_id = made.get(&(guid, age)).ok_or(Missing::Unknown)?;
    let called = of_id.iter().find(|(called, _)| called == name);
    match called.or(of_id.first()).map(|(_, made)| made).ok_or(Missing::Unknown)? {
        Ok(table) => Ok(Bytes::Made(table)),
        Err(error) => Err(missing(error)),
    }
}

/// What everybody may be told of a table that is not had: what is wrong with the files that it is of, and not where this server keeps what.
fn missing(error: &io::Error) -> Missing {
    match error.kind() {
        _ if NotGiven::is_why(error) => Missing::Unknown,
        io::ErrorKind::InvalidData => Missing::Unreadable(error.to_string()),
        _ if UpstreamAway::is_why(error) => Missing::Unreadable(error.to_string()),
        _ => Missing::Unreadable(told_of_storage(error).to_owned()),
    }
}

/// A frame of the answer. Of inlined calls the frame is the outermost function, and the others are in `inlines`.
#[derive(Serialize)]
struct Frame<'r> {
    frame: usize,
    module: &'r str,
    module_offset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inlines: Vec<Inlined<'r>>,
    /// Ours: which source of names answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol_source: Option<&'static str>,
}

/// A function that was inlined, the innermost first.
#[derive(Serialize)]
struct Inlined<'r> {
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'r> Frame<'r> {
    fn at(frame: usize, module: &'r str, offset: Offset) -> Self {
        Self {
            frame,
            module,
            // As Mozilla's server writes −1.
            module_offset: offset.0.map_or_else(|| "-0x1".to_owned(), |offset| format!("{offset:#x}")),
            function: None,
            function_offset: None,
            function_size: None,
            file: None,
            line: None,
            inlines: Vec::new(),
            symbol_source: None,
        }
    }
}

/// Demangled names: stacks repeat them.
#[derive(Default)]
struct Names {
    /// By the module, and where the symbols lie in its table.
    readable: HashMap<(usize, u32), String>,
    bytes: usize,
}

impl Names {
    fn fill<'t>(&mut self, frame: &mut Frame<'t>, (module, table): (usize, &'t Table<'t>), offset: u64) {
        let Some(hit) = table.lookup(Rva(offset)) else { return };
        let function = hit.function();
        let mut frames: Vec<symseal_symx::Frame<'t>> = hit.frames().collect();
        let Some(outermost) = frames.pop() else { return };
        frame.function = Some(self.name(module, outermost.function, outermost.symbol)).filter(|name| !name.is_empty());
        frame.function_offset = Some(format!("{:#x}", offset.saturating_sub(function.start.0)));
        // A size that only the next symbol gives is none.
        frame.function_size = (!function.flags.approximate).then(|| format!("{:#x}", function.size));
        frame.file = Some(outermost.file).filter(|file| !file.is_empty());
        frame.line = outermost.line;
        frame.symbol_source = Some(function.source.code());
        frame.inlines = frames
            .iter()
            .map(|inlined| Inlined {
                function: self.name(module, inlined.function, inlined.symbol),
                file: Some(inlined.file).filter(|file| !file.is_empty()),
                line: inlined.line,
            })
            .collect();
    }

    fn name(&mut self, module: usize, function: Name<'_>, symbol: Name<'_>) -> String {
        if symbol.is_empty() {
            return function.text().into_owned();
        }
        let key = (module, symbol.place());
        if let Some(known) = self.readable.get(&key) {
            return known.clone();
        }
        let plain = if function.is_empty() { symbol } else { function };
        let demangled = symseal_resolver::demangle(&symbol.text());
        let name = demangled.map_or_else(|| plain.text().into_owned(), |(readable, _)| readable);
        self.keep(key, &name);
        name
    }

    fn keep(&mut self, key: (usize, u32), name: &str) {
        let bytes = name.len().saturating_add(size_of::<((usize, u32), String)>());
        if self.bytes.saturating_add(bytes) > NAMES_BYTES {
            self.readable.clear();
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.readable.insert(key, name.to_owned());
    }
}
