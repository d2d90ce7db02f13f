//! The text of `/proc/kallsyms`: the symbols of the running kernel and of its modules.
//!
//! ```text
//! ffffffff81000000 T _text
//! ffffffffc0345000 t nf_hook [nf_tables]
//! ```
//!
//! Without privilege every address is zero (`kernel.kptr_restrict`); then there are no symbols, and never wrong ones.
//! Sizes are not told: a function reaches to the next symbol of the same module.

use std::collections::HashMap;
use std::sync::Arc;

use symseal_module::Avma;

/// More symbols than any kernel has.
const MAX_SYMBOLS: usize = 1 << 23;
/// The longest name that is kept, in bytes; the kernel's own bound is 512.
const MAX_NAME_BYTES: usize = 1024;
/// How far the last function of a module is taken to reach, in bytes, as nothing tells its end.
const LAST_FUNCTION_BYTES: u64 = 4096;
/// Where the kernel half of the address space begins on every 64-bit machine that Linux runs on.
const KERNEL_HALF: u64 = 1 << 63;

/// Why there are no kernel symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KallsymsError {
    /// The kernel shows zeros instead of addresses.
    #[error("the kernel hides its addresses (kernel.kptr_restrict); root or CAP_SYSLOG sees them")]
    Hidden,
    /// No line is of the known form.
    #[error("expected lines `address type name [module]`, found none")]
    Malformed,
}

/// The functions of the running kernel by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelSymbols {
    /// By rising address, one an address.
    symbols: Vec<Symbol>,
    modules: Vec<Arc<str>>,
    /// The lowest function of the kernel and then of each module.
    bases: Vec<Avma>,
    text: Option<Avma>,
    bad_lines: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Symbol {
    address: u64,
    kind: u8,
    /// 0 is the kernel itself, others are one more than the number of a module.
    module: u32,
    name: Box<str>,
}

/// A function of the kernel that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelHit<'k> {
    /// Its name.
    pub name: &'k str,
    /// Its first address.
    pub start: Avma,
    /// The kernel module that it belongs to; `None` for the kernel itself.
    pub module: Option<&'k str>,
    /// Where the code of that module, or of the kernel, begins: its lowest function.
    pub base: Avma,
}

/// Whether `address` lies in the kernel's half of the address space.
pub fn is_kernel_address(address: Avma) -> bool {
    address.0 >= KERNEL_HALF
}

impl KernelSymbols {
    /// Reads the whole text.
    ///
    /// # Errors
    /// Where all addresses are zero, and where nothing is of the known form.
    pub fn parse(text: &[u8]) -> Result<Self, KallsymsError> {
        let mut kernel = Self::default();
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut hidden = false;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Some((address, kind, name, module)) = fields_of(line) else {
                kernel.bad_lines = kernel.bad_lines.saturating_add(1);
                continue;
            };
            // Offsets of variables of each processor, in older kernels, lie in the other half.
            if !is_kernel_address(Avma(address)) {
                hidden |= address == 0;
                continue;
            }
            if kernel.symbols.len() >= MAX_SYMBOLS {
                break;
            }
            let module = match module {
                None => 0,
                Some(module) => *numbers.entry(module).or_insert_with(|| {
                    kernel.modules.push(symseal_module::escape::escape(module).into());
                    u32::try_from(kernel.modules.len()).unwrap_or(u32::MAX)
                }),
            };
            let name = symseal_module::escape::escape(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_boxed_str();
            if module == 0 && matches!(&*name, "_text" | "_stext") {
                kernel.text = Some(kernel.text.map_or(Avma(address), |text| text.min(Avma(address))));
            }
            kernel.symbols.push(Symbol { address, kind, module, name });
        }
        if kernel.symbols.is_empty() {
            return Err(if hidden { KallsymsError::Hidden } else { KallsymsError::Malformed });
        }
        kernel.symbols.sort_by(|one, other| (one.address, one.rank()).cmp(&(other.address, other.rank())));
        kernel.symbols.dedup_by_key(|symbol| symbol.address);
        kernel.symbols.shrink_to_fit();
        kernel.bases = vec![Avma(u64::MAX); kernel.modules.len().saturating_add(1)];
        for symbol in kernel.symbols.iter().filter(|symbol| symbol.is_function()) {
            if let Some(base) = kernel.bases.get_mut(symbol.module as usize) {
                *base = Avma(symbol.address).min(*base);
            }
        }
        Ok(kernel)
    }

    /// The function that holds `address`. Its end is taken from the next symbol, so that code without a symbol behind a
    /// function is counted to it.
    pub fn find(&self, address: Avma) -> Option<KernelHit<'_>> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address.0);
        let symbol = self.symbols.get(after.checked_sub(1)?).filter(|symbol| symbol.is_function())?;
        let next = self.symbols.get(after).filter(|next| next.module == symbol.module);
        if next.is_none() && address.0.saturating_sub(symbol.address) >= LAST_FUNCTION_BYTES {
            return None;
        }
        let module = symbol.module.checked_sub(1).and_then(|number| self.modules.get(number as usize));
        let start = Avma(symbol.address);
        let base = match (symbol.module, self.text) {
            (0, Some(text)) if text <= start => text,
            (module, _) => self.bases.get(module as usize).copied().unwrap_or(start),
        };
        Some(KernelHit { name: &symbol.name, start, module: module.map(|name| &**name), base })
    }

    /// Where the kernel's own code begins (`_text`).
    pub fn text_start(&self) -> Option<Avma> {
        self.text
    }

    /// Symbols held.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Lines that were passed over.
    pub fn bad_lines(&self) -> u64 {
        self.bad_lines
    }
}

impl Symbol {
    fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W' | b'i')
    }

    /// Which of several names of one address is given: functions before data, global before weak before local, not a
    /// reserved name, the shorter one, the first by its bytes.
    fn rank(&self) -> (bool, u8, bool, usize, &str) {
        let binding = match self.kind {
            b'w' | b'W' => 1,
            kind if kind.is_ascii_uppercase() => 0,
            _ => 2,
        };
        (!self.is_function(), binding, self.name.starts_with('_'), self.name.len(), &self.name)
    }
}

/// Address, type, name and module of a line.
type Line<'l> = (u64, u8, &'l [u8], Option<&'l [u8]>);

fn fields_of(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let digits = fields.next().filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    let address = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    let [kind] = *fields.next()? else { return None };
    let rest = fields.next()?;
    let (name, module) = match rest.iter().position(|byte| *byte == b'\t') {
        None => (rest, None),
        Some(tab) => {
            let (name, module) = rest.split_at_checked(tab)?;
            (name, Some(module.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?))
        }
    };
    (!name.is_empty()).then_some((address, kind, name, module))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"\
0000000000001000 A cpu_tss_rw
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 t startup
ffffffff81000100 T do_syscall
ffffffff81000200 D table
ffffffff81000300 W weak
ffffffff81000400 T last
not a line
ffffffffc0001000 t hook\t[nf_tables]
ffffffffc0001080 t other\t[nf_tables]
";

    fn find(address: u64) -> Option<(String, Option<String>)> {
        let kernel = KernelSymbols::parse(TEXT).unwrap();
        kernel.find(Avma(address)).map(|hit| (hit.name.to_owned(), hit.module.map(str::to_owned)))
    }

    fn core(name: &str) -> Option<(String, Option<String>)> {
        Some((name.to_owned(), None))
    }

    #[test]
    fn a_function_reaches_to_the_next_symbol() {
        assert_eq!(find(0xffff_ffff_8100_0000), core("_text"), "the shorter one of two global names");
        assert_eq!(find(0xffff_ffff_8100_01ff), core("do_syscall"));
        assert_eq!(find(0xffff_ffff_8100_0210), None, "data is no function");
        assert_eq!(find(0xffff_ffff_8100_0310), core("weak"));
        assert_eq!(find(0x1000), None);
    }

    #[test]
    fn modules_have_their_own_functions_and_the_last_one_ends() {
        assert_eq!(find(0xffff_ffff_c000_1010), Some(("hook".into(), Some("nf_tables".into()))));
        assert_eq!(find(0xffff_ffff_c000_1fff), Some(("other".into(), Some("nf_tables".into()))));
        let kernel = KernelSymbols::parse(TEXT).unwrap();
        assert_eq!(kernel.find(Avma(0xffff_ffff_c000_1080)).unwrap().base, Avma(0xffff_ffff_c000_1000));
        assert_eq!(kernel.find(Avma(0xffff_ffff_8100_0310)).unwrap().base, Avma(0xffff_ffff_8100_0000));
        assert_eq!(find(0xffff_ffff_c000_2080), None, "nobody says how far the last one reaches");
        assert_eq!(find(0xffff_ffff_9000_0000), None, "nor the kernel's last one before the modules");
    }

    #[test]
    fn addresses_that_are_hidden_give_the_reason_and_no_name() {
        let hidden = b"0000000000000000 T _text\n0000000000000000 T do_syscall\n";
        assert_eq!(KernelSymbols::parse(hidden), Err(KallsymsError::Hidden));
        assert_eq!(KernelSymbols::parse(b""), Err(KallsymsError::Malformed));
        assert_eq!(KernelSymbols::parse(b"hello\n"), Err(KallsymsError::Malformed));
    }

    #[test]
    fn the_start_of_the_code_and_bad_lines_are_told() {
        let kernel = KernelSymbols::parse(TEXT).unwrap();
        assert_eq!((kernel.text_start(), kernel.bad_lines()), (Some(Avma(0xffff_ffff_8100_0000)), 1));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(edits in prop::collection::vec((0..TEXT.len(), any::<u8>()), 0..6)) {
            let mut text = TEXT.to_vec();
            for (at, byte) in edits {
                text[at] = byte;
            }
            if let Ok(kernel) = KernelSymbols::parse(&text) {
                let _ = kernel.find(Avma(0xffff_ffff_8100_0000));
            }
        }
    }
}
