//! The code of a module, for an unwinder that looks for calls: from its executable in a bundle, or where the process had it.

use std::sync::Arc;

use symseal_artifact::ObjectFile;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MappedModule, MissReason, Svma};

use crate::Resolver;
use crate::local::read::object_of;

/// For people, of a module without a debug id.
pub(crate) const NO_ID_ADVICE: &str =
    "linkers write one with --build-id; without it nothing tells whether a file is the one that was mapped";
/// The largest file that is read for its code, in bytes: larger ones are mostly debug information.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// What stands between two sections of code: an instruction that no program runs.
const FILLER: u8 = 0xcc;
/// Code that is spread over more than so many times its bytes is taken in part.
const MOST_SPREAD: u64 = 4;

/// The bytes of a module's code in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleCode {
    /// Stated address of the first byte.
    pub start: Svma,
    /// The bytes; between sections stands what is no call.
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Whether the file lies in a bundle, whose digest it has, and not where the process had it.
    pub is_of_bundle: bool,
}

impl Resolver {
    /// The code of `module`: from its executable in a bundle, else, with [`Options::local_files`](crate::Options::local_files), from the file at its
    /// path. Either counts only if it has the module's debug id.
    ///
    /// # Errors
    /// The reason why there is none, and a word about it for people.
    pub fn module_code(&self, module: &MappedModule) -> Result<ModuleCode, (MissReason, String)> {
        let Some(id) = &module.debug_id else { return Err((MissReason::NoDebugId, NO_ID_ADVICE.to_owned())) };
        let in_bundle = self.executable_in_bundles(id, MAX_FILE_BYTES);
        if let Some(code) = in_bundle.as_ref().ok().and_then(|(bytes, digest)| code_of(bytes, id, *digest, true).ok()) {
            return Ok(code);
        }
        let bytes = match self.local_binary(module) {
            Some(read) => read?,
            None => return Err(in_bundle.err().unwrap_or((MissReason::NotInBundle, String::new()))),
        };
        code_of(&bytes, id, bytes.digest(), false)
    }
}

fn code_of(bytes: &[u8], id: &DebugId, digest: Digest, is_of_bundle: bool) -> Result<ModuleCode, (MissReason, String)> {
    let object = object_of(bytes, id, "the executable")?;
    let (start, bytes) = one_piece(&object).ok_or((MissReason::NotInBundle, "the file has no code".to_owned()))?;
    Ok(ModuleCode { start, bytes: bytes.into(), digest, is_of_bundle })
}

/// All code from its first byte on, as far as it lies together.
fn one_piece(object: &ObjectFile<'_>) -> Option<(Svma, Vec<u8>)> {
    let parts = object.unwind_inputs().code();
    let (start, _) = parts.first()?;
    let most = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>().saturating_mul(MOST_SPREAD);
    let mut code = Vec::new();
    for (address, bytes) in &parts {
        let Some(offset) = address.checked_sub(*start).filter(|offset| *offset <= most) else { break };
        code.resize(usize::try_from(offset).ok()?, FILLER);
        code.extend_from_slice(bytes);
    }
    Some((Svma(*start), code))
}
