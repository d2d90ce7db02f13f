//! The ids that Breakpad's tools give to modules of every platform: a GUID and an age.

use symseal_module::DebugId;

/// Processors on which ELF files of either byte order exist.
const EITHER_BYTE_ORDER: [&str; 10] =
    ["arm", "aarch64", "mips", "mips64", "ppc", "ppc64", "s390", "s390x", "sparc", "sparc64"];

/// The ids of a module, as (GUID, age). A PDB's is its own, a Mach-O file's its UUID with age 0. Of a build-id the first 16 bytes
/// count, zeros behind a shorter one; they are read as a GUID of the file's byte order. The symbol index does not say that order,
/// so where there are two, both answer. (Breakpad, `src/common/linux/file_id.cc`)
pub(crate) fn breakpad_ids(id: &DebugId, arch: &str) -> impl Iterator<Item = ([u8; 16], u32)> + use<> {
    let (first, second) = match id {
        DebugId::Pdb { guid, age } => ((*guid, *age), None),
        DebugId::MachoUuid(uuid) => ((*uuid, 0), None),
        DebugId::BuildId(build_id) => {
            let mut bytes = [0; 16];
            for (slot, byte) in bytes.iter_mut().zip(build_id.as_bytes()) {
                *slot = *byte;
            }
            let either = EITHER_BYTE_ORDER.contains(&arch).then_some((bytes, 0));
            ((little_endian_fields(bytes), 0), either)
        }
    };
    std::iter::once(first).chain(second)
}

/// A GUID begins with a number of four bytes and two of two.
fn little_endian_fields(bytes: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let mut guid = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    for (slot, byte) in guid.iter_mut().skip(8).zip(rest) {
        *slot = byte;
    }
    guid
}

/// Reads an id as Breakpad writes it: 32 hex digits of GUID and the age in hex, of either case.
pub(crate) fn parse_breakpad_id(text: &str) -> Option<([u8; 16], u32)> {
    let (guid, age) = text.split_at_checked(32)?;
    // A sign is none of its digits.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u128::from_str_radix(guid, 16).ok()?.to_be_bytes(), u32::from_str_radix(age, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_read_as_a_guid_of_its_byte_order() {
        let id: DebugId = "0102030405060708090a0b0c0d0e0f1011121314".parse().unwrap();
        let little = parse_breakpad_id("0403020106050807090A0B0C0D0E0F100").unwrap();
        let big = parse_breakpad_id("0102030405060708090A0B0C0D0E0F100").unwrap();
        assert_eq!(breakpad_ids(&id, "x86_64").collect::<Vec<_>>(), [little]);
        assert_eq!(breakpad_ids(&id, "mips").collect::<Vec<_>>(), [little, big]);
        let short: DebugId = "abcd".parse().unwrap();
        let expected = parse_breakpad_id("0000CDAB0000000000000000000000000").unwrap();
        assert_eq!(breakpad_ids(&short, "x86_64").collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn a_pdb_and_a_mach_o_file_keep_theirs() {
        let id: DebugId = "D6FEA1B2C3D4E5F60718293A4B5C6D7E-1a".parse().unwrap();
        let expected = parse_breakpad_id("D6FEA1B2C3D4E5F60718293A4B5C6D7E1a").unwrap();
        assert_eq!(breakpad_ids(&id, "x86_64").collect::<Vec<_>>(), [expected]);
        let id: DebugId = "uuid:D6FEA1B2C3D4E5F60718293A4B5C6D7E".parse().unwrap();
        assert_eq!(breakpad_ids(&id, "aarch64").collect::<Vec<_>>(), [(expected.0, 0)]);
    }

    #[test]
    fn what_is_no_id_is_none() {
        for text in [
            "",
            "0",
            "D6FEA1B2C3D4E5F60718293A4B5C6D7E",
            "+6FEA1B2C3D4E5F60718293A4B5C6D7E1",
            "D6FEA1B2C3D4E5F60718293A4B5C6D7E-1",
            "D6FEA1B2C3D4E5F60718293A4B5C6D7E123456789",
            "é6FEA1B2C3D4E5F60718293A4B5C6D7E1",
        ] {
            assert_eq!(parse_breakpad_id(text), None, "{text}");
        }
    }
}
