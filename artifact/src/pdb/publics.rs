//! Public symbols: linkage names with addresses and no sizes. A stripped PDB has nothing else.

use super::addresses::Addresses;
use crate::code_ranges::Text;
use crate::symbols::{Symbol, SymbolTable, default_of_weak};
use crate::work::Work;
use pdb2::{FallibleIterator, SymbolData};
use symseal_module::Svma;

/// `S_PUB32`. (`cvinfo.h` of microsoft-pdb)
const PUBLIC: u16 = 0x110e;

/// A public symbol of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Public<'s> {
    /// Original relative address.
    pub(crate) original: u32,
    pub(crate) name: &'s [u8],
    is_function: bool,
    is_public: bool,
}

impl<'s> Public<'s> {
    /// Whether it names a function, and not data.
    pub(crate) fn is_function(&self) -> bool {
        self.is_function
    }

    /// A label of a module, which is a symbol too, but no public one.
    pub(crate) fn label(original: u32, name: &'s [u8]) -> Self {
        Self { original, name, is_function: true, is_public: false }
    }
}

/// Public symbols by original address.
pub(crate) fn publics<'s>(table: &'s pdb2::SymbolTable<'_>, addresses: &Addresses, work: &mut Work) -> Vec<Public<'s>> {
    let mut symbols = table.iter();
    let mut found = Vec::new();
    loop {
        match symbols.next() {
            Ok(Some(symbol)) => {
                if work.budget.charge(1).is_err() {
                    work.skip("symbol beyond the work limit");
                    break;
                }
                if symbol.raw_kind() != PUBLIC {
                    continue;
                }
                let Ok(SymbolData::Public(public)) = symbol.parse() else {
                    work.skip("damaged symbol in a PDB");
                    continue;
                };
                if let Some(original) = addresses.original(public.offset) {
                    let is_function = public.function || public.code;
                    found.push(Public { original, name: public.name.as_bytes(), is_function, is_public: true });
                }
            }
            Ok(None) => break,
            Err(_) => {
                work.skip("rest of a PDB's public symbols, behind a damaged one");
                break;
            }
        }
    }
    found.sort_by(|a, b| a.original.cmp(&b.original).then_with(|| a.name.cmp(b.name)));
    found
}

/// Those that lie in code, as a symbol table.
pub(crate) fn symbols<'s>(
    publics: &[Public<'s>],
    addresses: &Addresses,
    image_base: Svma,
    text: &Text,
    all: &mut Vec<Symbol<'s>>,
    work: &mut Work,
) {
    for public in publics {
        if work.budget.charge(public.name.len() as u64 + 1).is_err() {
            work.skip("symbol beyond the work limit");
            return;
        }
        let svma = addresses.image(public.original).and_then(|rva| image_base.0.checked_add(u64::from(rva)));
        let Some(svma) = svma.filter(|svma| text.clip(*svma, u64::MAX).is_some() && !public.name.is_empty()) else {
            continue;
        };
        all.push(Symbol {
            name: public.name,
            svma,
            size: 0,
            type_rank: if public.is_function { 0 } else { 2 },
            binding_rank: if public.is_public { 0 } else { 2 },
            is_compressed: false,
            is_descriptor: false,
            table: SymbolTable::Publics,
        });
    }
}

/// The public symbol that is the linkage name of a procedure of that name, among those of its address.
///
/// Identical functions share an address, so that most of its symbols are other functions'. Names in C are decorated with
/// an underscore and the size of the arguments at most; in C++ `a::b::c` becomes `?c@b@a@@` and its type. Names of
/// templates are not told apart, where the first of the symbols is as good. What stands in for a weak symbol counts as that one.
pub(crate) fn linkage_name<'s>(publics: &[Public<'s>], original: u32, name: &[u8]) -> Option<&'s [u8]> {
    let first = publics.partition_point(|public| public.original < original);
    let here = publics.get(first..).unwrap_or_default().iter().take_while(|public| public.original == original);
    let mut here = here.map(|public| default_of_weak(public.name).unwrap_or(public.name)).take(MOST_AT_ADDRESS);
    let mangled: Vec<u8> = mangled_start(name);
    here.find(|public| is_c_name(public, name) || public.starts_with(&mangled))
}

/// More symbols of one address are not looked through.
const MOST_AT_ADDRESS: usize = 256;

fn is_c_name(public: &[u8], name: &[u8]) -> bool {
    let Some(start) = public.windows(name.len().max(1)).take(2).position(|window| window == name) else { return false };
    let behind = public.get(start + name.len()..).unwrap_or_default();
    // `_name`, `_name@8` (stdcall), `@name@8` (fastcall), `name@@8` (vectorcall), `#name` (ARM64EC)
    let digits = behind.strip_prefix(b"@@").or(behind.strip_prefix(b"@")).unwrap_or(behind);
    let is_decorated = start == 0 || matches!(public.first(), Some(b'_' | b'@' | b'#'));
    is_decorated && (behind.is_empty() || (digits.len() < behind.len() && digits.iter().all(u8::is_ascii_digit)))
}

/// What the mangled name of a function starts with, up to the end of its scopes.
fn mangled_start(name: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(name);
    let mut parts = name.rsplit("::").peekable();
    let last = parts.next().unwrap_or_default();
    let mut mangled = b"?".to_vec();
    match SPECIAL_NAMES.iter().find(|(special, _)| *special == last) {
        Some((_, code)) => mangled.extend_from_slice(code.as_bytes()),
        None if parts.peek() == Some(&last) => mangled.extend_from_slice(b"?0"),
        None if last.strip_prefix('~').is_some_and(|class| parts.peek() == Some(&class)) => {
            mangled.extend_from_slice(b"?1");
        }
        None => {
            mangled.extend_from_slice(last.as_bytes());
            mangled.push(b'@');
        }
    }
    for part in parts {
        mangled.extend_from_slice(part.as_bytes());
        mangled.push(b'@');
    }
    mangled.push(b'@');
    mangled
}

/// Functions whose mangled names have a code in place of a name. (As `undname` writes them)
const SPECIAL_NAMES: [(&str, &str); 27] = [
    ("`scalar deleting destructor'", "?_G"),
    ("`vector deleting destructor'", "?_E"),
    ("operator new", "?2"),
    ("operator delete", "?3"),
    ("operator=", "?4"),
    ("operator>>", "?5"),
    ("operator<<", "?6"),
    ("operator!", "?7"),
    ("operator==", "?8"),
    ("operator!=", "?9"),
    ("operator[]", "?A"),
    ("operator->", "?C"),
    ("operator*", "?D"),
    ("operator++", "?E"),
    ("operator--", "?F"),
    ("operator-", "?G"),
    ("operator+", "?H"),
    ("operator&", "?I"),
    ("operator<", "?M"),
    ("operator<=", "?N"),
    ("operator>", "?O"),
    ("operator>=", "?P"),
    ("operator()", "?R"),
    ("operator+=", "?Y"),
    ("operator-=", "?Z"),
    ("operator new[]", "?_U"),
    ("operator delete[]", "?_V"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&'static str], procedure: &str, expected: Option<&str>) {
        let publics: Vec<Public<'_>> = names
            .iter()
            .map(|name| Public { original: 16, name: name.as_bytes(), is_function: true, is_public: true })
            .collect();
        let found = linkage_name(&publics, 16, procedure.as_bytes());
        assert_eq!(found, expected.map(str::as_bytes));
        assert_eq!(linkage_name(&publics, 17, procedure.as_bytes()), None);
    }

    #[test]
    fn a_procedure_finds_its_linkage_name_among_those_of_folded_ones() {
        check(&["?a@@YAXXZ", "?f@b@@QEAAHXZ", "?f@bb@@QEAAHXZ"], "b::f", Some("?f@b@@QEAAHXZ"));
        check(&["_other", "_name@8"], "name", Some("_name@8"));
        check(&["named", "@name@4"], "name", Some("@name@4"));
        check(&["name@@16"], "name", Some("name@@16"));
        check(&["#name"], "name", Some("#name"));
        check(&["name"], "name", Some("name"));
        check(&["_name2", "xname"], "name", None);
        check(&[".weak.other.default.x", ".weak._name.default.x"], "name", Some("_name"));
        check(&[".weak.?f@b@@QEAAHXZ.default.x"], "b::f", Some("?f@b@@QEAAHXZ"));
        check(&["??1b@@QEAA@XZ", "??0b@@QEAA@XZ"], "b::b", Some("??0b@@QEAA@XZ"));
        check(&["??0b@@QEAA@XZ", "??1b@@QEAA@XZ"], "b::~b", Some("??1b@@QEAA@XZ"));
        check(&["??_Ea@@X", "??_Ga@@X"], "a::`scalar deleting destructor'", Some("??_Ga@@X"));
        check(&["??$f@H@@YAXXZ"], "f<int>", None);
    }
}
