//! Small Mach-O files made byte by byte, of either word size and byte order.

/// What a file is made of; every part may be left as it is.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) is_64: bool,
    pub(crate) is_little: bool,
    pub(crate) cpu: u32,
    pub(crate) subtype: u32,
    pub(crate) uuid: Option<[u8; 16]>,
    /// `cryptid`: the whole file is said to be encrypted.
    pub(crate) encrypted: Option<u32>,
    /// Address, `n_type`, `n_desc` and name of each symbol.
    pub(crate) symbols: Vec<(u64, u8, u16, &'static str)>,
    /// Bytes of `LC_FUNCTION_STARTS`.
    pub(crate) starts: Vec<u8>,
}

pub(crate) const BASE: u64 = 0x1_0000;
/// Where the code of 64 bytes begins.
pub(crate) const TEXT: u64 = BASE + 0x800;
pub(crate) const UUID: [u8; 16] = *b"0123456789abcdef";

impl Default for Maker {
    fn default() -> Self {
        Self {
            is_64: true,
            is_little: true,
            cpu: 0x0100_0007,
            subtype: 3,
            uuid: Some(UUID),
            encrypted: None,
            symbols: vec![(TEXT, 0x0f, 0, "_main"), (TEXT + 16, 0x0e, 0, "_local")],
            starts: vec![0x80, 0x10, 16, 16, 0],
        }
    }
}

impl Maker {
    fn u32(&self, value: u32) -> [u8; 4] {
        if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u16(&self, value: u16) -> [u8; 2] {
        if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn word(&self, value: u64) -> Vec<u8> {
        match (self.is_64, self.is_little) {
            (true, true) => value.to_le_bytes().to_vec(),
            (true, false) => value.to_be_bytes().to_vec(),
            (false, _) => self.u32(u32::try_from(value).expect("a narrow address")).to_vec(),
        }
    }

    fn command(&self, kind: u32, content: &[Vec<u8>]) -> Vec<u8> {
        let content = content.concat();
        [&self.u32(kind)[..], &self.u32(content.len() as u32 + 8), &content].concat()
    }

    /// Code at 0x800 of the file, the tables behind it.
    pub(crate) fn make(&self) -> Vec<u8> {
        let u32 = |value: u32| self.u32(value).to_vec();
        let word = |value: u64| self.word(value);
        let named = |name: &str| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(16, 0);
            bytes
        };
        let mut names = vec![0];
        let mut table = Vec::new();
        for (value, kind, description, name) in &self.symbols {
            table.extend(self.u32(names.len() as u32));
            table.extend([*kind, 1]);
            table.extend(self.u16(*description));
            table.extend(self.word(*value));
            names.extend(name.bytes().chain([0]));
        }
        let (table_at, names_at) = (0x840, 0x840 + table.len());
        let starts_at = names_at + names.len();
        let size = (starts_at + self.starts.len()) as u64;
        let text = [
            named("__TEXT"),
            word(BASE),
            word(size),
            word(0),
            word(size),
            u32(5),
            u32(5),
            u32(1),
            u32(0),
            named("__text"),
            named("__TEXT"),
            word(TEXT),
            word(64),
            u32(0x800),
            u32(0),
            u32(0),
            u32(0),
            u32(0x8000_0400),
            vec![0; if self.is_64 { 12 } else { 8 }],
        ];
        let mut commands = vec![self.command(if self.is_64 { 0x19 } else { 1 }, &text)];
        commands.extend(self.uuid.map(|uuid| self.command(0x1b, &[uuid.to_vec()])));
        let symtab =
            [u32(table_at as u32), u32(self.symbols.len() as u32), u32(names_at as u32), u32(names.len() as u32)];
        commands.push(self.command(2, &symtab));
        commands.push(self.command(0x26, &[u32(starts_at as u32), u32(self.starts.len() as u32)]));
        commands.extend(self.encrypted.map(|id| self.command(0x21, &[u32(0), u32(0x1000), u32(id)])));
        let count = commands.len() as u32;
        let commands = commands.concat();
        let magic = if self.is_64 { 0xfeed_facf } else { 0xfeed_face };
        let header =
            [magic, self.cpu, self.subtype, 2, count, commands.len() as u32, 0x85].map(|value| self.u32(value));
        let mut file = header.concat();
        file.extend(vec![0; if self.is_64 { 4 } else { 0 }]);
        file.extend(commands);
        assert!(file.len() <= 0x800);
        file.resize(0x800, 0);
        file.extend((0..64).map(|at| 0x90 ^ at));
        [file, table, names, self.starts.clone()].concat()
    }
}

/// A universal file of slices: `cputype`, `cpusubtype`, offset, size; the slices' bytes where they belong.
pub(crate) fn fat(is_64: bool, slices: &[(u32, u32, u64, u64)], contents: &[(u64, &[u8])]) -> Vec<u8> {
    let magic: u32 = if is_64 { 0xcafe_babf } else { 0xcafe_babe };
    let mut file = [magic.to_be_bytes(), (slices.len() as u32).to_be_bytes()].concat();
    for (cpu, subtype, offset, size) in slices {
        file.extend([cpu.to_be_bytes(), subtype.to_be_bytes()].concat());
        for value in [*offset, *size] {
            match is_64 {
                true => file.extend(value.to_be_bytes()),
                false => file.extend((value as u32).to_be_bytes()),
            }
        }
        file.extend(12_u32.to_be_bytes());
        file.extend(vec![0; if is_64 { 4 } else { 0 }]);
    }
    for (offset, content) in contents {
        file.resize(file.len().max(*offset as usize + content.len()), 0);
        file[*offset as usize..][..content.len()].copy_from_slice(content);
    }
    file
}
