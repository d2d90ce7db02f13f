//! The bytes of `jit-PID.dump` (Linux, `tools/perf/Documentation/jitdump-specification.txt`, version 1).
//!
//! ```text
//! header: magic "JiTD" u32, version u32, bytes u32, machine u32, - u32, pid u32, time u64, flags u64
//! record: kind u32, bytes u32, time u64, body
//!   load  (0): pid u32, tid u32, vma u64, start u64, size u64, index u64, name, 0, code
//!   move  (1): pid u32, tid u32, vma u64, old start u64, new start u64, size u64, index u64
//!   lines (2): start u64, count u64, count × { address u64, line u32, discriminator u32, file, 0 }
//!   close (3): nothing is written any more
//!   rules (4): bytes of all u64, of them of .eh_frame_hdr u64, to be mapped u64, .eh_frame, .eh_frame_hdr, padding
//! ```
//!
//! All in the byte order of the machine, which the magic shows. Records of lines belong to the load record of the same
//! start: V8 and perf's own agent write them before it, others after it. Those of unwinding rules belong to the next load record.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use symseal_module::Avma;

use super::functions::{JitFunction, JitFunctions, JitHit, JitLine};
use super::name_text;

const MAGIC: u32 = 0x4a69_5444;
const HEADER_BYTES: usize = 40;
const RECORD_HEADER_BYTES: usize = 16;
/// More than the code of any function; a record that claims more is damage.
const MAX_RECORD_BYTES: usize = 64 << 20;
/// Lines of one function; more are left out.
const MAX_LINES: usize = 1 << 16;
/// Records of lines whose function did not come yet. There are one or two in a file that is sound.
const MAX_WAITING: usize = 1024;
/// Bytes of one function's unwinding rules; more are left out. V8 and CPython write some fifty.
const MAX_RULES_BYTES: usize = 1 << 16;
/// Different rules of a dump; those of further functions are left out. Functions of one frame have the same.
const MAX_RULES: usize = 1 << 12;
/// Source files of a dump; lines of further ones are left out.
const MAX_FILES: usize = 1 << 18;
/// V8 states lines as they will be in the ELF image that `perf inject` makes: behind its header of 64 bytes. No line of
/// such a dump lies before that, and many lie exactly there; dumps of others have lines where functions begin.
const V8_LINE_SHIFT: u64 = 0x40;
/// Stands for "the file of the entry before".
const SAME_FILE: &[u8] = b"\xff";

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
const CLOSE: u32 = 3;
const RULES: u32 = 4;

/// Why a file is no jitdump that can be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JitDumpError {
    /// The beginning is another one.
    #[error("expected the magic of a jitdump, found {found:#010x}")]
    Magic {
        /// The first four bytes, read as little-endian.
        found: u32,
    },
    /// A version that this reader does not know.
    #[error("expected a jitdump of version 1, found {found}")]
    Version {
        /// The version.
        found: u32,
    },
    /// A record or the header has a size that it cannot have. What was read before holds.
    #[error("at byte {at}: a header or record of {bytes} bytes, expected 16 or more and at most 64 MiB")]
    Size {
        /// Where it begins.
        at: u64,
        /// The size that it states.
        bytes: u32,
    },
}

/// The functions of a jitdump, as far as it was read.
#[derive(Debug, Default)]
pub struct JitDump {
    header: Option<Header>,
    functions: Arc<JitFunctions>,
    waiting: HashMap<Avma, Vec<JitLine>>,
    files: HashMap<Vec<u8>, Arc<str>>,
    /// Unwinding rules by their bytes.
    rules: HashSet<Arc<[u8]>>,
    /// Those that belong to the next function.
    coming_rules: Option<Arc<[u8]>>,
    /// The function of the record before, if that was a load record.
    just_loaded: Option<Avma>,
    read_bytes: u64,
    bad_records: u64,
    closed: bool,
    lines_begin: LinesBegin,
}

/// Where the lines of functions begin, as far as the dump shows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LinesBegin {
    #[default]
    Unknown,
    /// At the function's start.
    AtStart,
    /// [`V8_LINE_SHIFT`] bytes behind it.
    Shifted,
}

#[derive(Debug, Clone, Copy)]
struct Header {
    big_endian: bool,
    pid: u32,
}

impl JitDump {
    /// A dump of which nothing was read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads on with the next part of the file. Gives the bytes that were used: a record counts once it is whole, so
    /// that what was not used has to come again with the rest of it.
    ///
    /// # Errors
    /// Where the file is no jitdump, or damaged so that the next record cannot be found; what was read stays.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, JitDumpError> {
        let mut used = 0usize;
        while !self.closed {
            let rest = bytes.get(used..).unwrap_or_default();
            let step = match self.header {
                None => self.read_header(rest)?,
                Some(header) => self.read_record(rest, header)?,
            };
            if step == 0 {
                break;
            }
            used = used.saturating_add(step);
            self.read_bytes = self.read_bytes.saturating_add(step as u64);
        }
        Ok(used)
    }

    /// The function that holds `address`.
    pub fn find(&self, address: Avma) -> Option<JitHit<'_>> {
        self.functions.find(address)
    }

    /// Functions held.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// The functions as they are now; what is read later does not change these.
    pub fn snapshot(&self) -> Arc<JitFunctions> {
        Arc::clone(&self.functions)
    }

    /// The process that writes it, as it knows itself in its own namespace; `None` before the header was read.
    pub fn pid(&self) -> Option<u32> {
        self.header.map(|header| header.pid)
    }

    /// Whether the runtime said that it writes nothing more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Records that were passed over: of a known kind, and not of its form.
    pub fn bad_records(&self) -> u64 {
        self.bad_records
    }

    /// Functions that were left out, beyond [`super::MAX_FUNCTIONS`].
    pub fn left_out(&self) -> u64 {
        self.functions.left_out()
    }

    fn read_header(&mut self, bytes: &[u8]) -> Result<usize, JitDumpError> {
        let mut fields = Fields { bytes, big_endian: false };
        let Some(magic) = fields.u32() else { return Ok(0) };
        fields.big_endian = match magic {
            MAGIC => false,
            _ if magic.swap_bytes() == MAGIC => true,
            found => return Err(JitDumpError::Magic { found }),
        };
        let (Some(version), Some(size)) = (fields.u32(), fields.u32()) else { return Ok(0) };
        if version != 1 {
            return Err(JitDumpError::Version { found: version });
        }
        let whole = usize::try_from(size).ok().filter(|size| (HEADER_BYTES..=MAX_RECORD_BYTES).contains(size));
        let whole = whole.ok_or(JitDumpError::Size { at: 0, bytes: size })?;
        let (_, _, pid) = (fields.u32(), fields.u32(), fields.u32());
        let (Some(pid), true) = (pid, bytes.len() >= whole) else { return Ok(0) };
        self.header = Some(Header { big_endian: fields.big_endian, pid });
        Ok(whole)
    }

    fn read_record(&mut self, bytes: &[u8], header: Header) -> Result<usize, JitDumpError> {
        let mut fields = Fields { bytes, big_endian: header.big_endian };
        let (Some(kind), Some(size), Some(time)) = (fields.u32(), fields.u32(), fields.u64()) else { return Ok(0) };
        let whole = usize::try_from(size).ok().filter(|size| (RECORD_HEADER_BYTES..=MAX_RECORD_BYTES).contains(size));
        let whole = whole.ok_or(JitDumpError::Size { at: self.read_bytes, bytes: size })?;
        let Some(body) = bytes.get(RECORD_HEADER_BYTES..whole) else { return Ok(0) };
        let body = Fields { bytes: body, ..fields };
        let loaded = self.just_loaded.take();
        let understood = match kind {
            LOAD => self.load(body, time),
            MOVE => self.move_function(body),
            LINES => self.lines(body, loaded),
            CLOSE => {
                self.closed = true;
                Some(())
            }
            RULES => {
                self.just_loaded = loaded;
                self.rules(body)
            }
            // Kinds that later versions add.
            _ => {
                self.just_loaded = loaded;
                Some(())
            }
        };
        if understood.is_none() {
            self.bad_records = self.bad_records.saturating_add(1);
        }
        Ok(whole)
    }

    fn load(&mut self, mut body: Fields<'_>, time: u64) -> Option<()> {
        let eh_frame = self.coming_rules.take();
        let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
        let (start, size, _index) = (Avma(body.u64()?), body.u64()?, body.u64()?);
        let name = body.text()?;
        let lines = self.waiting.remove(&start).unwrap_or_default();
        let lines = self.believed(lines, start, size);
        let function = JitFunction { start, size, name: name_text(name), lines, eh_frame, written_at: Some(time) };
        self.just_loaded = Some(start);
        self.edit().add(function).then_some(())
    }

    fn move_function(&mut self, mut body: Fields<'_>) -> Option<()> {
        let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
        let (from, to, size) = (Avma(body.u64()?), Avma(body.u64()?), body.u64()?);
        let mut function = self.edit().take(from)?;
        for line in &mut function.lines {
            line.address = Avma(line.address.0.wrapping_sub(from.0).wrapping_add(to.0));
        }
        // Lines that wrapped around would not be in order.
        function.lines.sort_by_key(|line| line.address);
        (function.start, function.size) = (to, size);
        self.edit().add(function).then_some(())
    }

    fn rules(&mut self, mut body: Fields<'_>) -> Option<()> {
        self.coming_rules = None;
        let (all, header, _mapped) = (body.u64()?, body.u64()?, body.u64()?);
        let bytes = usize::try_from(all.checked_sub(header)?).ok()?;
        let eh_frame = body.bytes.get(..usize::try_from(all).ok()?)?.get(..bytes)?;
        if eh_frame.is_empty() || eh_frame.len() > MAX_RULES_BYTES {
            return Some(());
        }
        self.coming_rules = match self.rules.get(eh_frame) {
            Some(known) => Some(Arc::clone(known)),
            None if self.rules.len() < MAX_RULES => {
                let new: Arc<[u8]> = eh_frame.into();
                self.rules.insert(Arc::clone(&new));
                Some(new)
            }
            None => None,
        };
        Some(())
    }

    fn lines(&mut self, mut body: Fields<'_>, loaded: Option<Avma>) -> Option<()> {
        let (start, count) = (Avma(body.u64()?), body.u64()?);
        let mut lines: Vec<JitLine> = Vec::new();
        for _ in 0..count {
            let (address, line, _discriminator) = (Avma(body.u64()?), body.u32()?, body.u32()?);
            let file = match body.text()? {
                SAME_FILE => Arc::clone(&lines.last()?.file),
                name => self.file(name)?,
            };
            if lines.len() < MAX_LINES {
                lines.push(JitLine { address, line, file });
            }
        }
        lines.sort_by_key(|line| line.address);
        let size =
            self.functions.starting_at(start).filter(|function| loaded == Some(start) && function.lines.is_empty());
        if let Some(size) = size.map(|function| function.size) {
            let lines = self.believed(lines, start, size);
            self.edit().set_lines(start, lines);
            return Some(());
        }
        if self.waiting.len() >= MAX_WAITING {
            // Functions that never came.
            self.waiting.clear();
        }
        self.waiting.insert(start, lines);
        Some(())
    }

    /// The lines of a function, or none of them where one lies outside: V8 writes records of lines that are garbage from
    /// some place on.
    fn believed(&mut self, lines: Vec<JitLine>, start: Avma, size: u64) -> Vec<JitLine> {
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return lines };
        let (from, to) = (first.address.0.checked_sub(start.0), last.address.0.saturating_sub(start.0));
        let Some(from) = from.filter(|_| to <= size.saturating_add(V8_LINE_SHIFT)) else {
            self.bad_records = self.bad_records.saturating_add(1);
            return Vec::new();
        };
        match from {
            ..V8_LINE_SHIFT => self.lines_begin = LinesBegin::AtStart,
            V8_LINE_SHIFT if self.lines_begin == LinesBegin::Unknown => self.lines_begin = LinesBegin::Shifted,
            _ => return lines,
        }
        let shift = if self.lines_begin == LinesBegin::Shifted { V8_LINE_SHIFT } else { 0 };
        self.edit().set_line_shift(shift);
        lines
    }

    /// The functions, for changing them: copied first where a snapshot shows them.
    fn edit(&mut self) -> &mut JitFunctions {
        Arc::make_mut(&mut self.functions)
    }

    /// The one text of a file's name; `None` for what is none.
    fn file(&mut self, name: &[u8]) -> Option<Arc<str>> {
        if name.is_empty() || str::from_utf8(name).ok()?.contains(char::is_control) {
            return None;
        }
        if let Some(known) = self.files.get(name) {
            return Some(Arc::clone(known));
        }
        if self.files.len() >= MAX_FILES {
            return None;
        }
        let text: Arc<str> = name_text(name).into();
        self.files.insert(name.to_vec(), Arc::clone(&text));
        Some(text)
    }
}

/// Reads one field after the other.
#[derive(Clone, Copy)]
struct Fields<'b> {
    bytes: &'b [u8],
    big_endian: bool,
}

impl<'b> Fields<'b> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(if self.big_endian { u32::from_be_bytes(*field) } else { u32::from_le_bytes(*field) })
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(if self.big_endian { u64::from_be_bytes(*field) } else { u64::from_le_bytes(*field) })
    }

    /// The bytes before the next zero byte.
    fn text(&mut self) -> Option<&'b [u8]> {
        let end = self.bytes.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.bytes.split_at_checked(end)?;
        self.bytes = rest.get(1..)?;
        Some(text)
    }
}

#[cfg(test)]
mod tests;
