//! `file.ptr`: a file of a symbol store that says where the symbols are.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};

use super::content::Refused;
use super::walk::Root;

/// The largest pointer that is read, in bytes.
const LARGEST: u64 = 32 << 10;

/// `PREFIX=DIR`: where the folders are here that pointers name by another machine's paths.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    prefix: String,
    directory: PathBuf,
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!(r"expected \\SERVER\SHARE=DIRECTORY, found {text:?}");
        let (prefix, directory) = text.split_once('=').ok_or_else(expected)?;
        let prefix = plain(prefix);
        if prefix.is_empty() || directory.is_empty() {
            return Err(expected());
        }
        Ok(Self { prefix, directory: directory.into() })
    }
}

/// The folders that pointers may lead into.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    roots: Vec<(String, Root)>,
}

impl Pointers {
    pub(super) fn open(mappings: &[Mapping]) -> Result<Self> {
        let open = |mapping: &Mapping| {
            let root = Root::open(&mapping.directory);
            let root = root.with_context(|| format!("--pointer: {}", mapping.directory.display()))?;
            Ok((mapping.prefix.clone(), root))
        };
        Ok(Self { roots: mappings.iter().map(open).collect::<Result<_>>()? })
    }

    /// The file that a pointer names.
    pub(super) fn follow(&self, mut pointer: cap_std::fs::File) -> Result<cap_std::fs::File, Refused> {
        use std::io::Read as _;
        let mut text = Vec::new();
        std::io::Read::by_ref(&mut pointer).take(LARGEST).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().next().unwrap_or_default().trim();
        if let Some(message) = strip(line, "msg:") {
            return Err(Refused::Because(format!("a pointer to nothing; it says {message:?}")));
        }
        let target = strip(line, "path:").unwrap_or(line);
        let path = plain(target);
        let below = self.roots.iter().find_map(|(prefix, root)| {
            let (start, rest) = path.split_at_checked(prefix.len())?;
            let rest = rest.strip_prefix('/')?;
            start.eq_ignore_ascii_case(prefix).then_some((root, rest))
        });
        let (root, rest) = below.ok_or_else(|| {
            let advice = r"say where that is here with --pointer '\\SERVER\SHARE=DIRECTORY'";
            Refused::Because(format!("a pointer to {target}: {advice}"))
        })?;
        let opened =
            root.file_in_any_case(rest).map_err(|error| Refused::Because(format!("a pointer to {target}: {error}")))?;
        Ok(opened.0)
    }
}

fn strip<'l>(line: &'l str, prefix: &str) -> Option<&'l str> {
    let (start, rest) = line.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then(|| rest.trim())
}

/// With slashes, and none at its end.
fn plain(path: &str) -> String {
    path.trim().replace('\\', "/").trim_end_matches('/').to_owned()
}
