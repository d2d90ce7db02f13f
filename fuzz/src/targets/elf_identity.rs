//! Any bytes as a release file: what it is, which file it names, what the unwinder gets.

use symseal_artifact::{ObjectFile, archive_behind};

pub(super) fn run(bytes: &[u8]) {
    let _ = archive_behind(bytes);
    let Ok(object) = ObjectFile::parse(bytes) else { return };
    let _ = (object.debug_id(), object.id_kind(), object.arch(), object.kind(), object.image_base());
    let _ = (object.is_executable(), object.is_debuginfo(), object.debug_info_kind(), object.is_stripped());
    let _ = (object.debug_link(), object.debug_alt_link(), object.has_inline_debugger_scripts());
    let inputs = object.unwind_inputs();
    assert!(inputs.text.is_sorted_by(|a, b| a.end < b.start && a.start < a.end));
}
