//! What a program needs of the machine that it will run on.

use std::path::Path;

use anyhow::{Context, Result};
use symseal_artifact::ReleaseFile;

/// What running the program takes, for a person: `static`, or what must be there.
pub(super) fn needs(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("--verifier {}", path.display()))?;
    let Ok(ReleaseFile::Object(object)) = ReleaseFile::parse(&bytes) else {
        return Ok("another kind of program: whether it is static was not looked at".to_owned());
    };
    let arch = object.arch();
    if object.format() != symseal_artifact::Format::Elf {
        return Ok(format!("{} {arch}: it needs the libraries of its system", object.format().code()));
    }
    // PT_INTERP points at this section; a static program, position-independent or not, has none.
    Ok(match object.section(".interp") {
        None => format!("static, {arch}: it needs a Linux kernel and nothing else"),
        Some((_, interpreter)) => {
            let name = String::from_utf8_lossy(interpreter).trim_end_matches('\0').to_owned();
            format!(
                "dynamic, {arch}: it needs {name} and the libraries of a system like this one; a static one can be given with --verifier"
            )
        }
    })
}
