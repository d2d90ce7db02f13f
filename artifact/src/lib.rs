//! Release files to modules: identity, pairing, debug information to one stream of functions.
//!
//! Bytes come in, values go out; the crate opens no file and asks no server. Each object format is a folder (`elf/`, `pe/`,
//! `macho/`), and so is each kind of debug information (`dwarf/`, `pdb/`, `go/`).
//!
//! * [`ObjectFile::parse`] says what a file is: its [debug id](ObjectFile::debug_id), architecture, image base, what it
//!   holds for a debugger, and which other file it names.
//! * [`functions`] joins debug information and symbol tables to [`FunctionStream`], the input of the symbol table's
//!   writer. The rule by which names are chosen stands at [`functions`].
//! * [`ObjectFile::unwind_inputs`] gives the sections that the unwind table is compiled from.
//! * [`read_archive`] visits the files of archives, packages and container images, as streams and within [`Limits`].
//!
//! Not here: fetching companions, demangling (names are as the compiler wrote them).
//!
//! # What a damaged or hostile file can do
//!
//! Nothing but fail. What makes a file unusable as a whole is an [`ArtifactError`]; a damaged part of its debug
//! information is left out and counted in [`StreamStatistics::skipped`]. Decompressed sections are bounded
//! ([`MAX_SECTION_BYTES`]), and the work is bounded by a constant times the size of the sections, so that tables that
//! refer to one another in a million ways end early.
#![forbid(unsafe_code)]

mod archive;
mod beside;
mod breakpad;
mod budget;
mod code_ranges;
mod compressed;
mod cursor;
mod described;
mod descriptors;
mod dwarf;
mod elf;
mod error;
mod fields;
mod folded;
mod go;
mod headers;
mod identity;
mod in_order;
mod macho;
mod merge;
mod mini_debug_info;
mod object_file;
mod paint;
mod pdb;
mod pe;
mod portable_pdb;
mod proportion;
mod release_file;
mod scripts;
mod sniff;
mod source_files;
mod stream;
mod symbols;
mod text;
mod told;
mod unread;
mod unwind_inputs;
mod work;

pub use archive::{
    ArchiveBehind, ArchiveError, ArchiveKind, ArchiveReport, DISK_TRAILER_BYTES, HardLink, IMAGE_START_BYTES,
    ImageReport, LimitKind, Limits, MAX_PASSED_OVER, MAX_WINDOW_BYTES, Member, ParseReachError, PassedOver,
    PassedOverReason, RATIO_FLOOR_BYTES, Reach, ReadSeek, Source, archive_behind, archive_kind, read_archive,
    read_archive_without, read_image_layout, read_image_layout_without, unread_archive, unread_image,
};
pub use breakpad::{BreakpadFile, StackRecords};
pub use dwarf::SplitMisfits;
pub use elf::RelocationProblem;
pub use error::ArtifactError;
pub use identity::{Arch, DebugInfoKind, Format, IdKind, ObjectKind};
pub use macho::{DsymPlace, DsymRole, dsym_bundles, dsym_place, is_universal_library};
pub use object_file::{DebugAltLink, DebugLink, ObjectFile, PdbReference, SplitContents, SplitKind, SplitUnit};
pub use pdb::{BuildRecords, FrameData, FrameKind, FrameRule, FrameTable, PdbFile, ProgramId};
pub use portable_pdb::PortablePdb;
pub use release_file::ReleaseFile;
pub use sniff::{FileKind, SNIFF_BYTES, sniff};
pub use source_files::{pdb_source_files, source_files};
pub use stream::{
    Checksum, DebugFiles, FunctionStream, SourceFile, StreamStatistics, functions, functions_at, functions_on,
    is_damaged_unit, pdb_functions,
};
pub use symbols::FunctionSymbol;
pub use text::escaped;
pub use told::BuildTexts;
pub use unread::{Unread, unread_program};
pub use unwind_inputs::{PltSection, SectionSlice, UnwindInputs};

/// The most bytes that one section may have after decompression: 16 GiB.
pub const MAX_SECTION_BYTES: u64 = 16 << 30;
