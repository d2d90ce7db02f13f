//! D: the qualified name, by the "Name Mangling" section of the language's ABI (dlang.org/spec/abi.html). Types are read to find where a name ends, and
//! not printed: a function is `std.stdio.File.close`, and the arguments of a template are `!(…)`.

use super::MAX_DEMANGLED_BYTES;

/// How deep names and types may lie in each other.
const MAX_DEPTH: u32 = 64;

/// Steps that one symbol may take: back references can make a short one long.
const MAX_STEPS: u32 = 20_000;

/// The qualified name; `None` where the symbol is none of D's, or cannot be read.
pub(super) fn demangle(symbol: &str) -> Option<String> {
    if symbol == "_Dmain" {
        return Some("D main".to_owned());
    }
    let bytes = symbol.as_bytes();
    let mut reader = Reader { bytes, at: 0, depth: 0, steps: MAX_STEPS };
    if !reader.take(b"_D") || !reader.at_symbol_name() {
        return None;
    }
    let mut name = String::new();
    reader.qualified_name(&mut name)?;
    // What is internal has no type.
    if !reader.take(b"Z") || !reader.is_at_end() {
        // A member function.
        if reader.take(b"M") {
            reader.modifiers();
        }
        reader.any_type()?;
    }
    (reader.is_at_end() && !name.is_empty()).then_some(name)
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    steps: u32,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.at.checked_add(1)?).copied()
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn take(&mut self, text: &[u8]) -> bool {
        let found = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(text));
        if found {
            self.at += text.len();
        }
        found
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.step()?;
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn number(&mut self) -> Option<usize> {
        let start = self.at;
        let mut number = 0_usize;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            number = number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            self.at += 1;
        }
        (self.at > start).then_some(number)
    }

    /// What a back reference behind its `Q` points at: so many bytes before the `Q`, in digits to the base of 26 of which the last is a small letter.
    fn back_reference(&mut self, of: usize) -> Option<usize> {
        let mut distance = 0_usize;
        loop {
            let letter = self.peek()?;
            self.at += 1;
            let (digit, is_last) = match letter {
                b'A'..=b'Z' => (letter - b'A', false),
                b'a'..=b'z' => (letter - b'a', true),
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(usize::from(digit))?;
            if is_last {
                return of.checked_sub(distance).filter(|at| *at < of);
            }
        }
    }

    /// Reads at another place, and comes back.
    fn elsewhere<T>(&mut self, at: usize, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let here = std::mem::replace(&mut self.at, at);
        let found = self.deeper(read);
        self.at = here;
        found
    }

    fn at_symbol_name(&self) -> bool {
        match self.peek() {
            Some(b'0'..=b'9') => true,
            Some(b'_') => {
                self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(b"__T") || rest.starts_with(b"__U"))
            }
            // A back reference to a name leads to its length, one to a type to a letter.
            Some(b'Q') => {
                let mut ahead = *self;
                ahead.at += 1;
                let to = ahead.back_reference(self.at).and_then(|to| self.bytes.get(to));
                to.is_some_and(u8::is_ascii_digit)
            }
            _ => false,
        }
    }

    fn qualified_name(&mut self, name: &mut String) -> Option<()> {
        self.deeper(|reader| {
            loop {
                reader.step()?;
                let before = name.len();
                if before > 0 {
                    name.push('.');
                }
                let dot = name.len();
                reader.symbol_name(name)?;
                if name.len() == dot {
                    // Anonymous.
                    name.truncate(before);
                }
                reader.function_in_between();
                if !reader.at_symbol_name() {
                    return Some(());
                }
            }
        })
    }

    /// The type of a function that a name lies in; where no name follows it is the type of the symbol itself, and stays.
    fn function_in_between(&mut self) {
        let mut ahead = *self;
        if ahead.take(b"M") {
            ahead.modifiers();
        }
        let is_function = matches!(ahead.peek(), Some(b'F' | b'U' | b'W' | b'V' | b'R' | b'Y'));
        if is_function && ahead.function_without_return().is_some() && ahead.at_symbol_name() {
            *self = ahead;
        } else {
            self.steps = ahead.steps;
        }
    }

    fn symbol_name(&mut self, name: &mut String) -> Option<()> {
        match self.peek()? {
            b'0' => {
                self.at += 1;
                Some(())
            }
            b'Q' => {
                let of = self.at;
                self.at += 1;
                let to = self.back_reference(of)?;
                self.elsewhere(to, |reader| reader.symbol_name(name))
            }
            b'_' => self.template(name),
            _ => {
                let length = self.number()?;
                let end = self.at.checked_add(length)?;
                let text = std::str::from_utf8(self.bytes.get(self.at..end)?).ok()?;
                // Older compilers write the length of a template before it.
                if text.starts_with("__T") || text.starts_with("__U") {
                    let mut inside = Reader { bytes: self.bytes.get(..end)?, ..*self };
                    let before = name.len();
                    let is_template = inside.template(name).is_some() && inside.is_at_end();
                    // What was tried in vain counts as well: such names may lie in each other.
                    self.steps = inside.steps;
                    if is_template {
                        self.at = end;
                        return Some(());
                    }
                    name.truncate(before);
                }
                // References can repeat a long name thousands of times.
                if name.len().saturating_add(text.len()) > MAX_DEMANGLED_BYTES {
                    return None;
                }
                name.push_str(match text {
                    "__ctor" => "this",
                    "__dtor" => "~this",
                    "__postblit" => "this(this)",
                    other => other,
                });
                self.at = end;
                Some(())
            }
        }
    }

    fn template(&mut self, name: &mut String) -> Option<()> {
        self.deeper(|reader| {
            if !reader.take(b"__T") && !reader.take(b"__U") {
                return None;
            }
            reader.symbol_name(name)?;
            while !reader.take(b"Z") {
                reader.step()?;
                reader.take(b"H");
                reader.template_argument()?;
            }
            name.push_str("!(…)");
            Some(())
        })
    }

    fn template_argument(&mut self) -> Option<()> {
        let kind = self.peek()?;
        self.at += 1;
        match kind {
            b'T' => self.any_type(),
            b'V' => {
                self.any_type()?;
                self.value()
            }
            b'S' => {
                // A whole symbol with its length before it, as older compilers write it, or its name.
                let mut whole = *self;
                if let Some(length) = whole.number()
                    && whole.bytes.get(whole.at..).is_some_and(|rest| rest.starts_with(b"_D"))
                {
                    self.at = whole.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
                    return Some(());
                }
                if self.take(b"_D") {
                    self.qualified_name(&mut String::new())?;
                    if self.take(b"M") {
                        self.modifiers();
                    }
                    return if self.take(b"Z") { Some(()) } else { self.any_type() };
                }
                self.qualified_name(&mut String::new())
            }
            b'X' => {
                let length = self.number()?;
                self.at = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
                Some(())
            }
            _ => None,
        }
    }

    fn value(&mut self) -> Option<()> {
        self.deeper(|reader| match reader.peek()? {
            b'n' => {
                reader.at += 1;
                Some(())
            }
            b'i' | b'N' => {
                reader.at += 1;
                reader.number().map(|_| ())
            }
            b'0'..=b'9' => reader.number().map(|_| ()),
            b'e' => {
                reader.at += 1;
                reader.real()
            }
            b'c' => {
                reader.at += 1;
                reader.real()?;
                if !reader.take(b"c") {
                    return None;
                }
                reader.real()
            }
            b'a' | b'w' | b'd' => {
                reader.at += 1;
                let length = reader.number()?;
                if !reader.take(b"_") {
                    return None;
                }
                reader.at = reader.at.checked_add(length.checked_mul(2)?).filter(|end| *end <= reader.bytes.len())?;
                Some(())
            }
            b'A' | b'S' => {
                reader.at += 1;
                let count = reader.number()?;
                // An associative array has keys before its values, which its type tells and this reader does not: both forms are tried.
                let mut plain = *reader;
                let read = |reader: &mut Self, count: usize| (0..count).try_for_each(|_| reader.value());
                if read(&mut plain, count).is_some()
                    && matches!(plain.peek(), Some(b'Z' | b'T' | b'V' | b'S' | b'X' | b'H'))
                {
                    *reader = plain;
                    return Some(());
                }
                reader.steps = plain.steps;
                read(reader, count.checked_mul(2)?)
            }
            b'f' => {
                reader.at += 1;
                if !reader.take(b"_D") {
                    return None;
                }
                reader.qualified_name(&mut String::new())?;
                if reader.take(b"M") {
                    reader.modifiers();
                }
                reader.any_type()
            }
            _ => None,
        })
    }

    fn real(&mut self) -> Option<()> {
        if self.take(b"NAN") || self.take(b"INF") || self.take(b"NINF") {
            return Some(());
        }
        self.take(b"N");
        let start = self.at;
        while self.peek().is_some_and(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F')) {
            self.at += 1;
        }
        if self.at == start || !self.take(b"P") {
            return None;
        }
        self.take(b"N");
        self.number().map(|_| ())
    }

    /// `const`, `immutable`, `inout`, `shared`.
    fn modifiers(&mut self) {
        loop {
            match (self.peek(), self.peek_second()) {
                (Some(b'x' | b'y' | b'O'), _) => self.at += 1,
                (Some(b'N'), Some(b'g')) => self.at += 2,
                _ => return,
            }
        }
    }

    fn any_type(&mut self) -> Option<()> {
        self.deeper(|reader| {
            reader.modifiers();
            let of = reader.at;
            let kind = reader.peek()?;
            if matches!(kind, b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') {
                reader.function_without_return()?;
                return reader.any_type();
            }
            reader.at += 1;
            match kind {
                b'A' | b'P' => reader.any_type(),
                b'G' => {
                    reader.number()?;
                    reader.any_type()
                }
                b'H' => {
                    reader.any_type()?;
                    reader.any_type()
                }
                b'N' => {
                    let second = reader.peek()?;
                    reader.at += 1;
                    match second {
                        b'h' => reader.any_type(),
                        b'n' => Some(()),
                        _ => None,
                    }
                }
                b'I' | b'C' | b'S' | b'E' | b'T' => reader.qualified_name(&mut String::new()),
                b'D' => {
                    reader.modifiers();
                    if reader.peek() == Some(b'Q') {
                        return reader.any_type();
                    }
                    reader.function_without_return()?;
                    reader.any_type()
                }
                b'B' => {
                    while !reader.take(b"Z") {
                        reader.parameter()?;
                    }
                    Some(())
                }
                b'Q' => {
                    let to = reader.back_reference(of)?;
                    reader.elsewhere(to, Self::any_type)
                }
                b'z' => matches!(reader.peek(), Some(b'i' | b'k')).then(|| reader.at += 1),
                b'a'..=b'w' => Some(()),
                _ => None,
            }
        })
    }

    fn function_without_return(&mut self) -> Option<()> {
        self.deeper(|reader| {
            // The calling convention.
            reader.at += 1;
            while let (Some(b'N'), Some(b'a'..=b'f' | b'i' | b'j' | b'l' | b'm')) =
                (reader.peek(), reader.peek_second())
            {
                reader.at += 2;
            }
            loop {
                match reader.peek()? {
                    b'X' | b'Y' | b'Z' => {
                        reader.at += 1;
                        return Some(());
                    }
                    _ => reader.parameter()?,
                }
            }
        })
    }

    fn parameter(&mut self) -> Option<()> {
        self.step()?;
        loop {
            match (self.peek(), self.peek_second()) {
                (Some(b'I' | b'J' | b'K' | b'L' | b'M'), _) => self.at += 1,
                (Some(b'N'), Some(b'k')) => self.at += 2,
                _ => return self.any_type(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[track_caller]
    fn check(symbol: &str, expected: Option<&str>) {
        assert_eq!(demangle(symbol).as_deref(), expected, "{symbol}");
    }

    /// Of Debian's libgphobos3, as binutils' c++filt names them, without the types of arguments.
    #[test]
    fn names_of_a_real_library_are_read() {
        check("_Dmain", Some("D main"));
        check("_D3std4file11DirIterator15__fieldPostblitMFNaNbNiNlZv", Some("std.file.DirIterator.__fieldPostblit"));
        // A function in a function, whose type has to be read to find the name behind it.
        check(
            "_D3std4conv__T7toCharsVii10TaVEQBd5ascii10LetterCasei1TiZQBrFNaNbNiNfiZ6Result4saveMFNaNbNdNiNfZSQDrQDq__TQDoVii10TaVQDji1TiZQEhFNaNbNiNfiZQCq",
            Some("std.conv.toChars!(…).toChars.Result.save"),
        );
        check(
            "_D3std8datetime8timezone13PosixTimeZone10Transition6__ctorMFNaNcNflPySQCqQCpQCjQCd6TTInfoZSQDlQDkQDeQCyQCm",
            Some("std.datetime.timezone.PosixTimeZone.Transition.this"),
        );
        check(
            "_D3std3uni__T19PackedArrayViewImplTSQBiQBh__T9BitPackedTkVmi7ZQrVmi8ZQCe5zerosMFNaNbNimmZb",
            Some("std.uni.PackedArrayViewImpl!(…).PackedArrayViewImpl.zeros"),
        );
        check(
            "_D3std12experimental9allocator10mallocator10Mallocator10deallocateMOxFNaNbNiAvZb",
            Some("std.experimental.allocator.mallocator.Mallocator.deallocate"),
        );
    }

    #[test]
    fn what_is_no_symbol_of_d_or_never_ends_is_not_read() {
        for symbol in [
            "",
            "_D",
            "_Dx",
            "_D3st",
            "_D3stdQ",
            "_D3stdQa",
            "_D3stdQBcFZv",
            "_D99999999999999999999a",
            "_D3fooFZ",
            "_D__T3foo",
            "_D4main",
        ] {
            check(symbol, None);
        }
        // References that lead back to what holds them, and types that double with each step.
        check("_D3fooFQbZv", None);
        let doubling = (0..60).fold(String::from("_D3fooFHaa"), |symbol, _| symbol + "HQdQf") + "Zv";
        let _ = demangle(&doubling);
        let deep = format!("_D3foo{}", "FP".repeat(50_000));
        check(&deep, None);
        // Names that fail as templates and refer ten times each to the one before: 10^20 readings, were vain ones free.
        let mut nested = String::from("_D06__T1a!");
        let mut last = 3;
        for _ in 0..20 {
            let at = nested.len();
            let mut body = String::from("__T1aS");
            let length_digits = 2;
            for _ in 0..10 {
                let mut distance = at + length_digits + body.len() - last;
                let mut digits = vec![char::from(b'a' + (distance % 26) as u8)];
                while distance >= 26 {
                    distance /= 26;
                    digits.push(char::from(b'A' + (distance % 26) as u8));
                }
                body.push('Q');
                body.extend(digits.iter().rev());
            }
            body.push('!');
            nested.push_str(&format!("{}{body}", body.len()));
            last = at;
        }
        let _ = demangle(&(nested + "Z"));
        let long = format!("_D20000{}{}Z", "x".repeat(20_000), "QBDOQ".repeat(9_000));
        check(&long, None);
        let symbol =
            "_D3std4conv__T7toCharsVii10TaVEQBd5ascii10LetterCasei1TiZQBrFNaNbNiNfiZ6Result4saveMFNaNbNdNiNfZv";
        for end in 0..symbol.len() {
            let _ = demangle(&symbol[..end]);
        }
    }
}
