//! What a path of a symbol server names.

use symseal_bundle::title;
use symseal_module::DebugId;

use crate::debug_files::{FileKind, Key};
use crate::http::percent_decode;

/// Hex digits of a GUID or UUID.
const GUID_DIGITS: usize = 32;
/// Hex digits of an age or of an image's size.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 1..=8;
/// Hex digits of a time stamp.
const STAMP_DIGITS: usize = 8;
/// Hex digits in the folders and the file of a UUID.
const UUID_PARTS: [usize; 6] = [4, 4, 4, 4, 4, 12];

/// The file that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its id.
    pub(crate) key: Key,
    /// Which of the module's files.
    pub(crate) kind: FileKind,
    /// The file's own name, where the id alone does not tell what it is.
    pub(crate) name: Option<String>,
}

impl Target {
    /// Reads a path; `None` when it is nothing that could be here. Each part is decoded once.
    ///
    /// | path | file |
    /// | --- | --- |
    /// | `app.pdb/GUID age/app.pdb` | PDB |
    /// | `app.exe/time stamp and size/app.exe` | PE file |
    /// | `app/elf-buildid-ID/app`, `_.debug/elf-buildid-sym-ID/_.debug` | ELF file, its debug file |
    /// | `app/mach-uuid-UUID/app`, `_.dwarf/mach-uuid-sym-UUID/_.dwarf` | Mach-O file, its dSYM's DWARF |
    /// | `AAAA/BBBB/CCCC/DDDD/EEEE/FFFFFFFFFFFF`, with `.app` behind | dSYM's DWARF, Mach-O file |
    ///
    /// (SSQP key conventions of dotnet/symstore; Symbolicator's layout `native`.)
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.split('/').map(percent_decode).collect::<Option<_>>()?;
        let [name, id, last] = parts.as_slice() else { return uuid_folders(&parts) };
        if name.is_empty() || name.to_lowercase() != last.to_lowercase() {
            return None;
        }
        let id = id.to_ascii_lowercase();
        let of_kinds = [
            ("elf-buildid-sym-", FileKind::Debuginfo),
            ("elf-buildid-", FileKind::Executable),
            ("mach-uuid-sym-", FileKind::Debuginfo),
            ("mach-uuid-", FileKind::Executable),
        ];
        for (prefix, kind) in of_kinds {
            let Some(hex) = id.strip_prefix(prefix) else { continue };
            let id = if prefix.starts_with("mach") { uuid(hex)? } else { build_id(hex)? };
            return Some(Self::of_id(id, kind));
        }
        if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        match id.split_at_checked(GUID_DIGITS) {
            Some((guid, age)) if NUMBER_DIGITS.contains(&age.len()) => {
                let id = DebugId::Pdb { guid: guid_bytes(guid)?, age: u32::from_str_radix(age, 16).ok()? };
                Some(Self { key: Key::Id(id), kind: FileKind::Debuginfo, name: Some(name.clone()) })
            }
            None if id.len().checked_sub(STAMP_DIGITS).is_some_and(|size| NUMBER_DIGITS.contains(&size)) => {
                Some(Self { key: Key::image(name, &id), kind: FileKind::Executable, name: None })
            }
            _ => None,
        }
    }
}

impl Target {
    /// Whether a file's own name is the one that is asked for. A GUID and age are also those of a PE file with its own debug
    /// information, which is no PDB.
    pub(crate) fn is_called(&self, file: &str) -> bool {
        self.name.as_ref().is_none_or(|name| title::component(name).to_lowercase() == file.to_lowercase())
    }

    /// What its debug id alone tells.
    fn of_id(id: DebugId, kind: FileKind) -> Self {
        Self { key: Key::Id(id), kind, name: None }
    }
}

fn uuid_folders(parts: &[String]) -> Option<Target> {
    let (last, folders) = parts.split_last()?;
    let (last, kind) = match last.strip_suffix(".app") {
        Some(last) => (last, FileKind::Executable),
        None => (last.as_str(), FileKind::Debuginfo),
    };
    let digits: Vec<&str> = folders.iter().map(String::as_str).chain([last]).collect();
    if !digits.iter().map(|part| part.len()).eq(UUID_PARTS) {
        return None;
    }
    Some(Target::of_id(uuid(&digits.concat())?, kind))
}

fn build_id(hex: &str) -> Option<DebugId> {
    // Other forms of ids have marks of their own in them.
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    hex.parse().ok()
}

fn uuid(hex: &str) -> Option<DebugId> {
    guid_bytes(hex).map(DebugId::MachoUuid)
}

fn guid_bytes(hex: &str) -> Option<[u8; 16]> {
    if hex.len() != GUID_DIGITS || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(hex, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "D6FEA1B2C3D4E5F60718293A4B5C6D7E";

    fn id(text: &str) -> Key {
        Key::Id(text.parse().unwrap())
    }

    #[track_caller]
    fn check(path: &str, key: Key, kind: FileKind, name: Option<&str>) {
        assert_eq!(Target::parse(path), Some(Target { key, kind, name: name.map(str::to_owned) }), "{path}");
    }

    #[test]
    fn every_kind_of_file_has_its_path_in_either_case() {
        let pdb = id(&format!("{UUID}-1a"));
        for path in [format!("app.pdb/{UUID}1a/app.pdb"), format!("App.PDB/{UUID}1A/app.pdb").to_lowercase()] {
            check(&path, pdb.clone(), FileKind::Debuginfo, Some("app.pdb"));
        }
        check(&format!("a%20b.pdb/{UUID}1a/a b.pdb"), pdb, FileKind::Debuginfo, Some("a b.pdb"));
        let portable = id(&format!("{UUID}-ffffffff"));
        check(&format!("app.pdb/{UUID}FFFFFFFF/app.pdb"), portable, FileKind::Debuginfo, Some("app.pdb"));
        let image = Key::image("app.exe", "5f3a1b2c1f000");
        check("App.exe/5F3A1B2C1f000/app.EXE", image, FileKind::Executable, None);
        check("libc.so.6/elf-buildid-ABCD/libc.so.6", id("abcd"), FileKind::Executable, None);
        check("_.debug/elf-buildid-sym-abcd/_.debug", id("abcd"), FileKind::Debuginfo, None);
        let macho = id(&format!("uuid:{UUID}"));
        check(&format!("App/mach-uuid-{UUID}/App"), macho.clone(), FileKind::Executable, None);
        check(
            &format!("_.dwarf/mach-uuid-sym-{UUID}/_.dwarf").to_lowercase(),
            macho.clone(),
            FileKind::Debuginfo,
            None,
        );
        check("D6FE/A1B2/C3D4/E5F6/0718/293A4B5C6D7E", macho.clone(), FileKind::Debuginfo, None);
        check("d6fe/a1b2/c3d4/e5f6/0718/293a4b5c6d7e.app", macho, FileKind::Executable, None);
    }

    #[test]
    fn what_is_malformed_names_nothing() {
        for path in [
            "",
            "/",
            "app.pdb",
            "app.pdb//app.pdb",
            "//",
            "app.pdb/index2.txt",
            "index2.txt",
            &format!("app.pdb/{UUID}1/file.ptr"),
            &format!("app.pdb/{UUID}1/app.pd_"),
            &format!("app.pdb/{UUID}/app.pdb"),
            &format!("app.pdb/{UUID}123456789/app.pdb"),
            &format!("app.pdb/+{UUID}1/app.pdb"),
            "app.exe/5F3A1B2C/app.exe",
            "app.exe/5F3A1B2C123456789/app.exe",
            "app/elf-buildid-/app",
            "app/elf-buildid-uuid:abcd/app",
            "app/mach-uuid-abcd/app",
            "D6FE/A1B2/C3D4/E5F6/0718/293A4B5C6D7",
            "D6FE/A1B2/C3D4/E5F6/071/8293A4B5C6D7E",
            "../../etc/passwd",
            "%2e%2e/%2e%2e/x",
        ] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_breaks_the_reader(path in "[0-9a-fA-F/%.é_-]{0,60}|.{0,60}") {
            let _ = Target::parse(&path);
        }
    }
}
