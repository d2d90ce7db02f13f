//! Modules that are no file: the image of the vDSO, as a capture copied it from the process.

use std::ops::Range;

use symseal_artifact::{DebugFiles, ObjectFile};
use symseal_bundle::Digest;
use symseal_module::{DebugId, Svma};

/// The largest image that is taken from a trace, in bytes. Real ones have two pages.
pub const MAX_IMAGE_BYTES: usize = 1 << 20;

/// What the image of a vDSO holds: its names, and what its unwind rules are compiled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdsoModule {
    /// The image's build-id.
    pub debug_id: DebugId,
    /// The svma of its first loaded segment.
    pub image_base: Svma,
    /// The digest of the image's bytes.
    pub digest: Digest,
    /// Its symbols as a `.symx` table.
    pub symbols: Vec<u8>,
    /// The inputs of the unwind table compiler.
    pub unwind: VdsoUnwind,
}

/// The sections that unwind rules of an image come from. Addresses are svma.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VdsoUnwind {
    /// Ranges of code.
    pub text: Vec<Range<u64>>,
    /// `.eh_frame`: its address and bytes.
    pub eh_frame: Option<(u64, Vec<u8>)>,
    /// `.eh_frame_hdr`: its address and bytes.
    pub eh_frame_hdr: Option<(u64, Vec<u8>)>,
    /// Address of `.text`.
    pub text_base: Option<u64>,
    /// Address of `.got`.
    pub got_base: Option<u64>,
}

/// Why the bytes are no vDSO image that can be used.
#[derive(Debug, thiserror::Error)]
pub enum VdsoError {
    /// More bytes than a vDSO has.
    #[error("the image has {found} bytes, and a vDSO at most {MAX_IMAGE_BYTES}")]
    TooLarge {
        /// Bytes found.
        found: usize,
    },
    /// No object file.
    #[error("the image is no object file that can be read: {0}")]
    Malformed(String),
    /// Without a build-id nothing ties names to the image.
    #[error("the image has no build-id")]
    NoDebugId,
}

/// Reads the image of a vDSO as it lay in a process.
///
/// # Errors
/// Where the bytes are too many, no object file, or without a build-id.
pub fn vdso_module(bytes: &[u8]) -> Result<VdsoModule, VdsoError> {
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(VdsoError::TooLarge { found: bytes.len() });
    }
    let object = ObjectFile::parse(bytes).map_err(|error| VdsoError::Malformed(error.to_string()))?;
    let debug_id = object.debug_id().ok_or(VdsoError::NoDebugId)?.clone();
    let stream = symseal_artifact::functions(&object, &DebugFiles::default())
        .map_err(|error| VdsoError::Malformed(error.to_string()))?;
    let digest = Digest::of(bytes);
    let symbols = crate::local::write_table(&stream, object.image_base(), &debug_id, &digest);
    let symbols = symbols.map_err(VdsoError::Malformed)?;
    let inputs = object.unwind_inputs();
    let owned = |section: Option<symseal_artifact::SectionSlice<'_>>| {
        section.map(|section| (section.svma, section.bytes.into_owned()))
    };
    Ok(VdsoModule {
        debug_id,
        image_base: object.image_base(),
        digest,
        symbols,
        unwind: VdsoUnwind {
            text: inputs.text,
            eh_frame: owned(inputs.eh_frame),
            eh_frame_hdr: owned(inputs.eh_frame_hdr),
            text_base: inputs.text_base,
            got_base: inputs.got_base,
        },
    })
}
