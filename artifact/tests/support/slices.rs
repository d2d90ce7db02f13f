//! Thin and universal files, and what lies beside them.

use std::path::{Path, PathBuf};

use symseal_artifact::{ObjectFile, ReleaseFile};

/// The object files of a thin or universal file.
pub(crate) fn slices_of(bytes: &[u8]) -> Vec<ObjectFile<'_>> {
    match ReleaseFile::parse(bytes).expect("a release file") {
        ReleaseFile::Object(object) => vec![object],
        ReleaseFile::Fat(slices) => slices,
        other => panic!("{other:?}"),
    }
}

/// The dSYM beside a binary, where llvm-symbolizer looks for it.
pub(crate) fn dsym_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let file = path.with_file_name(format!("{name}.dSYM")).join("Contents/Resources/DWARF").join(name);
    file.is_file().then_some(file)
}
