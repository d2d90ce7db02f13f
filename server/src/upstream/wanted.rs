//! What is asked of other servers.

use symseal_module::DebugId;

use super::Expected;
use crate::debug_files::FileKind;
use crate::file_cache::CacheKey;
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
    /// Where else a symbol store may have the file, to be asked one after the other, and whether it is packed there.
    pub(crate) elsewhere: Vec<(String, bool)>,
    /// What the file must be.
    pub(crate) expected: Expected,
}

impl Wanted {
    /// A file of a debuginfod server, of the module with a build-id.
    pub(crate) fn of_build_id(id: &DebugId, kind: FileKind) -> Self {
        let (kind, expected) = match kind {
            FileKind::Executable => ("executable", Expected::Executable(id.clone())),
            _ => ("debuginfo", Expected::Debuginfo(id.clone())),
        };
        let path = format!("buildid/{id}/{kind}");
        // Under `debuginfod:` caches have files of which nobody looked whether they are of that kind.
        Self { name: format!("debuginfod {kind}:{path}"), path, elsewhere: Vec::new(), expected }
    }

    /// What a debuginfod server has at a path, whatever that is.
    pub(crate) fn of_source(path: String) -> Self {
        // Under `debuginfod:` caches have what somebody sent once, whoever that was.
        Self { name: format!("debuginfod source:{path}"), path, elsewhere: Vec::new(), expected: Expected::Anything }
    }

    /// What tells one question from another. Two questions that differ in their case mean one file, and may have different answers: of a server that tells
    /// cases apart.
    pub(super) fn question(&self) -> CacheKey {
        CacheKey::of(&self.path)
    }

    /// The file of a symbol server at `NAME/ID/NAME`. None where that would be another path there.
    pub(crate) fn of_symbols(path: &str, expected: Expected) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        if path.len() > PATH_LIMIT || parts.len() != 3 || !parts.iter().all(|part| is_plain(part)) {
            return None;
        }
        // Upper and lower case mean the same. A server that tells them apart has the file where SymStore wrote it, or where SSQP asks for it: clients of
        // SSQP ask in lower case.
        let of_symstore = as_symstore(&parts).filter(|of_symstore| of_symstore != path);
        let elsewhere =
            [(packed(path), true), (of_symstore.clone(), false), (of_symstore.as_deref().and_then(packed), true)];
        let elsewhere = elsewhere.into_iter().filter_map(|(path, is_packed)| Some((path?, is_packed))).collect();
        Some(Self { name: format!("symbols:{}", path.to_lowercase()), path: path.to_owned(), elsewhere, expected })
    }
}

/// Whether a part of a path is a name, also after whoever reads it has decoded it once more than he should.
fn is_plain(part: &str) -> bool {
    let Some(name) = percent_decode(part) else { return false };
    !name.is_empty()
        && name.bytes().any(|byte| byte != b'.')
        && !name.chars().any(|char| char.is_control() || matches!(char, '/' | '\\' | '%' | '?' | '#'))
}

/// As SymStore writes the id of a program (eight digits of its time stamp in upper case, its size in lower case) or of its database (the GUID in upper
/// case, the age in lower case). Only digits are changed: what a file is called cannot be known from another case of its name.
fn as_symstore(parts: &[&str]) -> Option<String> {
    let [first, id, last] = parts else { return None };
    if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (upper, lower) = id.split_at_checked(if id.len() > 32 { 32 } else { 8 })?;
    Some(format!("{first}/{}{}/{last}", upper.to_ascii_uppercase(), lower.to_ascii_lowercase()))
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
            let expected: Vec<_> = expected.map(|path| (path.to_owned(), true)).into_iter().collect();
            assert_eq!(wanted.elsewhere, expected, "{path}");
        }
    }

    #[test]
    fn a_store_that_tells_upper_from_lower_case_is_asked_as_symstore_writes_ids() {
        let asked = |path: &str| {
            let wanted = Wanted::of_symbols(path, Expected::Anything).unwrap();
            let elsewhere = wanted.elsewhere.into_iter().filter(|(_, is_packed)| !is_packed).map(|(path, _)| path);
            elsewhere.collect::<Vec<_>>()
        };
        let database = "a.pdb/D6FEA1B2C3D4E5F60718293A4B5C6D7Eaf/a.pdb";
        assert!(asked(database).is_empty());
        assert_eq!(asked(&database.to_lowercase()), [database]);
        assert_eq!(asked("a.pdb/D6FEA1B2C3D4E5F60718293A4B5C6D7EAF/a.pdb"), [database]);
        let program = "CRASH.exe/5AB380779000c/CRASH.exe";
        assert!(asked(program).is_empty());
        assert_eq!(asked("CRASH.exe/5ab380779000c/CRASH.exe"), [program]);
        // Ids of SSQP have one case.
        assert!(asked("_.debug/elf-buildid-sym-0102030405060708090a0b0c0d0e0f1011121314/_.debug").is_empty());
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
