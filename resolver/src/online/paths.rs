//! What servers are asked: paths of debuginfod, and of symbol servers (SSQP key conventions).

use symseal_module::DebugId;

use crate::{WantedFile, WantedKind};

/// The paths of a file below a server's URL, the likelier ones first.
pub(super) fn of(wanted: &WantedFile<'_>) -> Vec<String> {
    match wanted.id {
        DebugId::BuildId(_) => {
            let what = match wanted.kind {
                WantedKind::DebugFile => "debuginfo",
                WantedKind::Executable => "executable",
            };
            vec![format!("buildid/{}/{what}", wanted.id)]
        }
        DebugId::Pdb { guid, age } => {
            let (WantedKind::DebugFile, Some(name)) = (wanted.kind, pdb_name(wanted.name)) else { return Vec::new() };
            let guid = u128::from_be_bytes(*guid);
            let name = encoded(&name);
            // The age has no zeroes before it.
            vec![format!("{name}/{guid:032X}{age:x}/{name}"), format!("{name}/{guid:032X}{age:x}/{}_", cut(&name))]
        }
        DebugId::MachoUuid(uuid) => {
            let uuid = u128::from_be_bytes(*uuid);
            match (wanted.kind, wanted.name) {
                (WantedKind::DebugFile, _) => vec![format!("_.dwarf/mach-uuid-sym-{uuid:032x}/_.dwarf")],
                (WantedKind::Executable, Some(name)) => {
                    let name = encoded(name);
                    vec![format!("{name}/mach-uuid-{uuid:032x}/{name}")]
                }
                (WantedKind::Executable, None) => Vec::new(),
            }
        }
    }
}

/// The name of a program database, by that of the program.
fn pdb_name(name: Option<&str>) -> Option<String> {
    let name = name.filter(|name| !name.is_empty())?;
    let stem = match name.rsplit_once('.') {
        Some((stem, ending)) if PROGRAMS.iter().any(|known| ending.eq_ignore_ascii_case(known)) => stem,
        _ => name,
    };
    Some(format!("{stem}.pdb"))
}

/// Endings in whose place a program database has its own: those of programs, of what they load, and its own. Any other may be a part of the name.
const PROGRAMS: [&str; 14] =
    ["exe", "dll", "sys", "ocx", "cpl", "scr", "drv", "efi", "com", "ax", "node", "pyd", "xll", "pdb"];

/// Compressed files have an underscore in the place of the last letter.
fn cut(name: &str) -> &str {
    name.char_indices().next_back().and_then(|(at, _)| name.get(..at)).unwrap_or_default()
}

/// A name as one part of a path.
fn encoded(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'~');
    if name.bytes().all(|byte| byte == b'.') {
        return name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    }
    name.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_is_asked_for_by_its_own_paths() {
        let id: DebugId = "abcdef".parse().unwrap();
        let wanted = |kind| WantedFile { id: &id, kind, name: Some("app") };
        assert_eq!(of(&wanted(WantedKind::DebugFile)), ["buildid/abcdef/debuginfo"]);
        assert_eq!(of(&wanted(WantedKind::Executable)), ["buildid/abcdef/executable"]);
        let id = DebugId::Pdb { guid: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes(), age: 0x1f };
        let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: Some("Some App.exe") };
        let key = "0123456789ABCDEF0123456789ABCDEF1f";
        assert_eq!(
            of(&wanted),
            [format!("Some%20App.pdb/{key}/Some%20App.pdb"), format!("Some%20App.pdb/{key}/Some%20App.pd_")]
        );
        for (program, database) in [
            ("a.Dll", "a.pdb"),
            ("a.ocx", "a.pdb"),
            ("a.CPL", "a.pdb"),
            ("libfoo-1.2", "libfoo-1.2.pdb"),
            ("a.pdb", "a.pdb"),
        ] {
            assert_eq!(pdb_name(Some(program)).as_deref(), Some(database));
        }
        let id = DebugId::MachoUuid([0xab; 16]);
        let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: None };
        assert_eq!(of(&wanted), [format!("_.dwarf/mach-uuid-sym-{}/_.dwarf", "ab".repeat(16))]);
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        let id = DebugId::Pdb { guid: [1; 16], age: 1 };
        for name in ["..", "../../x", "a/b", "a?b#c", "a%2fb"] {
            let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: Some(name) };
            for path in of(&wanted) {
                assert_eq!(path.split('/').count(), 3, "{path}");
                assert!(!path.contains(['?', '#']) && !path.split('/').any(|part| part == ".."), "{path}");
            }
        }
    }
}
