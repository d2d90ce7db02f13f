//! What shows that two files of one debug id are of different builds, although neither repeats the other: they have different
//! functions at one address, or one function at different addresses. What only one of them knows contradicts nothing, as one may
//! have been stripped.

use std::collections::BTreeSet;

use symseal_artifact::{FunctionSymbol, PdbFile, ReleaseFile, escaped};
use symseal_bundle::{FileRole, LayoutDir};
use symseal_module::Svma;

use super::Part;
use crate::error::BuildError;
use crate::report::Conflict;

/// What the one file says, and what the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) expected: String,
    pub(super) found: String,
}

impl Contradiction {
    pub(super) fn told(&self) -> String {
        format!("the one has {}, the other {}", self.expected, self.found)
    }

    /// The conflict of the two files, in the order of their places: what the first one has comes first.
    pub(super) fn conflict(self, id: String, role: FileRole, one: Part<'_>, other: Part<'_>) -> Conflict {
        let (one, other) = (&one.file.place, &other.file.place);
        let is_in_order = one <= other;
        let Self { expected, found } = self;
        let (first, second) = if is_in_order { (one, other) } else { (other, one) };
        let (expected, found) = if is_in_order { (expected, found) } else { (found, expected) };
        let difference = Self { expected, found }.told();
        Conflict { id, role, first: first.clone(), second: second.clone(), difference }
    }
}

/// Reads both files and compares what their symbol tables say of functions; of program databases that say as much also the names of
/// their modules.
pub(super) fn contradiction(
    one: Part<'_>,
    other: Part<'_>,
    layout: Option<&LayoutDir>,
) -> Result<Option<Contradiction>, BuildError> {
    // A program database counts from the image's base, and a binary does not.
    if one.pdb().is_some() != other.pdb().is_some() {
        return Ok(None);
    }
    let (first, second) = (Said::of(one, layout)?, Said::of(other, layout)?);
    if one.tells() == other.tells() && !first.modules.is_empty() && !second.modules.is_empty() {
        let only = |of: &Said, without: &Said| of.modules.difference(&without.modules).next().cloned();
        let (only_first, only_second) = (only(&first, &second), only(&second, &first));
        if only_first.is_some() || only_second.is_some() {
            let told =
                |only: Option<String>| only.map_or("no other module".to_owned(), |name| format!("the module {name}"));
            return Ok(Some(Contradiction { expected: told(only_first), found: told(only_second) }));
        }
    }
    Ok(between(&first.functions, &second.functions))
}

/// What a file says of its build.
#[derive(Debug, Default)]
struct Said {
    functions: Functions,
    /// Of a program database.
    modules: BTreeSet<String>,
}

impl Said {
    fn of(part: Part<'_>, layout: Option<&LayoutDir>) -> Result<Self, BuildError> {
        let bytes = part.file.read(layout)?;
        let error = |source| BuildError::Artifact { place: part.file.place.clone(), source };
        Ok(match ReleaseFile::parse(&bytes).map_err(error)? {
            ReleaseFile::Object(object) => Self::functions(object.function_symbols()),
            ReleaseFile::Fat(slices) => {
                let slice = slices.into_iter().nth(part.slice);
                slice.map(|slice| Self::functions(slice.function_symbols())).unwrap_or_default()
            }
            ReleaseFile::Pdb(pdb) => Self::of_database(&pdb).map_err(error)?,
            ReleaseFile::PortablePdb(_) => Self::default(),
        })
    }

    fn of_database(pdb: &PdbFile<'_>) -> Result<Self, symseal_artifact::ArtifactError> {
        let modules = pdb.module_names()?.iter().map(|name| escaped(name.as_bytes()).into_owned()).collect();
        Ok(Self { modules, ..Self::functions(pdb.public_functions()?) })
    }

    fn functions(symbols: Vec<FunctionSymbol<'_>>) -> Self {
        Self { functions: Functions::new(symbols), modules: BTreeSet::new() }
    }
}

/// One function: where it starts, what it is called, its size in bytes (0 = unknown).
type Function = (Svma, Vec<u8>, u64);

/// Functions by address, name and size, each once.
#[derive(Debug, Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn new(symbols: Vec<FunctionSymbol<'_>>) -> Self {
        let mut all: Vec<Function> =
            symbols.into_iter().map(|symbol| (symbol.svma, symbol.name.into_owned(), symbol.size)).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// The same by name.
    fn by_name(&self) -> Vec<&Function> {
        let mut all: Vec<&Function> = self.0.iter().collect();
        all.sort_unstable_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
        all
    }
}

fn between(first: &Functions, second: &Functions) -> Option<Contradiction> {
    let agree = |one: &Function, other: &Function| one.1 == other.1 && (one.2 == other.2 || one.2 == 0 || other.2 == 0);
    let (by_address, others) = (first.0.iter().collect::<Vec<_>>(), second.0.iter().collect::<Vec<_>>());
    apart(&by_address, &others, |function| function.0, agree).or_else(|| {
        let (by_name, others) = (first.by_name(), second.by_name());
        apart(&by_name, &others, |function| function.1.as_slice(), |one, other| one.0 == other.0)
    })
}

/// Pairs of symbols that are compared under one key. Code that a linker folded has thousands of names, of which nothing is told then.
const MOST_PAIRS: usize = 4096;

/// The first key that both have, where none of what the one has of it agrees with anything that the other has. Both are in the order of
/// their keys.
fn apart<'f, K: Ord>(
    first: &[&'f Function],
    second: &[&'f Function],
    key: impl Fn(&'f Function) -> K,
    agree: impl Fn(&Function, &Function) -> bool,
) -> Option<Contradiction> {
    let same = |one: &&'f Function, other: &&'f Function| key(one) == key(other);
    let (mut firsts, mut seconds) = (first.chunk_by(same).peekable(), second.chunk_by(same).peekable());
    while let (Some(ones), Some(others)) = (firsts.peek(), seconds.peek()) {
        let (one, other) = (*ones.first()?, *others.first()?);
        let order = key(one).cmp(&key(other));
        let is_known = order.is_ne()
            || ones.len().saturating_mul(others.len()) > MOST_PAIRS
            || ones.iter().any(|one| others.iter().any(|other| agree(one, other)));
        if !is_known {
            return Some(Contradiction { expected: told(one), found: told(other) });
        }
        if order.is_le() {
            firsts.next();
        }
        if order.is_ge() {
            seconds.next();
        }
    }
    None
}

fn told((svma, name, size): &Function) -> String {
    let size = if *size == 0 { String::new() } else { format!(", {size:#x} bytes") };
    format!("{} at {:#x}{size}", escaped(name), svma.0)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    type Given<'g> = &'g [(u64, &'g str, u64)];

    #[track_caller]
    fn check(first: Given<'_>, second: Given<'_>, expected: Option<(&str, &str)>) {
        let functions = |given: Given<'_>| {
            let symbols = given.iter().map(|(svma, name, size)| FunctionSymbol {
                svma: Svma(*svma),
                size: *size,
                name: Cow::Owned(name.as_bytes().to_vec()),
            });
            Functions::new(symbols.collect())
        };
        let expected =
            expected.map(|(expected, found)| Contradiction { expected: expected.to_owned(), found: found.to_owned() });
        assert_eq!(between(&functions(first), &functions(second)), expected, "{first:?} {second:?}");
    }

    #[test]
    fn what_only_one_file_names_contradicts_nothing() {
        let all: Given<'_> = &[(16, "a", 8), (16, "alias", 8), (32, "b", 8), (32, "local", 4), (64, "local", 4)];
        check(all, all, None);
        check(all, &[], None);
        check(all, &[(16, "alias", 8), (64, "local", 0)], None);
        check(all, &[(48, "c", 8)], None);
    }

    #[test]
    fn another_name_another_size_or_another_place_is_another_build() {
        let all: Given<'_> = &[(16, "a", 8), (32, "b", 8)];
        check(all, &[(16, "x", 8)], Some(("a at 0x10, 0x8 bytes", "x at 0x10, 0x8 bytes")));
        check(all, &[(16, "a", 9)], Some(("a at 0x10, 0x8 bytes", "a at 0x10, 0x9 bytes")));
        check(all, &[(40, "b", 8)], Some(("b at 0x20, 0x8 bytes", "b at 0x28, 0x8 bytes")));
        check(all, &[(32, "a", 0), (48, "b", 0)], Some(("b at 0x20, 0x8 bytes", "a at 0x20")));
    }
}
