//! What is asked of other servers.

use symseal_module::DebugId;

use super::Expected;
use crate::http::percent_decode;

/// Bytes of a path that is passed on.
const PATH_LIMIT: usize = 1024;

/// What is wanted of upstreams.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// What the file is, for the cache: two files differ in it.
    pub(crate) name: String,
    /// Path and query below a base URL, as it is sent.
    pub(crate) path: String,
    /// The path at which a symbol store has the file packed, where it may.
    pub(crate) packed: Option<String>,
    /// What the file must be.
    pub(crate) expected: Expected,
}

impl Wanted {
    /// A file of a debuginfod server, of the module with a build-id.
    pub(crate) fn of_build_id(id: &DebugId, kind: &str) -> Self {
        let path = format!("buildid/{id}/{kind}");
        Self { name: format!("debuginfod:{path}"), path, packed: None, expected: Expected::Id(id.clone()) }
    }

    /// What a debuginfod server has at a path, whatever that is.
    pub(crate) fn of_source(path: String) -> Self {
        Self { name: format!("debuginfod:{path}"), path, packed: None, expected: Expected::Anything }
    }

    /// The file of a symbol server at `NAME/ID/NAME`. None where that would be another path there.
    pub(crate) fn of_symbols(path: &str, expected: Expected) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        if path.len() > PATH_LIMIT || parts.len() != 3 || !parts.iter().all(|part| is_plain(part)) {
            return None;
        }
        // Upper and lower case mean the same; servers that tell them apart get what the client has.
        let (name, packed) = (format!("symbols:{}", path.to_lowercase()), packed(path));
        Some(Self { name, path: path.to_owned(), packed, expected })
    }
}

/// Whether a part of a path is a name, also after whoever reads it has decoded it once more than he should.
fn is_plain(part: &str) -> bool {
    let Some(name) = percent_decode(part) else { return false };
    !name.is_empty()
        && name.bytes().any(|byte| byte != b'.')
        && !name.chars().any(|char| char.is_control() || matches!(char, '/' | '\\' | '%' | '?' | '#'))
}

/// As SymStore names what it has packed: the last letter is an underscore (`app.pd_`).
fn packed(path: &str) -> Option<String> {
    let (name, ending) = path.rsplit_once('.')?;
    let is_ending = (1..=3).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let kept = ending.get(..ending.len().checked_sub(1)?)?;
    is_ending.then(|| format!("{name}.{kept}_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_file_is_asked_for_as_symstore_names_it() {
        for (path, expected) in [
            ("App.pdb/ID/App.pdb", Some("App.pdb/ID/App.pd_")),
            ("a.exe/ID/a.exe", Some("a.exe/ID/a.ex_")),
            ("_.debug/ID/_.debug", None),
            ("app/ID/app", None),
            ("a.b%20c/ID/a.b%20c", None),
        ] {
            let wanted = Wanted::of_symbols(path, Expected::Anything).unwrap();
            assert_eq!(wanted.packed.as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_name_is_passed_on_that_is_one_however_often_it_is_decoded() {
        assert!(Wanted::of_symbols("a%20b%2B.pdb/ID/a%20b%2B.pdb", Expected::Anything).is_some());
        for part in ["..", "%2e%2e", "a%2fb", "a%5Cb", "a%252fb", "a%3Fb", "%00", "%", "%ff", ""] {
            assert!(Wanted::of_symbols(&format!("{part}/ID/{part}"), Expected::Anything).is_none(), "{part}");
        }
        assert!(Wanted::of_symbols("a/b/c/d", Expected::Anything).is_none());
    }
}
