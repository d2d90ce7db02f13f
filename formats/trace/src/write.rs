//! Events into a stream.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::event::line_of;
use crate::read::digest_text;
use crate::{Event, EventError, TraceBegin, TraceCode, TraceEnd, TraceJit, TraceModule, TraceSample};

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output took no more.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
    /// An event has no form in JSON.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// Writes a capture as it is taken, uncompressed. Making the file visible only when it is whole
/// (a temporary name, then a rename) is the caller's part.
///
/// [`TraceWriter::end`] must be called once; a stream without it is refused by readers as truncated.
pub struct TraceWriter<W: Write> {
    output: W,
    lines: u64,
    hasher: Option<Sha256>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes `trace.begin`.
    pub fn begin(output: W, begin: &TraceBegin) -> Result<Self, WriteError> {
        let mut writer = Self { output, lines: 0, hasher: Some(Sha256::new()) };
        writer.line(&line_of(begin)?)?;
        Ok(writer)
    }

    /// Writes `trace.module`.
    pub fn module(&mut self, module: &TraceModule) -> Result<(), WriteError> {
        self.line(&line_of(module)?)
    }

    /// Writes `trace.code`.
    pub fn code(&mut self, code: &TraceCode) -> Result<(), WriteError> {
        self.line(&line_of(code)?)
    }

    /// Writes `trace.jit`.
    pub fn jit(&mut self, function: &TraceJit) -> Result<(), WriteError> {
        self.line(&line_of(function)?)
    }

    /// Writes `trace.sample`.
    pub fn sample(&mut self, sample: &TraceSample) -> Result<(), WriteError> {
        self.line(&line_of(sample)?)
    }

    /// Writes any further event. `trace.begin` and `trace.end` are written by their own functions only.
    pub fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.line(&event.to_line()?)
    }

    /// Writes `trace.end` over everything so far, and gives it. Later events are not part of the capture.
    pub fn end(&mut self, lost: u64) -> Result<TraceEnd, WriteError> {
        let digest = digest_text(self.hasher.take().unwrap_or_default());
        let end = TraceEnd { lost, count: self.lines, digest };
        self.line(&line_of(&end)?)?;
        Ok(end)
    }

    /// Flushes, and gives the output back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.output.flush()?;
        Ok(self.output)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), WriteError> {
        self.output.write_all(line)?;
        self.lines = self.lines.saturating_add(1);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(line);
        }
        Ok(())
    }
}
