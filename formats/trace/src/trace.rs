//! A whole capture, and the events that open and close it.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use symseal_module::{DebugId, ModuleMap};
use uuid::Uuid;

use crate::{
    CaptureFrame, Compression, Event, EventReader, Limits, Problem, ReadError, TraceCapture, TraceCode, TraceJit,
    TraceModule, TraceSample, TraceWriter, WriteError,
};

/// `trace.begin`: what was captured, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegin {
    /// The trace's id.
    pub trace_id: Uuid,
    /// The operating system: `linux`.
    pub platform: String,
    /// The processor architecture: `x86_64`.
    pub arch: String,
    /// The process.
    pub pid: u32,
    /// When the process was stopped (RFC 3339, UTC).
    pub captured_at: String,
    /// How: `ptrace`.
    pub method: String,
    /// The most bytes that were copied upwards from each stack pointer.
    pub stack_copy_bytes: u64,
    /// The path of the process's executable (escaped), where known: one of the modules.
    #[serde(default)]
    pub executable: Option<String>,
    /// The executable's debug id.
    #[serde(default)]
    pub build_id: Option<DebugId>,
    /// The program that wrote the trace, and its version.
    #[serde(default)]
    pub producer: String,
}

/// `trace.end`: the capture is complete up to here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnd {
    /// Threads that were there and could not be sampled.
    pub lost: u64,
    /// Lines before this one.
    pub count: u64,
    /// `sha256:` and the digest of all bytes before this line, uncompressed, line feeds included.
    pub digest: String,
}

/// A whole capture, with whatever else its stream held.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// What was captured, and how.
    pub begin: TraceBegin,
    /// The modules, in the order of the stream.
    pub modules: Vec<TraceModule>,
    /// Executable memory without a file, as far as samples lead to it, in the order of the stream.
    pub code: Vec<TraceCode>,
    /// Functions that compilers made while the program ran, as far as samples lead to them, in the order of the stream.
    pub jit: Vec<TraceJit>,
    /// The samples, in the order of the stream.
    pub samples: Vec<TraceSample>,
    /// How it ended. Writing computes `count` and `digest` afresh.
    pub end: TraceEnd,
    /// Further events between `trace.begin` and `trace.end`.
    pub inside: Vec<Event>,
    /// Events after `trace.end`: summaries, resolved frames, replays.
    pub after: Vec<Event>,
}

impl Trace {
    /// Reads a stream (plain, gzip or zstd) of exactly one capture, within [`Limits::default`].
    ///
    /// The count and digest of `trace.end` are checked. Errors call the stream `trace`.
    pub fn read(input: impl Read) -> Result<Self, ReadError> {
        Self::read_named(input, "trace", Limits::default())
    }

    /// The same, where errors call the stream `name` (its file).
    pub fn read_named(input: impl Read, name: &str, limits: Limits) -> Result<Self, ReadError> {
        let mut reader = EventReader::new(input, name, limits)?;
        let mut trace = Self::default();
        let (mut began, mut ended) = (false, false);
        while let Some(event) = reader.next_event()? {
            match event {
                Event::Begin(begin) => {
                    trace.begin = begin;
                    began = true;
                }
                Event::Module(module) => trace.modules.push(module),
                Event::Code(code) => trace.code.push(code),
                Event::Jit(function) => trace.jit.push(function),
                Event::Sample(sample) => trace.samples.push(sample),
                Event::End(end) => {
                    trace.end = end;
                    ended = true;
                }
                other if ended => trace.after.push(other),
                other => trace.inside.push(other),
            }
        }
        if !began && !trace.inside.is_empty() {
            return Err(reader.error(Problem::NoCapture));
        }
        if !ended {
            return Err(reader.error(Problem::NoEnd));
        }
        Ok(trace)
    }

    /// Writes the capture and what followed it, uncompressed: `trace.begin`, modules, code without a file, functions of JIT compilers, samples, the
    /// further events, `trace.end`, the events after it. Gives the `trace.end` that was written.
    pub fn write(&self, output: impl Write) -> Result<TraceEnd, WriteError> {
        let mut writer = TraceWriter::begin(output, &self.begin)?;
        for module in &self.modules {
            writer.module(module)?;
        }
        for code in &self.code {
            writer.code(code)?;
        }
        for function in &self.jit {
            writer.jit(function)?;
        }
        for sample in &self.samples {
            writer.sample(sample)?;
        }
        for event in &self.inside {
            writer.event(event)?;
        }
        let end = writer.end(self.end.lost)?;
        for event in &self.after {
            writer.event(event)?;
        }
        writer.finish()?;
        Ok(end)
    }

    /// The same, compressed. Zstd needs the feature `zstd`.
    pub fn write_compressed(&self, mut output: impl Write, compression: Compression) -> Result<TraceEnd, WriteError> {
        match compression {
            Compression::Plain => self.write(output),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(output, flate2::Compression::default());
                let end = self.write(&mut encoder)?;
                encoder.finish()?.flush()?;
                Ok(end)
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(&mut output, 0)?;
                let end = self.write(&mut encoder)?;
                encoder.finish()?.flush()?;
                Ok(end)
            }
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd => {
                let _ = &mut output;
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "this build writes no zstd").into())
            }
        }
    }

    /// Which module an address belongs to. Of modules that overlap, the first in the stream stays.
    pub fn module_map(&self) -> ModuleMap {
        ModuleMap::new(self.modules.iter().map(TraceModule::to_mapped).collect())
    }

    /// The summary as far as the capture alone tells: one frame per sample, its innermost.
    pub fn capture_summary(&self) -> TraceCapture {
        let map = self.module_map();
        let frames = self.samples.iter().filter_map(|sample| {
            let ip = sample.register("rip")?;
            let module = map.find(ip).and_then(|index| map.modules().get(index));
            Some(CaptureFrame {
                ip,
                module: module.map(|module| module.path.clone()),
                module_build_id: module.and_then(|module| module.debug_id.clone()),
                thread: sample.thread,
            })
        });
        TraceCapture {
            trace_id: self.begin.trace_id,
            platform: self.begin.platform.clone(),
            build_id: self.begin.build_id.clone(),
            frames: frames.collect(),
            symbol_bundle_ref: None,
            dsse_ref: None,
            captured_at: self.begin.captured_at.clone(),
            pid: self.begin.pid,
            arch: self.begin.arch.clone(),
            method: self.begin.method.clone(),
            samples: self.samples.len() as u64,
            lost: self.end.lost,
            trace_digest: (!self.end.digest.is_empty()).then(|| self.end.digest.clone()),
        }
    }
}
