//! Any bytes as a PE file: what it is, which PDB it names, what the unwinder gets, which functions it has.

use crate::streams::check_stream;
use symseal_artifact::{DebugFiles, ObjectFile, archive_behind, functions};

pub(super) fn run(bytes: &[u8]) {
    if !bytes.starts_with(b"MZ") {
        return;
    }
    let _ = archive_behind(bytes);
    let Ok(object) = ObjectFile::parse(bytes) else { return };
    let _ = (object.debug_id(), object.id_kind(), object.arch(), object.kind(), object.image_base());
    let _ = object.debug_link();
    let _ = (object.code_id(), object.pdb_reference(), object.is_reproducible(), object.has_embedded_portable_pdb());
    let _ = object.build_paths();
    let inputs = object.unwind_inputs();
    assert!(inputs.text.is_sorted_by(|a, b| a.end < b.start && a.start < a.end));
    let Ok(stream) = functions(&object, &DebugFiles::default()) else { return };
    check_stream(&stream);
}
