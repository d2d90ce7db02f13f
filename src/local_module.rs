//! A module whose file lies on this machine, asked about without a process: every address is in it.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use symseal_artifact::ReleaseFile;
use symseal_module::{Avma, DebugId, MappedModule, ModuleMap, Svma};
use symseal_resolver::FileBytes;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// The module as if it were loaded where it says, the only one. Debug files lie beside what a link leads to, which is also the path that a process has
/// mapped.
pub(crate) fn alone(file: &Path, debug_id: &DebugId, image_base: Svma) -> Result<ModuleMap> {
    let path = std::fs::canonicalize(file).or_else(|_| std::path::absolute(file))?;
    let path = symseal_module::escape::escape(path.as_os_str().as_encoded_bytes());
    let (start, end) = (Avma(0), Avma(u64::MAX));
    let module = MappedModule { path, debug_id: Some(debug_id.clone()), start, end, bias: 0, image_base };
    Ok(ModuleMap::new(vec![module]))
}

/// The debug id of a file, and the address at which it says it is loaded. Of a universal Mach-O file `wanted` names the slice. A program database does
/// not say where its program is loaded: its addresses count from there.
pub(crate) fn identity(file: &Path, bytes: &[u8], wanted: Option<&DebugId>) -> Result<(DebugId, Svma)> {
    let named = || format!("{}", file.display());
    let found: Vec<(DebugId, Svma)> = match ReleaseFile::parse(bytes).with_context(named)? {
        ReleaseFile::Object(object) => vec![object],
        ReleaseFile::Fat(slices) => slices,
        ReleaseFile::Pdb(pdb) => return one_of(file, wanted, vec![(pdb.debug_id(), Svma(0))]),
        ReleaseFile::PortablePdb(_) => {
            bail!("{}: expected code, found the debug information of .NET, which has no addresses", file.display())
        }
    }
    .iter()
    .filter_map(|object| Some((object.debug_id()?.clone(), object.image_base())))
    .collect();
    one_of(file, wanted, found)
}

fn one_of(file: &Path, wanted: Option<&DebugId>, found: Vec<(DebugId, Svma)>) -> Result<(DebugId, Svma)> {
    let ids = || found.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(", ");
    match (wanted, found.as_slice()) {
        (_, []) => bail!("{}: expected a file with a debug id, found none in it", file.display()),
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            bail!("{}: expected --debug-id, as the file has several architectures, found {}", file.display(), ids())
        }
        (Some(id), _) => found
            .iter()
            .find(|(found, _)| found == id)
            .cloned()
            .with_context(|| format!("{}: expected the module {id}, found {}", file.display(), ids())),
    }
}

/// The bytes of a file.
pub(crate) fn read(file: &Path) -> Result<FileBytes> {
    let named = || format!("{}: expected a program, library or debug file", file.display());
    let metadata = std::fs::metadata(file).with_context(named)?;
    // Opening a pipe would wait for whoever writes to it.
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a directory" } else { "a device or pipe" };
        bail!("{}, found {found}", named());
    }
    if metadata.len() > MAX_FILE_BYTES {
        bail!("{}: expected a file of at most {MAX_FILE_BYTES} bytes, found {}", file.display(), metadata.len());
    }
    FileBytes::read(File::open(file).with_context(named)?, MAX_FILE_BYTES).with_context(named)
}
