//! From identified files to modules: a binary and its debug file have one debug id.

use std::collections::BTreeMap;

use symseal_bundle::FileRole;
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::inputs::Identified;

/// The files of one module. At least one of the two is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Module {
    /// The file with the code. Without a debug file, what debug information there is, is in it.
    pub(crate) binary: Option<Identified>,
    /// The separate debug file.
    pub(crate) debug: Option<Identified>,
}

impl Module {
    /// Bytes of all its files.
    pub(crate) fn input_bytes(&self) -> u64 {
        let size = |file: &Option<Identified>| file.as_ref().map_or(0, |file| file.measured.size);
        size(&self.binary).saturating_add(size(&self.debug))
    }
}

/// Joins the files to modules. Also returns how many files were doubles of another.
pub(crate) fn pair(files: Vec<Identified>) -> Result<(BTreeMap<DebugId, Module>, u64), BuildError> {
    let mut modules: BTreeMap<DebugId, Module> = BTreeMap::new();
    let mut doubles = 0;
    for file in files {
        let module = modules.entry(file.id.clone()).or_default();
        let (slot, role) = if file.is_executable {
            (&mut module.binary, FileRole::Executable)
        } else {
            (&mut module.debug, FileRole::Debuginfo)
        };
        match slot {
            None => *slot = Some(file),
            Some(other) if other.measured.digest == file.measured.digest => {
                doubles += 1;
                // Which of several names counts must not depend on the directories that they lie in.
                if file.name < other.name {
                    *other = file;
                }
            }
            Some(other) => {
                return Err(BuildError::Conflict {
                    id: file.id.to_string(),
                    role,
                    first: other.path.clone(),
                    second: file.path,
                });
            }
        }
    }
    Ok((modules, doubles))
}
