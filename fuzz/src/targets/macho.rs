//! Any bytes as a Mach-O file, thin or universal: identity, code ranges, symbols, exports, function starts, functions of
//! each slice with itself as its dSYM; and as a path in a dSYM bundle.

use crate::streams::check_stream;
use symseal_artifact::{DebugFiles, FileKind, ReleaseFile, dsym_place, functions, sniff};

pub(super) fn run(bytes: &[u8]) {
    if let Some(place) = std::str::from_utf8(bytes).ok().and_then(dsym_place) {
        assert_eq!(format!("{}/{}", place.root, place.path).as_bytes(), bytes);
    }
    // Other formats have targets of their own.
    if !matches!(sniff(bytes), FileKind::Macho | FileKind::MachoFat) {
        return;
    }
    let slices = match ReleaseFile::parse(bytes) {
        Ok(ReleaseFile::Object(object)) => vec![object],
        Ok(ReleaseFile::Fat(slices)) => slices,
        _ => return,
    };
    for slice in &slices {
        let _ = (slice.debug_id(), slice.kind(), slice.arch(), slice.image_base(), slice.go_build_id());
        let _ = (slice.is_executable(), slice.is_debuginfo(), slice.debug_info_kind(), slice.is_stripped());
        let _ = (slice.object_map_count(), slice.has_encrypted_code(), slice.build_paths());
        assert!(slice.unwind_inputs().text.is_sorted_by(|a, b| a.end < b.start && a.start < a.end));
        let Ok(stream) = functions(slice, &DebugFiles::debug(Some(slice))) else { continue };
        check_stream(&stream);
    }
}
