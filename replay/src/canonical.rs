//! The form in which two results are compared: everything said relative to what it belongs to, so that
//! the same stack in another layout has the same bytes.

use std::fmt::Write;

use symseal_module::{DebugId, MissReason, ResolverStep, StopReason, UnwindMethod};
use symseal_resolver::ResolvedFrame;
use symseal_unwind::Frame;

use crate::resolve::ResolvedThread;
use crate::scene::{Ranges, Scene, SceneModule, Snapshot};
use crate::walk::ThreadStack;

/// How an unknown frame address is told.
pub(crate) const UNKNOWN: &str = "0x0";

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Canonical {
    pub(crate) thread: u32,
    pub(crate) sample: u32,
    pub(crate) frames: Vec<CanonicalFrame>,
    pub(crate) stop: StopReason,
}

/// One frame, in the order of the parts that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CanonicalFrame {
    /// The module around it.
    pub(crate) module: Option<DebugId>,
    /// How it was found.
    pub(crate) method: UnwindMethod,
    /// Module and svma of the program counter, its kind, the frame pointer.
    pub(crate) place: String,
    /// The frame address, relative to the stack.
    pub(crate) cfa: String,
    /// The step of the chain that named it.
    pub(crate) resolver: ResolverStep,
    /// Resolver, quality, proof, and every function with its place in the source.
    pub(crate) names: String,
    /// Why there is no name.
    pub(crate) reason: Option<MissReason>,
}

impl std::fmt::Display for CanonicalFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} cfa={} {}", self.place, self.method, self.cfa, self.names)?;
        match self.reason {
            Some(reason) => write!(f, " {reason}"),
            None => Ok(()),
        }
    }
}

impl Canonical {
    /// `names` are of the same stack, which is that of `snapshot` in `scene`.
    pub(crate) fn of(scene: &Scene, snapshot: &Snapshot, stack: &ThreadStack, names: &ResolvedThread) -> Self {
        let places = Places { scene, modules: scene.module_ranges(), snapshot };
        let frames = stack.frames.iter().zip(&names.frames).map(|(frame, named)| CanonicalFrame {
            module: places.module_of(frame).and_then(|module| module.debug_id.clone()),
            method: frame.method,
            place: places.of_frame(frame),
            // The frame address belongs to the stack, also where the stack ends at a module's beginning.
            cfa: places.in_stack(frame.cfa.0).unwrap_or_else(|| places.of_value(frame.cfa.0)),
            resolver: named.resolver,
            names: names_of(named),
            reason: named.reason,
        });
        Self { thread: snapshot.thread, sample: snapshot.sample, frames: frames.collect(), stop: stack.stop }
    }

    /// The bytes that are compared and hashed.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = String::new();
        for frame in &self.frames {
            let _ = writeln!(text, "{frame}");
        }
        let _ = writeln!(text, "stop {}", self.stop);
        text.into_bytes()
    }

    /// Where two results part: the depth, and what each has there.
    pub(crate) fn difference(&self, found: &Self) -> Option<(usize, String, String)> {
        let line = |result: &Self, at: usize| match result.frames.get(at) {
            Some(frame) => frame.to_string(),
            None => format!("stop {}", result.stop),
        };
        let longest = self.frames.len().max(found.frames.len());
        (0..=longest).map(|at| (at, line(self, at), line(found, at))).find(|(_, expected, found)| expected != found)
    }
}

fn names_of(frame: &ResolvedFrame) -> String {
    let mut text = format!("{} {} {}", frame.resolver, frame.quality, frame.proof);
    for source in &frame.frames {
        let _ = write!(
            text,
            " | {:?} {:?} {:?}:{:?}:{:?} {}",
            source.function, source.symbol, source.file, source.line, source.column, source.inlined
        );
    }
    text
}

struct Places<'s> {
    scene: &'s Scene,
    modules: Ranges,
    snapshot: &'s Snapshot,
}

impl<'s> Places<'s> {
    fn module_of(&self, frame: &Frame) -> Option<&'s SceneModule> {
        self.scene.modules.get(frame.module? as usize)
    }

    fn of_frame(&self, frame: &Frame) -> String {
        let pc = match self.module_of(frame) {
            Some(module) => in_module(module, frame.pc.0),
            None => format!("{:#x}", frame.pc.0),
        };
        let kind = if frame.exact { "exact" } else { "return" };
        format!("{pc} {kind} fp={}", self.of_value(frame.fp))
    }

    /// A value in the terms of what it points into.
    fn of_value(&self, value: u64) -> String {
        // The same reading of a pointer as the relocation has.
        match self.modules.pointed_into(value).and_then(|number| self.scene.modules.get(number)) {
            Some(module) => in_module(module, value),
            None => self.in_stack(value).unwrap_or_else(|| format!("{value:#x}")),
        }
    }

    fn in_stack(&self, value: u64) -> Option<String> {
        let mut segments = self.snapshot.segments.iter().enumerate();
        let (at, segment) = segments.find(|(_, segment)| segment.mapping.0 <= value && value <= segment.mapping.1)?;
        // Relative to the copy, which begins near the stack pointer: it moves as a whole.
        Some(format!("stack{at}{:+}", i128::from(value) - i128::from(segment.start)))
    }
}

fn in_module(module: &SceneModule, address: u64) -> String {
    let svma = address.wrapping_sub(module.bias);
    match &module.debug_id {
        Some(id) => format!("{id}+{svma:#x}"),
        None => format!("{}+{svma:#x}", module.path),
    }
}
