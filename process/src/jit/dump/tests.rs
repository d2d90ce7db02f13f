use super::*;
use proptest::prelude::*;

/// Writes a dump in either byte order.
struct Writer {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Writer {
    fn new(big_endian: bool) -> Self {
        let mut writer = Self { bytes: Vec::new(), big_endian };
        for field in [MAGIC, 1, 40, 62, 0, 77] {
            writer.u32(field);
        }
        writer.u64(5).u64(0);
        writer
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn record(&mut self, kind: u32, time: u64, body: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.u32(kind).u32(0).u64(time);
        body(self);
        let size = (self.bytes.len() - at) as u32;
        let size = if self.big_endian { size.to_be_bytes() } else { size.to_le_bytes() };
        self.bytes[at + 4..at + 8].copy_from_slice(&size);
        self
    }

    fn load(&mut self, start: u64, size: u64, name: &str) -> &mut Self {
        self.record(LOAD, start, |writer| {
            writer.u32(77).u32(78).u64(start).u64(start).u64(size).u64(1);
            writer.bytes.extend(name.as_bytes());
            writer.bytes.push(0);
            writer.bytes.extend(vec![0x90; size as usize]);
        })
    }

    fn rules(&mut self, eh_frame: &[u8], header: &[u8]) -> &mut Self {
        let all = eh_frame.len() + header.len();
        self.record(RULES, 9, |writer| {
            writer.u64(all as u64).u64(header.len() as u64).u64(all.next_multiple_of(16) as u64);
            writer.bytes.extend([eh_frame, header].concat());
            writer.bytes.resize(writer.bytes.len().next_multiple_of(8), 0);
        })
    }

    fn moved(&mut self, from: u64, to: u64, size: u64) -> &mut Self {
        self.record(MOVE, 9, |writer| {
            writer.u32(77).u32(78).u64(to).u64(from).u64(to).u64(size).u64(1);
        })
    }

    fn lines(&mut self, start: u64, lines: &[(u64, u32, &[u8])]) -> &mut Self {
        self.record(LINES, 9, |writer| {
            writer.u64(start).u64(lines.len() as u64);
            for (address, line, file) in lines {
                writer.u64(*address).u32(*line).u32(0);
                writer.bytes.extend(*file);
                writer.bytes.push(0);
            }
        })
    }
}

fn read(bytes: &[u8]) -> JitDump {
    let mut dump = JitDump::new();
    assert_eq!(dump.read(bytes), Ok(bytes.len()));
    dump
}

fn name(dump: &JitDump, address: u64) -> Option<&str> {
    dump.find(Avma(address)).map(|hit| hit.function.name.as_str())
}

fn line(dump: &JitDump, address: u64) -> Option<(String, u32)> {
    let line = dump.find(Avma(address))?.line(Avma(address))?;
    Some((line.file.to_string(), line.line))
}

#[test]
fn both_byte_orders_say_the_same() {
    for big_endian in [false, true] {
        let mut writer = Writer::new(big_endian);
        writer.load(0x1000, 0x20, "first").load(0x2000, 0x10, "second").record(5, 0, |writer| {
            writer.u64(1);
        });
        let dump = read(&writer.bytes);
        assert_eq!((dump.pid(), dump.functions(), dump.bad_records()), (Some(77), 2, 0));
        assert_eq!(
            (name(&dump, 0x101f), name(&dump, 0x1020), name(&dump, 0x2000)),
            (Some("first"), None, Some("second"))
        );
        assert_eq!(dump.find(Avma(0x1000)).unwrap().function.written_at, Some(0x1000));
    }
}

#[test]
fn a_moved_function_is_found_where_it_went_with_its_lines() {
    let mut writer = Writer::new(false);
    writer
        .lines(0x1000, &[(0x1000, 7, b"a.js"), (0x1008, 8, SAME_FILE)])
        .load(0x1000, 0x20, "f")
        .moved(0x1000, 0x5000, 0x20);
    let dump = read(&writer.bytes);
    assert_eq!((name(&dump, 0x1000), name(&dump, 0x5010)), (None, Some("f")));
    assert_eq!((line(&dump, 0x5000), line(&dump, 0x5010)), (Some(("a.js".into(), 7)), Some(("a.js".into(), 8))));
    writer.moved(0x9999, 0x6000, 4);
    assert_eq!(read(&writer.bytes).bad_records(), 1, "nothing was there to move");
}

#[test]
fn lines_belong_to_the_function_before_or_after_them() {
    let after = read(&Writer::new(false).load(0x1000, 0x20, "f").lines(0x1000, &[(0x1004, 3, b"f.c")]).bytes);
    let before = read(&Writer::new(false).lines(0x1000, &[(0x1004, 3, b"f.c")]).load(0x1000, 0x20, "f").bytes);
    for dump in [after, before] {
        assert_eq!((line(&dump, 0x1003), line(&dump, 0x1004)), (None, Some(("f.c".into(), 3))));
    }
    // Memory that is used again does not inherit lines.
    let reused =
        read(&Writer::new(false).lines(0x1000, &[(0x1000, 3, b"f.c")]).load(0x1000, 8, "f").load(0x1000, 8, "g").bytes);
    assert_eq!((name(&reused, 0x1000), line(&reused, 0x1000)), (Some("g"), None));
}

#[test]
fn lines_that_v8_shifts_by_an_elf_header_are_shifted_back() {
    let lines: &[(u64, u32, &[u8])] = &[(0x1040, 1, b"a.js"), (0x1079, 2, b"a.js"), (0x1090, 0, b"a.js")];
    let mut writer = Writer::new(false);
    writer.lines(0x1000, lines).load(0x1000, 0x80, "f").lines(0x2000, &[(0x2043, 9, b"b.js")]).load(0x2000, 8, "g");
    let dump = read(&writer.bytes);
    assert_eq!((line(&dump, 0x2002), line(&dump, 0x2003)), (None, Some(("b.js".into(), 9))), "the dump decides");
    assert_eq!((line(&dump, 0x1000), line(&dump, 0x1039)), (Some(("a.js".into(), 1)), Some(("a.js".into(), 2))));
    assert_eq!(line(&dump, 0x1050), None, "line 0 is no line");
}

#[test]
fn records_of_lines_that_are_garbage_name_no_place() {
    // As node 20 writes them: the first entry holds, then come bytes of anything.
    let outside: &[(u64, u32, &[u8])] = &[(0x1040, 1, b"a.js"), (0x7fd2_7e68_3d03, 3_254_829_471, b"b.js")];
    let binary: &[(u64, u32, &[u8])] = &[(0x1000, 1, b"\xe7\x9d\x02")];
    let below: &[(u64, u32, &[u8])] = &[(0xfff, 1, b"a.js")];
    for lines in [outside, binary, below] {
        let dump = read(&Writer::new(false).lines(0x1000, lines).load(0x1000, 0x80, "f").bytes);
        assert_eq!((name(&dump, 0x1000), line(&dump, 0x1000), dump.bad_records()), (Some("f"), None, 1));
        let dump = read(&Writer::new(false).load(0x1000, 0x80, "f").lines(0x1000, lines).bytes);
        assert_eq!((name(&dump, 0x1000), line(&dump, 0x1000), dump.bad_records()), (Some("f"), None, 1));
    }
}

#[test]
fn a_record_that_is_still_being_written_waits_for_its_end() {
    let mut writer = Writer::new(false);
    let whole = writer.load(0x1000, 0x20, "whole").bytes.len();
    let bytes = &writer.load(0x2000, 0x20, "later").bytes;
    for cut in whole..bytes.len() {
        let mut dump = JitDump::new();
        assert_eq!(dump.read(&bytes[..cut]), Ok(whole));
        assert_eq!((dump.functions(), dump.bad_records()), (1, 0));
        assert_eq!(dump.read(&bytes[whole..]), Ok(bytes.len() - whole));
        assert_eq!(name(&dump, 0x2000), Some("later"));
    }
    for cut in 0..HEADER_BYTES {
        assert_eq!(JitDump::new().read(&bytes[..cut]), Ok(0));
    }
}

#[test]
fn after_the_close_record_nothing_counts() {
    let mut writer = Writer::new(false);
    let end = writer.load(0x1000, 8, "f").record(CLOSE, 0, |_| ()).bytes.len();
    writer.load(0x2000, 8, "g");
    let mut dump = JitDump::new();
    assert_eq!(dump.read(&writer.bytes), Ok(end));
    assert!(dump.is_closed() && name(&dump, 0x2000).is_none());
}

#[test]
fn what_is_no_dump_or_damaged_is_said_and_keeps_what_was_read() {
    assert_eq!(JitDump::new().read(b"\x7fELF...."), Err(JitDumpError::Magic { found: 0x464c_457f }));
    let mut other = Writer::new(true).bytes;
    other[7] = 2;
    assert_eq!(JitDump::new().read(&other), Err(JitDumpError::Version { found: 2 }));
    let mut damaged = Writer::new(false);
    let at = damaged.load(0x1000, 8, "f").bytes.len();
    damaged.u32(0).u32(15).u64(0);
    let mut dump = JitDump::new();
    assert_eq!(dump.read(&damaged.bytes), Err(JitDumpError::Size { at: at as u64, bytes: 15 }));
    assert_eq!(name(&dump, 0x1000), Some("f"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(edits in prop::collection::vec((0..400usize, any::<u8>()), 0..8), cut in 0..400usize) {
        let mut writer = Writer::new(false);
        writer.lines(0x1000, &[(0x1000, 7, b"a.js"), (0x1008, 8, SAME_FILE)]).load(0x1000, 0x20, "f").moved(0x1000, 0x5000, 0x20);
        let mut bytes = writer.bytes;
        bytes.resize(400, 0);
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        let mut dump = JitDump::new();
        let _ = dump.read(&bytes[..cut]);
        let _ = (name(&dump, 0x1000), line(&dump, 0x5010));
    }
}

#[test]
fn rules_belong_to_the_next_function_and_move_with_it() {
    for big_endian in [false, true] {
        let mut writer = Writer::new(big_endian);
        writer.load(0x1000, 0x20, "before").rules(&[1, 2, 3, 4], &[9; 20]).lines(0x2000, &[(0x2000, 7, b"/a")]);
        writer.load(0x2000, 0x10, "first").load(0x3000, 0x10, "behind").rules(&[1, 2, 3, 4], &[]);
        writer
            .load(0x4000, 0x10, "alike")
            .rules(&[], &[9; 20])
            .load(0x5000, 0x10, "of none")
            .moved(0x4000, 0x6000, 0x10);
        let dump = read(&writer.bytes);
        let rules = |at: u64| dump.find(Avma(at)).and_then(|hit| hit.function.eh_frame.as_deref().map(<[u8]>::to_vec));
        let told = [0x1000, 0x2000, 0x3000, 0x5000, 0x6000].map(rules);
        assert_eq!(told, [None, Some(vec![1, 2, 3, 4]), None, None, Some(vec![1, 2, 3, 4])]);
        assert_eq!((dump.bad_records(), dump.rules.len()), (0, 1));
    }
}

#[test]
fn rules_that_are_not_of_their_form_are_passed_over_and_too_many_are_left_out() {
    let mut writer = Writer::new(false);
    let wrong: [(u64, u64); 4] = [(100, 4), (4, 8), (u64::MAX, 0), (u64::MAX, u64::MAX - 8)];
    for (all, header) in wrong {
        writer.record(RULES, 9, |writer| {
            writer.u64(all).u64(header).u64(0);
            writer.bytes.extend([7; 16]);
        });
    }
    writer
        .record(RULES, 9, |writer| {
            writer.u64(1);
        })
        .load(0x1000, 0x10, "f");
    let dump = read(&writer.bytes);
    assert_eq!(dump.bad_records(), wrong.len() as u64 + 1);
    assert_eq!(dump.find(Avma(0x1000)).map(|hit| hit.function.eh_frame.is_some()), Some(false));
    let mut writer = Writer::new(false);
    writer.rules(&vec![1; MAX_RULES_BYTES + 1], &[]).load(0x1000, 0x10, "large");
    for at in 0..MAX_RULES as u32 + 1 {
        writer.rules(&at.to_le_bytes(), &[]).load(0x10_0000 + 0x10 * u64::from(at), 0x10, "f");
    }
    let dump = read(&writer.bytes);
    let has = |at: u64| dump.find(Avma(at)).is_some_and(|hit| hit.function.eh_frame.is_some());
    let last = 0x10_0000 + 0x10 * MAX_RULES as u64;
    assert_eq!([has(0x1000), has(0x10_0000), has(last - 0x10), has(last)], [false, true, true, false]);
}
