//! The lines of a symbol file.

/// Lines without their ends, `\r` before them too.
#[derive(Debug, Clone)]
pub(super) struct Lines<'d> {
    rest: &'d [u8],
}

impl<'d> Lines<'d> {
    pub(super) fn new(data: &'d [u8]) -> Self {
        Self { rest: data }
    }
}

impl<'d> Iterator for Lines<'d> {
    type Item = &'d [u8];

    fn next(&mut self) -> Option<&'d [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..).unwrap_or_default();
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// A record that names code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record<'d> {
    /// `FILE number name`
    File { number: u64, name: &'d [u8] },
    /// `INLINE_ORIGIN number name`
    Origin { number: u64, name: &'d [u8] },
    /// `FUNC [m] address size parameters name`
    Function { several: bool, start: u64, size: u64, name: &'d [u8] },
    /// `INLINE depth line [file] origin (address size)+`
    Inline { depth: u64, line: u64, file: Option<u64>, origin: u64, ranges: &'d [u8] },
    /// `address size line file`
    Line { start: u64, size: u64, line: u64, file: u64 },
    /// `PUBLIC [m] address parameters name`
    Public { several: bool, start: u64, name: &'d [u8] },
    /// What says nothing of names: `MODULE`, `INFO`, `STACK`.
    Other,
}

impl<'d> Record<'d> {
    /// Reads a line; none where it is malformed.
    pub(super) fn read(line: &'d [u8]) -> Option<Self> {
        let (word, rest) = word(line);
        match word {
            b"FILE" => numbered(rest).map(|(number, name)| Self::File { number, name }),
            b"INLINE_ORIGIN" => numbered(rest).map(|(number, name)| Self::Origin { number, name }),
            b"FUNC" => {
                let (several, rest) = marked(rest);
                let (start, rest) = hex_word(rest)?;
                let (size, rest) = hex_word(rest)?;
                let (_, name) = hex_word(rest)?;
                Some(Self::Function { several, start, size, name })
            }
            b"PUBLIC" => {
                let (several, rest) = marked(rest);
                let (start, rest) = hex_word(rest)?;
                let (_, name) = hex_word(rest)?;
                Some(Self::Public { several, start, name })
            }
            b"INLINE" => inline(rest),
            b"" | b"MODULE" | b"INFO" | b"STACK" => Some(Self::Other),
            _ => {
                let (start, rest) = hex_word(line)?;
                let (size, rest) = hex_word(rest)?;
                let (line, rest) = decimal_word(rest)?;
                let (file, _) = decimal_word(rest)?;
                Some(Self::Line { start, size, line, file })
            }
        }
    }
}

/// Ranges come in pairs, so that the count of words tells whether there is a file, which the first versions left out.
fn inline(rest: &[u8]) -> Option<Record<'_>> {
    let words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count();
    let (depth, rest) = decimal_word(rest)?;
    let (line, rest) = decimal_word(rest)?;
    let (file, rest) = if words.is_multiple_of(2) {
        let (file, rest) = decimal_word(rest)?;
        (Some(file), rest)
    } else {
        (None, rest)
    };
    let (origin, ranges) = decimal_word(rest)?;
    Some(Record::Inline { depth, line, file, origin, ranges })
}

/// The next range: first address and size.
pub(super) fn range(rest: &[u8]) -> Option<((u64, u64), &[u8])> {
    let (start, rest) = hex_word(rest)?;
    let (size, rest) = hex_word(rest)?;
    Some(((start, size), rest))
}

fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii_start();
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(end).unwrap_or((line, &[]));
    (word, rest.get(1..).unwrap_or_default())
}

fn numbered(rest: &[u8]) -> Option<(u64, &[u8])> {
    decimal_word(rest)
}

/// `m`: several functions have this code.
fn marked(rest: &[u8]) -> (bool, &[u8]) {
    rest.strip_prefix(b"m ").map_or((false, rest), |rest| (true, rest))
}

fn hex_word(rest: &[u8]) -> Option<(u64, &[u8])> {
    number(rest, 16)
}

fn decimal_word(rest: &[u8]) -> Option<(u64, &[u8])> {
    number(rest, 10)
}

fn number(rest: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let (digits, rest) = word(rest);
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        number.checked_mul(radix.into())?.checked_add(digit.into())
    })?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_read() {
        let read = |line: &'static str| Record::read(line.as_bytes());
        assert_eq!(read("FILE 7 c:\\a b.c"), Some(Record::File { number: 7, name: b"c:\\a b.c" }));
        assert_eq!(
            read("FUNC m c184 30 0 f(int, int)"),
            Some(Record::Function { several: true, start: 0xc184, size: 0x30, name: b"f(int, int)" })
        );
        assert_eq!(read("c184 7 59 4"), Some(Record::Line { start: 0xc184, size: 7, line: 59, file: 4 }));
        assert_eq!(read("PUBLIC 2160 0 main"), Some(Record::Public { several: false, start: 0x2160, name: b"main" }));
        assert_eq!(
            read("INLINE 0 10 3 4 d30 2a fa1 b"),
            Some(Record::Inline { depth: 0, line: 10, file: Some(3), origin: 4, ranges: b"d30 2a fa1 b" })
        );
        assert_eq!(
            read("INLINE 0 10 4 d30 2a"),
            Some(Record::Inline { depth: 0, line: 10, file: None, origin: 4, ranges: b"d30 2a" })
        );
        assert_eq!(read("STACK CFI INIT 10 1 x"), Some(Record::Other));
        for wrong in ["FUNC", "FUNC zz 1 0 a", "PUBLIC 1", "word", "10 1 a 0", "11112222333344445 1 1 1", "INLINE 0"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(Lines::new(b"a\r\n\nb").collect::<Vec<_>>(), [&b"a"[..], b"", b"b"]);
    }
}
