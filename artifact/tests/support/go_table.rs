//! A small function table as Go's linker would write it, in every layout, and an ELF file around a table.
//!
//! The fuzz target takes this file in as it is.

/// Which layout a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The first release that wrote it: 12, 116, 118 or 120 for Go 1.2, 1.16, 1.18 and 1.20.
    pub(crate) release: u8,
    pub(crate) is_64: bool,
    pub(crate) is_little_endian: bool,
}

/// All of them.
pub(crate) fn layouts() -> Vec<Layout> {
    let mut all = Vec::new();
    for release in [12, 116, 118, 120] {
        for is_64 in [true, false] {
            for is_little_endian in [true, false] {
                all.push(Layout { release, is_64, is_little_endian });
            }
        }
    }
    all
}

/// Where the code lies, and how long it is.
pub(crate) const TEXT: u64 = 0x1000;
pub(crate) const TEXT_BYTES: u64 = 0x1_0000;
/// Where the table lies.
pub(crate) const TABLE: u64 = 0x2_0000;

/// Bytes in the layout's size and order.
struct Writer {
    bytes: Vec<u8>,
    layout: Layout,
}

impl Writer {
    fn new(layout: Layout) -> Self {
        Self { bytes: Vec::new(), layout }
    }

    fn number(&mut self, value: u64, size: usize) {
        if self.layout.is_little_endian {
            self.bytes.extend(&value.to_le_bytes()[..size]);
        } else {
            self.bytes.extend(&value.to_be_bytes()[8 - size..]);
        }
    }

    fn u32(&mut self, value: u64) {
        self.number(value & 0xffff_ffff, 4);
    }

    fn word(&mut self, value: u64) {
        self.number(value, self.layout.word_size());
    }

    fn align(&mut self) -> u64 {
        while !self.bytes.len().is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes.len() as u64
    }
}

impl Layout {
    fn word_size(self) -> usize {
        if self.is_64 { 8 } else { 4 }
    }

    fn magic(self) -> u64 {
        match self.release {
            12 => 0xffff_fffb,
            116 => 0xffff_fffa,
            118 => 0xffff_fff0,
            _ => 0xffff_fff1,
        }
    }
}

/// A table of places and values: where each value ends, and the value.
fn pc_table(runs: &[(u64, i64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut varint = |mut value: u64| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    let (mut place, mut value) = (0, -1);
    for (end, next) in runs {
        let difference = next - value;
        varint((difference << 1 ^ difference >> 63) as u64);
        varint(end - place);
        (place, value) = (*end, *next);
    }
    bytes.push(0);
    bytes
}

/// Two functions: `main.main` of 0x40 bytes, whose bytes 0x10 to 0x20 are `main.inner`, called in line 7, whose bytes 0x14 to
/// 0x18 are `main.leaf`, called in line 22 of another file; and `main.other` of 0x10 bytes and as many of padding.
pub(crate) fn table(layout: Layout) -> Vec<u8> {
    let word = layout.word_size() as u64;
    let has_index_of_words = layout.release < 118;
    let index_word = if has_index_of_words { word } else { 4 };
    let names_text = b"main.main\0main.inner\0main.leaf\0main.other\0";
    let name_offsets = [0_u64, 10, 21, 31];
    let paths = b"/src/a.go\0/src/b.go\0";
    let path_offsets = [0_u64, 10];

    // The parts, one behind the other. Offsets count from the header.
    let header = if layout.release == 12 {
        8 + word
    } else if layout.release == 116 {
        8 + 7 * word
    } else {
        8 + 8 * word
    };
    let index = if layout.release == 12 { header } else { 0 };
    let first_file = if layout.release == 12 { 1 } else { 0 };
    let tables = [
        pc_table(&[(0x14, first_file), (0x18, first_file + 1), (0x40, first_file)]),
        pc_table(&[(0x10, 5), (0x12, 20), (0x13, 22), (0x14, 20), (0x18, 90), (0x20, 21), (0x30, 7), (0x40, 8)]),
        pc_table(&[(0x10, -1), (0x14, 0), (0x18, 1), (0x20, 0), (0x40, -1)]),
        pc_table(&[(0x10, first_file)]),
        pc_table(&[(0x10, 30)]),
    ];
    let mut out = Writer::new(layout);
    out.bytes.resize(header as usize, 0);
    let index_at = if layout.release == 12 { index } else { out.align() };
    let index_bytes = 5 * index_word;
    out.bytes.resize((index_at + index_bytes + 4) as usize, 0);
    let names = out.align();
    // The oldest layout has names anywhere, and a name starts behind the end of another.
    out.bytes.extend(names_text);
    let units = out.align();
    for offset in path_offsets {
        out.u32(offset);
    }
    let files = out.align();
    let strings = if layout.release == 12 {
        let strings = files + 12;
        out.u32(3);
        for offset in path_offsets {
            out.u32(strings + offset);
        }
        strings
    } else {
        files
    };
    assert_eq!(strings, out.bytes.len() as u64);
    out.bytes.extend(paths);
    let pc_tables = out.align();
    out.bytes.push(0);
    let mut table_offsets = Vec::new();
    for table in &tables {
        table_offsets.push(out.bytes.len() as u64 - pc_tables);
        out.bytes.extend(table);
    }
    let tree = out.align();
    // `main.inner` is called at 0x20, in line 7; `main.leaf` at 0x12, in line 22.
    for (parent, name, call) in [(0xffff_u64, name_offsets[1], 0x20_u64), (0, name_offsets[2], 0x12)] {
        let name = if layout.release == 12 { names + name } else { name };
        if layout.release == 120 {
            out.bytes.extend([0; 4]);
            out.u32(name);
            out.u32(call);
            out.u32(19);
        } else {
            out.number(parent, 2);
            out.bytes.extend([0, 0]);
            out.u32(0);
            out.u32(0);
            out.u32(name);
            out.u32(call);
        }
    }
    let starts = [TEXT, TEXT + 0x40, TEXT + 0x60];
    let entry_of = |start: u64| if has_index_of_words { start } else { start - TEXT };
    let mut records = Vec::new();
    let name_base = if layout.release == 12 { names } else { 0 };
    let table_base = if layout.release == 12 { pc_tables } else { 0 };
    let functions_part = if layout.release == 12 { 0 } else { index_at };
    for (number, has_tree) in [(0_usize, true), (1, false)] {
        records.push(out.align() - functions_part);
        out.number(entry_of(starts[number]), index_word as usize);
        out.u32(name_base + if number == 0 { name_offsets[0] } else { name_offsets[3] });
        out.u32(0);
        out.u32(0);
        out.u32(0);
        let [file, line] = if number == 0 { [0, 1] } else { [3, 4] };
        out.u32(table_base + table_offsets[file]);
        out.u32(table_base + table_offsets[line]);
        out.u32(3);
        if layout.release >= 116 {
            out.u32(0);
        }
        if layout.release >= 120 {
            out.u32(if number == 0 { 4 } else { 29 });
        }
        let tree_number = if layout.release == 12 { 4 } else { 3 };
        out.bytes.extend([0, 0, 0, tree_number + 1]);
        out.u32(0);
        out.u32(0);
        out.u32(if has_tree { table_base + table_offsets[2] } else { 0 });
        if layout.release < 118 {
            while !out.bytes.len().is_multiple_of(word as usize) {
                out.bytes.push(0);
            }
        }
        for number in 0..=tree_number {
            let is_tree = number == tree_number && has_tree;
            if layout.release < 118 {
                out.word(if is_tree { TABLE + tree } else { 0 });
            } else {
                out.u32(if is_tree { 0 } else { 0xffff_ffff });
            }
        }
    }
    // The module data, which has pointers to the table and to the trees.
    out.align();
    if layout.release >= 118 {
        let function_data = if layout.release == 118 { 38 } else { 40 };
        for number in 0..48 {
            out.word(match number {
                0 => TABLE,
                1 => TABLE + names,
                4 => TABLE + units,
                7 => TABLE + files,
                10 => TABLE + pc_tables,
                13 | 16 => TABLE + index_at,
                17 => 3,
                20 | 22 => TEXT,
                number if number == function_data => TABLE + tree,
                _ => 0,
            });
        }
    }
    let body = std::mem::take(&mut out.bytes);
    out.u32(layout.magic());
    out.bytes.extend([0, 0, 1, word as u8]);
    out.word(2);
    if layout.release >= 116 {
        out.word(2);
        if layout.release >= 118 {
            out.word(TEXT);
        }
        for offset in [names, units, files, pc_tables, index_at] {
            out.word(offset);
        }
    }
    out.bytes.resize(index_at as usize, 0);
    for (start, record) in starts.iter().zip(&records) {
        out.number(entry_of(*start), index_word as usize);
        out.number(*record, index_word as usize);
    }
    out.number(entry_of(starts[2]), index_word as usize);
    if layout.release == 12 {
        out.u32(files);
    }
    let written = out.bytes.len();
    out.bytes.extend(&body[written..]);
    out.bytes
}

/// An ELF file with these bytes as `.gopclntab`, and a range of code without bytes.
pub(crate) fn elf_around(table: &[u8], is_64: bool, is_little_endian: bool) -> Vec<u8> {
    let layout = Layout { release: 12, is_64, is_little_endian };
    let names = b"\0.text\0.gopclntab\0.shstrtab\0";
    let header_size = if is_64 { 64 } else { 52 };
    let names_at = header_size + table.len() as u64;
    let sections_at = names_at + names.len() as u64;
    let mut out = Writer::new(layout);
    out.bytes.extend([0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, if is_little_endian { 1 } else { 2 }, 1]);
    out.bytes.resize(16, 0);
    // An executable, for some processor.
    out.number(2, 2);
    out.number(0, 2);
    out.u32(1);
    for value in [TEXT, 0, sections_at] {
        out.word(value);
    }
    out.u32(0);
    for value in [header_size, 0, 0, if is_64 { 64 } else { 40 }, 4, 3] {
        out.number(value, 2);
    }
    out.bytes.extend(table);
    out.bytes.extend(names);
    let mut section = |name: u64, kind: u64, flags: u64, addr: u64, offset: u64, size: u64| {
        out.u32(name);
        out.u32(kind);
        for value in [flags, addr, offset, size] {
            out.word(value);
        }
        out.u32(0);
        out.u32(0);
        out.word(1);
        out.word(0);
    };
    section(0, 0, 0, 0, 0, 0);
    section(1, 8, 6, TEXT, 0, TEXT_BYTES);
    section(7, 1, 2, TABLE, header_size, table.len() as u64);
    section(18, 3, 0, 0, names_at, names.len() as u64);
    out.bytes
}
