//! From a path of a line table to the places below the given directories where the file may lie. Text alone: nothing is
//! asked of the file system here.

use std::fmt;
use std::str::FromStr;

use symseal_bundle::sources::path;

/// Where the files of a directory in the line tables are found: `FROM=TO`, a compiler's `-ffile-prefix-map` reversed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMap {
    from: String,
    to: String,
}

/// A text that is no `FROM=TO`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected FROM=TO, found {found:?}")]
pub struct ParseSourceMapError {
    /// The text.
    pub found: String,
}

impl SourceMap {
    /// `from`: the leading parts of paths in line tables, of Unix or of Windows. `to`: what stands in their place, relative to
    /// each directory of sources, or absolute and in one.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into() }
    }
}

impl FromStr for SourceMap {
    type Err = ParseSourceMapError;

    /// The last `=` divides, as in rustc's `--remap-path-prefix`.
    fn from_str(text: &str) -> Result<Self, ParseSourceMapError> {
        match text.rsplit_once('=') {
            Some((from, to)) if !from.is_empty() => Ok(Self::new(from, to)),
            _ => Err(ParseSourceMapError { found: text.to_owned() }),
        }
    }
}

impl fmt::Display for SourceMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.from.escape_debug(), self.to.escape_debug())
    }
}

/// A path as its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    absolute: bool,
    windows: bool,
    /// Without `.`; `..` only at the beginning of a relative path.
    parts: Vec<String>,
}

/// A place where a file may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Below which directory of sources.
    pub(super) root: usize,
    /// The way from there, without `.` and `..`.
    pub(super) parts: Vec<String>,
    /// From which of the parts on letters count without case.
    pub(super) any_case_from: Option<usize>,
}

/// The directories and maps, ready to be asked.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The absolute texts of each directory: as it was given, and as it resolves.
    roots: Vec<Vec<Parts>>,
    maps: Vec<(Parts, Parts)>,
}

impl Lookup {
    pub(super) fn new(roots: Vec<Vec<String>>, maps: &[SourceMap]) -> Self {
        Self {
            roots: roots.iter().map(|texts| texts.iter().map(|text| Parts::of(text)).collect()).collect(),
            maps: maps.iter().map(|map| (Parts::of(&map.from), Parts::of(&map.to))).collect(),
        }
    }

    /// The first map that leads to an absolute path of which no directory is a part, nor the other way round, or out of each of them by `..`:
    /// whatever it is applied to lies in none.
    pub(super) fn outside(&self) -> Option<usize> {
        let meets = |to: &Parts| {
            let mut roots = self.roots.iter().flatten();
            roots.any(|root| to.below(root).is_some() || root.below(to).is_some())
        };
        let climbs = |to: &Parts| to.parts.first().is_some_and(|part| part == "..");
        self.maps.iter().position(|(_, to)| if to.absolute { !meets(to) } else { climbs(to) })
    }

    /// Where to look, in this order.
    pub(super) fn candidates(&self, path: &str) -> Vec<Candidate> {
        let wanted = Parts::of(path);
        // The most parts, then the last one: `max_by_key` keeps the last of equals.
        let map = self
            .maps
            .iter()
            .filter_map(|(from, to)| Some((from, to, wanted.below(from)?)))
            .max_by_key(|(from, ..)| from.parts.len());
        match map {
            Some((from, to, rest)) => {
                let mapped = Parts::normalized(
                    to.absolute,
                    to.windows,
                    to.parts.iter().map(String::as_str).chain(rest.iter().map(String::as_str)),
                );
                let mut found = if mapped.absolute { self.within(&mapped) } else { self.below_each(&mapped.parts) };
                // Windows paths come in the letters of whoever wrote them. What `TO` says is as it is.
                for candidate in found.iter_mut().filter(|_| from.windows) {
                    candidate.any_case_from = candidate.parts.len().checked_sub(rest.len());
                }
                found
            }
            None => {
                let within = if wanted.absolute { self.within(&wanted) } else { Vec::new() };
                if !within.is_empty() {
                    return within;
                }
                // A drive says which file system, as `/` does: below a directory of sources there is none.
                let drive = usize::from(wanted.windows && wanted.parts.first().is_some_and(|part| part.ends_with(':')));
                self.below_each(wanted.parts.get(drive..).unwrap_or_default())
            }
        }
    }

    /// An absolute path, in the directories that hold it.
    fn within(&self, wanted: &Parts) -> Vec<Candidate> {
        let rest = |texts: &Vec<Parts>| texts.iter().find_map(|text| wanted.below(text)).map(<[String]>::to_vec);
        let found = self.roots.iter().enumerate();
        found
            .filter_map(|(root, texts)| Some(Candidate { root, parts: rest(texts)?, any_case_from: None }))
            .filter(is_a_way)
            .collect()
    }

    fn below_each(&self, parts: &[String]) -> Vec<Candidate> {
        let all = 0..self.roots.len();
        all.map(|root| Candidate { root, parts: parts.to_vec(), any_case_from: None }).filter(is_a_way).collect()
    }
}

/// Whether a candidate names something below its directory.
fn is_a_way(candidate: &Candidate) -> bool {
    !candidate.parts.is_empty() && candidate.parts.iter().all(|part| part != "..")
}

impl Parts {
    fn of(path: &str) -> Self {
        Self::normalized(path::is_absolute(path), path::is_windows(path), path::parts(path))
    }

    fn normalized<'p>(absolute: bool, windows: bool, parts: impl Iterator<Item = &'p str>) -> Self {
        let mut kept: Vec<String> = Vec::new();
        for part in parts {
            match (part, kept.last().map(String::as_str)) {
                ("..", None) if absolute => {}
                ("..", Some(last)) if last != ".." => {
                    kept.pop();
                }
                _ => kept.push(part.to_owned()),
            }
        }
        Self { absolute, windows, parts: kept }
    }

    /// What follows `start`, where this path begins with it. Windows ignores case.
    fn below(&self, start: &Self) -> Option<&[String]> {
        let (head, rest) = self.parts.split_at_checked(start.parts.len())?;
        let windows = self.windows || start.windows;
        let same = |(a, b): (&String, &String)| if windows { a.eq_ignore_ascii_case(b) } else { a == b };
        (self.absolute == start.absolute && head.iter().zip(&start.parts).all(same)).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of `path` with the directories `/srv/app` (which resolves to `/data/app`) and `/usr/src`.
    #[track_caller]
    fn check(maps: &[&str], path: &str, expected: &[(usize, &str)]) {
        let maps: Vec<SourceMap> = maps.iter().map(|map| map.parse().unwrap()).collect();
        let roots = vec![vec!["/srv/app".to_owned(), "/data/app".to_owned()], vec!["/usr/src".to_owned()]];
        let found = Lookup::new(roots, &maps).candidates(path);
        let found: Vec<(usize, String)> = found.into_iter().map(|found| (found.root, found.parts.join("/"))).collect();
        let expected: Vec<(usize, String)> = expected.iter().map(|(root, path)| (*root, (*path).to_owned())).collect();
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn without_a_map_a_path_is_looked_up_where_it_lies_or_below_each_directory() {
        check(&[], "/srv/app/src/a.c", &[(0, "src/a.c")]);
        check(&[], "/data/app/./src//a.c", &[(0, "src/a.c")]);
        check(&[], "/usr/src/a.c", &[(1, "a.c")]);
        check(&[], "/srv/application/a.c", &[(0, "srv/application/a.c"), (1, "srv/application/a.c")]);
        check(&[], "src/a.c", &[(0, "src/a.c"), (1, "src/a.c")]);
        check(&[], "C:\\src\\a.c", &[(0, "src/a.c"), (1, "src/a.c")]);
        check(&[], "/srv/app", &[(0, "srv/app"), (1, "srv/app")]);
        check(&[], "/", &[]);
    }

    #[test]
    fn nothing_leads_above_a_directory() {
        check(&[], "../a.c", &[]);
        check(&[], "x/../../a.c", &[]);
        check(&[], "/srv/app/../../etc/passwd", &[(0, "etc/passwd"), (1, "etc/passwd")]);
        check(&[], "/../../etc/passwd", &[(0, "etc/passwd"), (1, "etc/passwd")]);
        check(&["/build=../.."], "/build/etc/passwd", &[]);
        check(&["/build=/etc"], "/build/passwd", &[]);
        check(&["/build=/srv/app"], "/build/../etc/passwd", &[(0, "etc/passwd"), (1, "etc/passwd")]);
        check(&["C:\\b=."], "C:\\b\\..\\..\\x.c", &[(0, "x.c"), (1, "x.c")]);
    }

    #[test]
    fn a_map_that_leads_out_of_every_directory_is_told() {
        let outside = |to: &str| {
            let lookup = Lookup::new(vec![vec!["/srv/app".to_owned()]], &[SourceMap::new("/build", to)]);
            lookup.outside().is_some()
        };
        assert!(["/etc", "..", "../other", "x/../../y"].into_iter().all(outside));
        assert!(!["", ".", "x", "x/..", "/srv/app/x", "/srv", "/"].into_iter().any(outside));
    }

    #[test]
    fn the_map_with_the_most_parts_counts_then_the_last_one() {
        let maps = ["/build=first", "/build/gen=out/gen", "/build=.", "rel=x", "C:\\Work=win", "/abs=/usr/src/abs"];
        check(&maps, "/build/a.c", &[(0, "a.c"), (1, "a.c")]);
        check(&maps, "/build/gen/a.c", &[(0, "out/gen/a.c"), (1, "out/gen/a.c")]);
        check(&maps, "/builder/a.c", &[(0, "builder/a.c"), (1, "builder/a.c")]);
        check(&maps, "rel/a.c", &[(0, "x/a.c"), (1, "x/a.c")]);
        check(&maps, "c:\\work\\Sub\\a.c", &[(0, "win/Sub/a.c"), (1, "win/Sub/a.c")]);
        check(&maps, "c:/WORK/a.c", &[(0, "win/a.c"), (1, "win/a.c")]);
        check(&maps, "/abs/a.c", &[(1, "abs/a.c")]);
        assert!("nothing".parse::<SourceMap>().is_err() && "=x".parse::<SourceMap>().is_err());
        assert_eq!("a=b=c".parse(), Ok(SourceMap::new("a=b", "c")));
        assert_eq!("/b=".parse(), Ok(SourceMap::new("/b", "")));
    }
}
