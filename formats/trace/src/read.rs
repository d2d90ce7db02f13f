//! Events from a stream, within bounds.

use std::io::{self, BufRead, BufReader, Read};

use sha2::{Digest, Sha256};

use crate::compress::Decompressed;
use crate::{Event, EventError, TraceEnd};

/// Bounds on what a stream may ask of its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line of a kind that is known.
    pub line_bytes: u64,
    /// Bytes of the whole stream, decompressed.
    pub total_bytes: u64,
    /// `trace.module` events.
    pub modules: u64,
    /// `trace.code` events.
    pub code: u64,
    /// `trace.jit` events.
    pub jit: u64,
    /// `trace.sample` events.
    pub samples: u64,
    /// Stack segments of one sample.
    pub segments: u64,
    /// Registers of one sample.
    pub registers: u64,
    /// Bytes of all lines of unknown kinds together: as JSON values they take many times their text.
    pub unknown_bytes: u64,
}

impl Default for Limits {
    /// Room for 30,000 threads with 64 KiB of stack each.
    fn default() -> Self {
        Self {
            line_bytes: 64 << 20,
            total_bytes: 4 << 30,
            modules: 1 << 16,
            code: 1 << 18,
            jit: 1 << 18,
            samples: 1 << 20,
            segments: 64,
            registers: 256,
            unknown_bytes: 16 << 20,
        }
    }
}

/// What is wrong with a stream.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The stream cannot be read or decompressed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is no event.
    #[error("{0}")]
    Event(#[from] EventError),
    /// More than the limits allow.
    #[error("more than {limit} {what}: the stream is refused")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// An event where none of its kind may be.
    #[error("found {found}, expected {expected}")]
    Order {
        /// The event's kind.
        found: String,
        /// What may stand here.
        expected: &'static str,
    },
    /// `trace.end` counts another number of lines.
    #[error("trace.end counts {expected} lines before it, found {found}: the trace lost lines")]
    Count {
        /// Lines that `trace.end` counts.
        expected: u64,
        /// Lines that there are.
        found: u64,
    },
    /// `trace.end` has another digest than the lines before it.
    #[error("trace.end says {expected}, the lines before it are {found}: the trace was changed")]
    Digest {
        /// What `trace.end` says.
        expected: String,
        /// What the lines give.
        found: String,
    },
    /// The stream stops within a line.
    #[error("the stream stops within a line: it is truncated")]
    Truncated,
    /// No `trace.end`.
    #[error("the stream has no trace.end: it is no trace, or it is truncated")]
    NoEnd,
    /// Only what is known about a capture.
    #[error(
        "the stream tells about a capture, and is none: the trace itself is in a file of its own, which begins with trace.begin"
    )]
    NoCapture,
}

/// A problem, and where.
#[derive(Debug, thiserror::Error)]
#[error("{name}:{line}: {problem}")]
pub struct ReadError {
    /// The stream's name, mostly its file.
    pub name: String,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong there.
    pub problem: Problem,
}

enum Stage {
    /// Nothing read yet. A stream may also hold no capture at all, only what is known about one.
    Start,
    /// Between `trace.begin` and `trace.end`.
    Inside,
    /// After `trace.end`, or in a stream without a capture.
    Outside,
}

/// Reads events one by one, and checks order, count and digest of the capture among them.
pub struct EventReader<R: Read> {
    input: BufReader<io::Take<Decompressed<R>>>,
    name: String,
    limits: Limits,
    line: u64,
    line_bytes: Vec<u8>,
    modules: u64,
    code: u64,
    jit: u64,
    samples: u64,
    unknown_bytes: u64,
    stage: Stage,
    hasher: Sha256,
}

impl<R: Read> EventReader<R> {
    /// Starts on a stream. `name` is what errors call it.
    pub fn new(input: R, name: &str, limits: Limits) -> Result<Self, ReadError> {
        let input = Decompressed::new(input).map_err(|error| ReadError {
            name: name.to_owned(),
            line: 1,
            problem: error.into(),
        })?;
        Ok(Self {
            // One byte more than allowed, so that a stream of exactly the limit is told from a longer one.
            input: BufReader::new(input.take(limits.total_bytes.saturating_add(1))),
            name: name.to_owned(),
            limits,
            line: 0,
            line_bytes: Vec::new(),
            modules: 0,
            code: 0,
            jit: 0,
            samples: 0,
            unknown_bytes: 0,
            stage: Stage::Start,
            hasher: Sha256::new(),
        })
    }

    /// The next event; `None` at the end of the stream. After an error nothing more should be read.
    pub fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        match self.read_line().and_then(|more| if more { self.take_event().map(Some) } else { Ok(None) }) {
            Ok(event) => Ok(event),
            Err(problem) => Err(self.error(problem)),
        }
    }

    /// `problem` at the line that was read last.
    pub(crate) fn error(&self, problem: Problem) -> ReadError {
        ReadError { name: self.name.clone(), line: self.line.max(1), problem }
    }

    /// Fills `line_bytes` with the next line, line feed included; false at the end of the stream.
    fn read_line(&mut self) -> Result<bool, Problem> {
        self.line_bytes.clear();
        let bound = self.limits.line_bytes.saturating_add(1);
        let read = self.input.by_ref().take(bound).read_until(b'\n', &mut self.line_bytes)?;
        if read == 0 {
            return Ok(false);
        }
        self.line = self.line.saturating_add(1);
        if self.input.get_ref().limit() == 0 {
            return Err(Problem::TooLarge { what: "bytes in all", limit: self.limits.total_bytes });
        }
        if self.line_bytes.ends_with(b"\n") {
            return Ok(true);
        }
        if read as u64 == bound {
            return Err(Problem::TooLarge { what: "bytes in one line", limit: self.limits.line_bytes });
        }
        Err(Problem::Truncated)
    }

    fn take_event(&mut self) -> Result<Event, Problem> {
        let event = Event::parse(self.line_bytes.strip_suffix(b"\n").unwrap_or(&self.line_bytes))?;
        self.check_size(&event)?;
        self.stage = match (&self.stage, &event) {
            (Stage::Start, Event::Begin(_)) => Stage::Inside,
            (_, Event::Begin(_)) => return Err(out_of_order(&event, "no trace.begin after the first line")),
            (Stage::Inside, Event::End(end)) => {
                self.check_end(end)?;
                Stage::Outside
            }
            (Stage::Inside, _) => Stage::Inside,
            (_, Event::Module(_) | Event::Code(_) | Event::Jit(_) | Event::Sample(_) | Event::End(_)) => {
                return Err(out_of_order(&event, "trace.begin before it"));
            }
            (Stage::Start | Stage::Outside, _) => Stage::Outside,
        };
        if let Stage::Inside = self.stage {
            self.hasher.update(&self.line_bytes);
        }
        Ok(event)
    }

    fn check_size(&mut self, event: &Event) -> Result<(), Problem> {
        let bounded = |found: u64, limit: u64, what: &'static str| {
            if found > limit { Err(Problem::TooLarge { what, limit }) } else { Ok(()) }
        };
        match event {
            Event::Module(_) => {
                self.modules = self.modules.saturating_add(1);
                bounded(self.modules, self.limits.modules, "modules")
            }
            Event::Code(_) => {
                self.code = self.code.saturating_add(1);
                bounded(self.code, self.limits.code, "mappings of code without a file")
            }
            Event::Jit(_) => {
                self.jit = self.jit.saturating_add(1);
                bounded(self.jit, self.limits.jit, "functions of JIT compilers")
            }
            Event::Sample(sample) => {
                self.samples = self.samples.saturating_add(1);
                bounded(self.samples, self.limits.samples, "samples")?;
                bounded(sample.stacks.len() as u64, self.limits.segments, "stack segments in one sample")?;
                bounded(sample.registers.len() as u64, self.limits.registers, "registers in one sample")
            }
            Event::Other(_) => {
                self.unknown_bytes = self.unknown_bytes.saturating_add(self.line_bytes.len() as u64);
                bounded(self.unknown_bytes, self.limits.unknown_bytes, "bytes of unknown kinds")
            }
            _ => Ok(()),
        }
    }

    fn check_end(&self, end: &TraceEnd) -> Result<(), Problem> {
        let found = self.line.saturating_sub(1);
        if end.count != found {
            return Err(Problem::Count { expected: end.count, found });
        }
        let found = digest_text(self.hasher.clone());
        if end.digest != found {
            return Err(Problem::Digest { expected: end.digest.clone(), found });
        }
        Ok(())
    }
}

impl<R: Read> Iterator for EventReader<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

/// `sha256:` and the lower-case hex of what was hashed.
pub(crate) fn digest_text(hasher: Sha256) -> String {
    use std::fmt::Write;
    let mut text = String::from("sha256:");
    for byte in hasher.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn out_of_order(event: &Event, expected: &'static str) -> Problem {
    Problem::Order { found: event.kind().to_owned(), expected }
}
