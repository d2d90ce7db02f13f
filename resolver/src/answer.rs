//! What the resolver says about an address. These are the JSON shapes that commands print.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use symseal_bundle::Digest;
use symseal_module::{Avma, DebugId, FrameEdge, MissReason, Proof, Quality, ResolverStep, Rva, Svma, UnwindMethod};

use crate::{Demangling, Text};

/// The module that an address lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleRef {
    /// The path as the process names it, or a name in brackets such as `[vdso]`.
    pub path: String,
    /// The module's identity, where it has one.
    pub debug_id: Option<DebugId>,
    /// The frame's instruction pointer (not the lookup address) relative to the image base.
    pub rva: Rva,
    /// The same as a stated address.
    pub svma: Svma,
}

/// One function of the source at an address. An address has several where calls were inlined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFrame {
    /// The function as its source language names it; after demangling on request, the demangled symbol.
    pub function: Option<Text>,
    /// The linkage name, always raw (mangled). Inlined functions may have none.
    pub symbol: Option<Text>,
    /// The source file of this frame's place: of the call, for a frame that inlined another.
    pub file: Option<Text>,
    /// The line there, from 1; none where the compiler made code without a line.
    pub line: Option<u32>,
    /// The column there, from 1.
    pub column: Option<u32>,
    /// Whether this function was inlined into the next frame of the list.
    pub inlined: bool,
    /// What demangling did, where it did not simply succeed or was not asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub demangling: Option<Demangling>,
}

/// How a step of the chain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It gave the answer.
    Hit,
    /// It was asked and had none.
    Miss(MissReason),
    /// It was not asked.
    Skipped(MissReason),
}

impl Outcome {
    /// The reason, unless it was a hit.
    pub fn reason(self) -> Option<MissReason> {
        match self {
            Self::Hit => None,
            Self::Miss(reason) | Self::Skipped(reason) => Some(reason),
        }
    }
}

/// One step of the chain, as it went for one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Which step.
    pub step: ResolverStep,
    /// How it ended.
    pub outcome: Outcome,
    /// What a person wants to know beyond the code: a path, a digest that differs. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What the file that was looked into lacks: damaged units that were left out, files that it refers to and that are not there. Names may be missing or
    /// those of symbols then. Empty where it lacks nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lacks: String,
    /// The digest of the file that was looked into, where one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// What a digest behind an answer is the digest of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DigestOf {
    /// The bundle: its OCI image index.
    Bundle,
    /// The bundle's `symbol_index.json`.
    SymbolIndex,
    /// The symbol table (`.symx`) that the name was read from.
    SymbolTable,
    /// The file that the table was derived from, as the bundle's index says.
    Source,
    /// The binary that was read itself.
    Binary,
    /// The separate debug file that was read.
    DebugFile,
    /// A file that debug information refers to: what dwz moved out, or split DWARF.
    Companion,
}

/// One digest that an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DigestRef {
    /// Of what.
    pub of: DigestOf,
    /// The digest.
    pub digest: Digest,
}

/// What the chain says of an address of a module: all of it that is the same for every frame there, so that frames share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The step of the chain that answered.
    pub resolver: ResolverStep,
    /// How much the answer tells.
    pub quality: Quality,
    /// What the name rests on; `none` where there is no name.
    pub proof: Proof,
    /// Whether the function's size is unknown, so that only the next symbol bounds it. Never counts as coverage.
    pub approximate: bool,
    /// Whether several functions share this code, so that the name is that of one of them and nobody can say which was called.
    pub folded: bool,
    /// Functions at the address, the innermost first; empty where no step had a name.
    pub frames: Vec<SourceFrame>,
    /// Other linkage names of the function's code, raw; empty where there are none, and where the table was read in parts or proved.
    pub aliases: Arc<[String]>,
    /// The first address of the function's range, relative to the image base.
    pub start: Option<Rva>,
    /// Every step of the chain up to the one that answered. The answers of one table share it.
    pub tried: Arc<[Tried]>,
    /// Why there is no name: the reason of the most telling step. None where there is one.
    pub reason: Option<MissReason>,
    /// The digests that the name rests on. The answers of one table share them.
    pub digests: Arc<[DigestRef]>,
}

/// Everything known about one frame of a stack: the fields of its [`Answer`], and those here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedFrame {
    /// The instruction pointer as it was found: for a caller, its return address.
    pub ip: Avma,
    /// The module it lies in.
    pub module: Option<ModuleRef>,
    /// How the frame was found.
    pub unwind: UnwindMethod,
    /// The instruction pointer minus the first address of the function (not of an inlined one), in bytes.
    pub symbol_offset: Option<u64>,
    /// What the chain says of the address that was looked up.
    pub answer: Arc<Answer>,
}

/// The name of one address of a module that is in no process: the fields of its [`Answer`], and those here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbolized {
    /// The address relative to the image base.
    pub rva: Rva,
    /// The address minus the first address of the function (not of an inlined one), in bytes.
    pub symbol_offset: Option<u64>,
    /// What the chain says of the address.
    pub answer: Arc<Answer>,
}

impl Deref for ResolvedFrame {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.answer
    }
}

impl Deref for Symbolized {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.answer
    }
}

/// One line of `symbolize --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SymbolizeLine<'a> {
    /// The address as the user gave it.
    pub address: Svma,
    /// The module, where the question named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug_id: Option<&'a DebugId>,
    /// The step that answered.
    pub resolver: ResolverStep,
    /// How much the answer tells.
    pub quality: Quality,
    /// What the name rests on.
    pub proof: Proof,
    /// Why there is no name; left out where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<MissReason>,
    /// True where the function's size is unknown; left out otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// True where several functions share this code; left out otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub folded: bool,
    /// Other linkage names of the function's code; left out where there are none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'a [String],
    /// Innermost first.
    pub frames: &'a [SourceFrame],
    /// The steps of the chain, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<&'a [Tried]>,
    /// The digests behind the name, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<&'a [DigestRef]>,
}

/// One frame of `trace-resolve --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameLine<'a> {
    /// The instruction pointer in the process.
    pub ip: Avma,
    /// The module's path, or null.
    pub module: Option<&'a str>,
    /// The module's identity, or null.
    pub debug_id: Option<&'a DebugId>,
    /// The instruction pointer relative to the module's image base, or null.
    pub module_offset: Option<Rva>,
    /// How the frame was found.
    pub unwind: UnwindMethod,
    /// What leads to the frame, where that is no call and no interrupt; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<FrameEdge>,
    /// The step that answered.
    pub resolver: ResolverStep,
    /// How much the answer tells.
    pub quality: Quality,
    /// What the name rests on.
    pub proof: Proof,
    /// Why there is no name, or null.
    pub reason: Option<MissReason>,
    /// The instruction pointer minus the function's first address, in bytes, as a `0x` text, or null.
    pub symbol_offset: Option<Rva>,
    /// True where the function's size is unknown; left out otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// True where several functions share this code; left out otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub folded: bool,
    /// Other linkage names of the function's code; left out where there are none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'a [String],
    /// Innermost first.
    pub frames: &'a [SourceFrame],
    /// The steps of the chain, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<&'a [Tried]>,
    /// The digests behind the name, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<&'a [DigestRef]>,
}

/// A place in a source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

/// The flat view for profilers: one per source function, so that an inlined call is a frame as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFrame {
    /// The instruction pointer.
    pub address: Avma,
    /// The function.
    pub symbol: Option<String>,
    /// The module's path.
    pub module: Option<String>,
    /// Bytes from the function's beginning, or from the module's image base where there is no name.
    pub offset: Option<u64>,
    /// Where in the source.
    pub source_location: Option<SourceLocation>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl ResolvedFrame {
    /// The function itself: the outermost of the inlined frames.
    pub fn function(&self) -> Option<&SourceFrame> {
        self.frames.last()
    }

    /// Whether the frame has a function, a file and a line.
    pub fn has_line(&self) -> bool {
        self.quality == Quality::Full
    }

    /// Whether the frame may count as coverage: a function whose range holds the address, no guess of
    /// the unwinder, and on a stack.
    pub fn counts(&self) -> bool {
        let is_there = self.unwind != UnwindMethod::Scan && !self.unwind.is_logical();
        !self.frames.is_empty() && !self.approximate && is_there
    }

    /// The frame as `trace-resolve --json` prints it; with `explain` also the steps and digests.
    pub fn line(&self, explain: bool) -> FrameLine<'_> {
        FrameLine {
            ip: self.ip,
            module: self.module.as_ref().map(|module| module.path.as_str()),
            debug_id: self.module.as_ref().and_then(|module| module.debug_id.as_ref()),
            module_offset: self.module.as_ref().map(|module| module.rva),
            unwind: self.unwind,
            edge: self.unwind.logical_edge(),
            resolver: self.resolver,
            quality: self.quality,
            proof: self.proof,
            reason: self.reason,
            symbol_offset: self.symbol_offset.map(Rva),
            approximate: self.approximate,
            folded: self.folded,
            aliases: &self.aliases,
            frames: &self.frames,
            tried: explain.then_some(&self.tried),
            digests: explain.then_some(&self.digests),
        }
    }

    /// The flat view: one [`StackFrame`] for each source function, the innermost first; one without a
    /// symbol where there is no name.
    pub fn stack_frames(&self) -> Vec<StackFrame> {
        let module = self.module.as_ref().map(|module| module.path.clone());
        if self.frames.is_empty() {
            let offset = self.module.as_ref().map(|module| module.rva.0);
            return vec![StackFrame { address: self.ip, symbol: None, module, offset, source_location: None }];
        }
        let offset_of = |frame: &SourceFrame| match (&frame.function, &frame.symbol) {
            (None, None) => self.module.as_ref().map(|module| module.rva.0),
            _ => self.symbol_offset,
        };
        let flat = |frame: &SourceFrame| StackFrame {
            address: self.ip,
            symbol: frame.function.as_deref().or(frame.symbol.as_deref()).map(str::to_owned),
            module: module.clone(),
            offset: offset_of(frame).filter(|_| !frame.inlined),
            source_location: frame.file.as_ref().map(|file| SourceLocation {
                file: file.to_string(),
                line: frame.line,
                column: frame.column,
            }),
        };
        self.frames.iter().map(flat).collect()
    }
}

impl Serialize for ResolvedFrame {
    /// The form of [`ResolvedFrame::line`] with steps and digests.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.line(true).serialize(serializer)
    }
}

impl Symbolized {
    /// The answer as `symbolize --json` prints it, under the address as the user gave it, and the module where the question named it; with `explain` also the steps and digests.
    pub fn line<'a>(&'a self, address: Svma, debug_id: Option<&'a DebugId>, explain: bool) -> SymbolizeLine<'a> {
        SymbolizeLine {
            address,
            debug_id,
            resolver: self.resolver,
            quality: self.quality,
            proof: self.proof,
            reason: self.reason,
            approximate: self.approximate,
            folded: self.folded,
            aliases: &self.aliases,
            frames: &self.frames,
            tried: explain.then_some(&self.tried),
            digests: explain.then_some(&self.digests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, inlined: bool) -> SourceFrame {
        SourceFrame {
            function: Some(function.into()),
            symbol: (!inlined).then(|| function.into()),
            file: Some("a.c".into()),
            line: Some(7),
            column: None,
            inlined,
            demangling: None,
        }
    }

    fn resolved() -> ResolvedFrame {
        ResolvedFrame {
            ip: Avma(0x7f00_0000_1004),
            module: Some(ModuleRef {
                path: "/bin/a".into(),
                debug_id: "abcd".parse().ok(),
                rva: Rva(0x1004),
                svma: Svma(0x1004),
            }),
            unwind: UnwindMethod::CfiEhFrame,
            symbol_offset: Some(4),
            answer: Arc::new(Answer {
                resolver: ResolverStep::LocalBundle,
                quality: Quality::Full,
                proof: Proof::Sealed,
                approximate: false,
                folded: false,
                aliases: Arc::default(),
                frames: vec![frame("inner", true), frame("outer", false)],
                start: Some(Rva(0x1000)),
                tried: Arc::new([Tried {
                    step: ResolverStep::Debuginfod,
                    outcome: Outcome::Skipped(MissReason::Offline),
                    detail: String::new(),
                    lacks: String::new(),
                    digest: None,
                }]),
                reason: None,
                digests: Arc::default(),
            }),
        }
    }

    #[test]
    fn a_frame_prints_as_the_design_says() {
        let json = serde_json::to_value(resolved().line(false)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "ip": "0x7f0000001004", "module": "/bin/a", "debug_id": "abcd", "module_offset": "0x1004",
                "unwind": "cfi-eh-frame", "resolver": "local-bundle", "quality": "full", "proof": "sealed",
                "reason": null, "symbol_offset": "0x4",
                "frames": [
                    {"function": "inner", "symbol": null, "file": "a.c", "line": 7, "column": null, "inlined": true},
                    {"function": "outer", "symbol": "outer", "file": "a.c", "line": 7, "column": null, "inlined": false},
                ]
            })
        );
        let waiting = ResolvedFrame { unwind: UnwindMethod::AsyncParent, ..resolved() };
        assert_eq!(serde_json::to_value(waiting.line(false)).unwrap()["edge"], "async-parent");
        assert!(!waiting.counts() && resolved().counts());
        let tried = serde_json::to_value(resolved()).unwrap();
        assert_eq!(tried["tried"][0], serde_json::json!({"step": "debuginfod", "outcome": {"skipped": "offline"}}));
    }

    #[test]
    fn an_address_prints_as_the_design_says() {
        let ResolvedFrame { symbol_offset, mut answer, .. } = resolved();
        Arc::make_mut(&mut answer).frames.remove(0);
        let mut found = Symbolized { rva: Rva(0x1000), symbol_offset, answer };
        assert_eq!(
            serde_json::to_string(&found.line(Svma(0x401000), None, false)).unwrap(),
            r#"{"address":"0x401000","resolver":"local-bundle","quality":"full","proof":"sealed","frames":[{"function":"outer","symbol":"outer","file":"a.c","line":7,"column":null,"inlined":false}]}"#
        );
        let id = "abcd".parse().unwrap();
        let answer = Arc::make_mut(&mut found.answer);
        (answer.approximate, answer.folded, answer.reason) = (true, true, Some(MissReason::NoSymbolAtAddress));
        answer.frames.clear();
        assert_eq!(
            serde_json::to_string(&found.line(Svma(0x401000), Some(&id), true)).unwrap(),
            r#"{"address":"0x401000","debug_id":"abcd","resolver":"local-bundle","quality":"full","proof":"sealed","reason":"no-symbol-at-address","approximate":true,"folded":true,"frames":[],"tried":[{"step":"debuginfod","outcome":{"skipped":"offline"}}],"digests":[]}"#
        );
    }

    #[test]
    fn the_flat_view_has_a_frame_for_every_inlined_call() {
        let flat = resolved().stack_frames();
        assert_eq!(
            flat.iter().map(|frame| frame.symbol.as_deref()).collect::<Vec<_>>(),
            [Some("inner"), Some("outer")]
        );
        assert_eq!((flat[0].offset, flat[1].offset), (None, Some(4)));
        let mut nameless = resolved();
        Arc::make_mut(&mut nameless.answer).frames.clear();
        assert_eq!(nameless.stack_frames()[0].offset, Some(0x1004));
    }
}
