//! The module's own file: its debug information and its symbols.

use symseal_module::{DebugId, MappedModule, Rva};

use super::companions::{Around, FilesOf, describe};
use super::read::object_of;
use super::{Local, LocalTable, NoTable, table_of};
use crate::files::path_of;

impl Local {
    /// The table of the module's own file, which must be of the module `id`; of its functions those at the `wanted` addresses do.
    pub(super) fn open_own(&self, module: &MappedModule, id: &DebugId, wanted: &[Rva]) -> Result<LocalTable, NoTable> {
        let bytes = self.binary_once(module)?;
        let object = object_of(&bytes, id, &module.path)?;
        let path = path_of(&module.path);
        let (files, around) =
            (FilesOf { program: Some(&object), ..FilesOf::default() }, Around::new(self, &path, None));
        let described = describe(files, &module.path, &around, wanted)?;
        table_of(described, object.image_base(), (id, bytes.digest(), module.path.clone()), object.has_debug_info())
    }
}
