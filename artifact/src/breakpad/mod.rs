//! Breakpad's symbol files (`.sym`): what `dump_syms` wrote of a module, as text.
//!
//! (Breakpad, `docs/symbol_files.md`.) They name functions, lines and inlined calls by addresses from the image base. The head says what
//! module it is: Breakpad's id, which of an ELF build-id has the first 16 bytes alone, and, in newer files, the platform's own id.

mod chains;
mod records;
mod stream;

use symseal_module::DebugId;

use crate::error::malformed;
use crate::{ArtifactError, escaped};
use records::Lines;

/// What a file begins with.
const MODULE: &[u8] = b"MODULE ";

/// The longest line of the head, in bytes: it names two files.
const HEAD_LINE: usize = 8192;

/// Bytes of Breakpad's GUID.
const GUID: usize = 16;

/// A symbol file, as far as what identifies it.
#[derive(Debug, Clone)]
pub struct BreakpadFile<'d> {
    data: &'d [u8],
    os: String,
    arch: String,
    guid: [u8; GUID],
    age: u32,
    name: String,
    code_id: Option<String>,
    code_file: Option<String>,
}

/// Records for stack walkers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackRecords {
    /// Lines of `STACK CFI`.
    pub cfi: u64,
    /// Lines of `STACK WIN`.
    pub win: u64,
}

impl<'d> BreakpadFile<'d> {
    /// Whether bytes begin like a symbol file.
    pub fn is_one(head: &[u8]) -> bool {
        head.starts_with(MODULE)
    }

    /// Reads the head: `MODULE os processor id name`, and `INFO CODE_ID id [name]` where it follows.
    ///
    /// # Errors
    /// [`ArtifactError::Malformed`] where there is no head.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let mut lines = Lines::new(data);
        let first = lines.next().unwrap_or_default();
        let shown = || escaped(first.get(..first.len().min(100)).unwrap_or_default()).into_owned();
        let wrong = |expected: &str| malformed("the first line of a Breakpad symbol file", expected, shown());
        let form = "MODULE, a system, a processor, an id of 32 hex digits and an age, and a name";
        let text = std::str::from_utf8(first).ok().filter(|text| text.len() <= HEAD_LINE);
        let mut parts = text.ok_or_else(|| wrong(form))?.splitn(5, ' ');
        let (Some("MODULE"), Some(os), Some(arch), Some(id), Some(name)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong(form));
        };
        let (guid, age) = breakpad_id(id).ok_or_else(|| wrong(form))?;
        let name = name.trim();
        if name.is_empty() || os.is_empty() {
            return Err(wrong(form));
        }
        let mut file = Self {
            data,
            os: os.to_owned(),
            arch: arch.to_owned(),
            guid,
            age,
            name: name.to_owned(),
            code_id: None,
            code_file: None,
        };
        // The other records begin with other words.
        for line in lines.take_while(|line| line.starts_with(b"INFO ") && line.len() <= HEAD_LINE) {
            let Some(rest) = line.strip_prefix(b"INFO CODE_ID ").and_then(|rest| std::str::from_utf8(rest).ok()) else {
                continue;
            };
            let (id, name) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                file.code_id = Some(id.to_owned());
                file.code_file = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
            }
        }
        Ok(file)
    }

    /// The platform's identity of the module, as far as the file tells it: of an ELF module without its code id the first 16 bytes.
    ///
    /// # Errors
    /// [`ArtifactError::Malformed`] where the id is zero, which identifies nothing.
    pub fn debug_id(&self) -> Result<DebugId, ArtifactError> {
        let nothing = || malformed("the id of a Breakpad symbol file", "one that is not zero", self.id());
        if self.guid == [0; GUID] {
            return Err(nothing());
        }
        if self.is_windows() {
            return Ok(DebugId::Pdb { guid: self.guid, age: self.age });
        }
        if matches!(self.os.to_ascii_lowercase().as_str(), "mac" | "ios") {
            return Ok(DebugId::MachoUuid(self.guid));
        }
        DebugId::from_build_id(&self.build_id()).map_err(|_| nothing())
    }

    /// The build-id of the code id where that is of this module, else what Breakpad's id has of it.
    fn build_id(&self) -> Vec<u8> {
        let short = little_endian_fields(self.guid);
        let whole = self.code_id.as_ref().and_then(|text| hex(text));
        let is_own = |whole: &Vec<u8>| whole.starts_with(&short) || whole.starts_with(&self.guid);
        whole.filter(is_own).unwrap_or_else(|| short.to_vec())
    }

    fn is_windows(&self) -> bool {
        self.os.eq_ignore_ascii_case("windows")
    }

    /// Breakpad's id: GUID in upper case, age in lower-case hex.
    pub fn id(&self) -> String {
        format!("{:032X}{:x}", u128::from_be_bytes(self.guid), self.age)
    }

    /// Breakpad's GUID, as printed.
    pub fn guid(&self) -> [u8; 16] {
        self.guid
    }

    /// The age: 0 but for PDBs.
    pub fn age(&self) -> u32 {
        self.age
    }

    /// Name of the debug file that it was made of.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The system, as the file has it: `windows`, `Linux`, `mac`.
    pub fn os(&self) -> &str {
        &self.os
    }

    /// The processor, as the file has it: `x86`, `x86_64`, `arm64`.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The platform's own id: of a PE file time stamp and size, of others the build-id or UUID.
    pub fn code_id(&self) -> Option<&str> {
        self.code_id.as_deref()
    }

    /// Name of the binary, where the file says it.
    pub fn code_file(&self) -> Option<&str> {
        self.code_file.as_deref()
    }

    pub(crate) fn data(&self) -> &'d [u8] {
        self.data
    }

    /// How many records for stack walkers there are. Reads the whole file.
    pub fn stack_records(&self) -> StackRecords {
        let mut found = StackRecords::default();
        for line in Lines::new(self.data) {
            found.cfi += u64::from(line.starts_with(b"STACK CFI "));
            found.win += u64::from(line.starts_with(b"STACK WIN "));
        }
        found
    }
}

/// 32 hex digits of GUID, and the age.
fn breakpad_id(text: &str) -> Option<([u8; GUID], u32)> {
    let (guid, age) = text.split_at_checked(2 * GUID)?;
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u128::from_str_radix(guid, 16).ok()?.to_be_bytes(), u32::from_str_radix(age, 16).ok()?))
}

/// The bytes of a build-id, of which Breakpad makes a GUID: a number of four bytes and two of two come first.
fn little_endian_fields(guid: [u8; GUID]) -> [u8; GUID] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid;
    let mut bytes = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    for (slot, byte) in bytes.iter_mut().skip(8).zip(rest) {
        *slot = byte;
    }
    bytes
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_tells_the_platforms_id() {
        let id = |text: &str| BreakpadFile::parse(text.as_bytes()).unwrap().debug_id().unwrap().to_string();
        let guid = "20AD60B0B4C68177552708AA192E7739";
        assert_eq!(id(&format!("MODULE windows x86 {guid}1a a b.pdb\r\n")), format!("{guid}-1a"));
        assert_eq!(id(&format!("MODULE mac x86_64 {guid}0 a\n")), format!("uuid:{guid}"));
        assert_eq!(id(&format!("MODULE Linux x86_64 {guid}0 a\nFILE 0 a\n")), "b060ad20c6b47781552708aa192e7739");
        let with_code_id =
            format!("MODULE Linux x86_64 {guid}0 a\nINFO CODE_ID B060AD20C6B47781552708AA192E7739FAC7C84A\n");
        assert_eq!(id(&with_code_id), "b060ad20c6b47781552708aa192e7739fac7c84a");
        // Another module's does not count.
        let with_other =
            format!("MODULE Linux x86_64 {guid}0 a\nINFO CODE_ID 0060AD20C6B47781552708AA192E7739FAC7C84A\n");
        assert_eq!(id(&with_other), "b060ad20c6b47781552708aa192e7739");
    }

    #[test]
    fn what_has_no_head_is_refused() {
        for text in [
            "",
            "MODULE",
            "MODULE Linux x86_64 20AD60B0B4C68177552708AA192E7739 a",
            "MODULE Linux x86_64 +0AD60B0B4C68177552708AA192E77390 a",
            "MODULE Linux x86_64 20AD60B0B4C68177552708AA192E77390",
            "MODULE Linux x86_64 20AD60B0B4C68177552708AA192E77390 ",
            "STACK CFI INIT 1170 1a0 .cfa: $rsp 432 +",
        ] {
            assert!(BreakpadFile::parse(text.as_bytes()).is_err(), "{text}");
        }
        let zero = BreakpadFile::parse(b"MODULE Linux x86_64 000000000000000000000000000000000 a").unwrap();
        assert!(zero.debug_id().is_err());
    }
}
