//! What a reader of a bundle learns: the paths, names and contents that go out with it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use symseal_symx::{Name, Table};

use crate::bundle::{Bundle, BundleError};
use crate::digest::Digest;
use crate::index::{DebugInfo, FileRole};
use crate::sources::{self, Sources, SourcesError};

/// Parts of a path that make a prefix under which paths are counted.
const PREFIX_PARTS: usize = 3;

/// What a reader of a bundle learns. Serialized as what `symseal bundle inspect --disclosure --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disclosure {
    /// The bundle; none for a pulled directory.
    pub bundle: Option<Digest>,
    /// The release's name and version.
    pub release: (String, String),
    /// Base names of the files that it was made from.
    pub inputs: BTreeSet<String>,
    /// Records of functions in all symbol tables.
    pub functions: u64,
    /// How many different names and symbols functions have in all symbol tables, inlined ones included.
    pub function_names: u64,
    /// How many different source files there are in all symbol tables.
    pub source_paths: u64,
    /// Those names and symbols.
    pub names: BTreeSet<String>,
    /// The paths of those source files.
    pub paths: BTreeSet<String>,
    /// Those paths by the directories that they begin with (three parts at most), the most frequent first.
    pub source_directories: Vec<DirectoryCount>,
    /// Directories in which compilers and linkers were run, by the debug information of the stored files.
    pub compile_directories: BTreeSet<String>,
    /// Other paths of the machines that built or linked, in the stored files: of program databases in PE files, of object files and
    /// sources in the debug maps of Mach-O files, of object files, libraries and compilers in program databases.
    pub build_paths: BTreeSet<String>,
    /// Command lines of compilers and linkers: in program databases, and options that compilers record in DWARF.
    pub command_lines: BTreeSet<String>,
    /// What else the stored files tell of the build.
    #[serde(flatten)]
    pub traces: BuildTraces,
    /// Home directories of users in all those paths, with how many different ones lie in each.
    pub homes: Vec<DirectoryCount>,
    /// What the stored files hold.
    pub files: StoredFiles,
    /// The sources of the release.
    pub sources: Option<AttachedSources>,
}

/// What stored files tell of the build beside names and paths of functions. Of one file no more texts are kept than four times its bytes; what was
/// left out is in `not_read`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BuildTraces {
    /// Compilers, by their own words (`DW_AT_producer`).
    pub producers: BTreeSet<String>,
    /// Files and directories that line tables, units of DWARF and modules of program databases name, whether or not code comes of them.
    pub debug_paths: BTreeSet<String>,
    /// Where the loader looks for libraries.
    pub run_paths: BTreeSet<String>,
    /// Macros, with what they stand for.
    pub macros: BTreeSet<String>,
    /// Source files whose whole text is in a stored file, and its bytes.
    pub embedded_sources: BTreeMap<String, u64>,
    /// Modules and settings by Go's record of the build.
    pub build_settings: BTreeSet<String>,
    /// Named streams of program databases, and the bytes of the largest of each name.
    pub streams: BTreeMap<String, u64>,
    /// Where sources are fetched from (Source Link), as it stands.
    pub source_links: BTreeSet<String>,
    /// What of these kinds is there and was not read.
    pub not_read: BTreeSet<String>,
}

impl BuildTraces {
    /// Adds what another file tells.
    pub fn absorb(&mut self, other: Self) {
        self.producers.extend(other.producers);
        self.debug_paths.extend(other.debug_paths);
        self.run_paths.extend(other.run_paths);
        self.macros.extend(other.macros);
        self.build_settings.extend(other.build_settings);
        self.source_links.extend(other.source_links);
        self.not_read.extend(other.not_read);
        for (into, from) in [(&mut self.embedded_sources, other.embedded_sources), (&mut self.streams, other.streams)] {
            for (name, bytes) in from {
                let known = into.entry(name).or_default();
                *known = bytes.max(*known);
            }
        }
    }
}

/// A directory, and how many paths begin with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DirectoryCount {
    /// The directory.
    pub directory: String,
    /// Paths.
    pub paths: u64,
}

/// What the stored files hold: counts of modules, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoredFiles {
    /// Modules of the release.
    pub modules: u64,
    /// Modules whose code is in the bundle.
    pub executables: u64,
    /// Bytes of files with code.
    pub executable_bytes: u64,
    /// Modules whose debug file is in the bundle with types, variables and their names.
    pub full_debug_info: u64,
    /// Modules whose debug file is in the bundle with lines but without types and variables.
    pub line_tables: u64,
    /// Bytes of debug files.
    pub debug_bytes: u64,
}

/// Sources that the bundle names. They are an artifact of their own, so a reader of the bundle learns their digest, and the rest
/// only with the permission to read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttachedSources {
    /// What the bundle's index names: the digest of their manifest, or of an image index over several.
    pub digest: Digest,
    /// What they hold, where there are several in all of them; none where they do not lie beside the bundle.
    pub statistics: Option<sources::SourcesStatistics>,
    /// The paths by which their files are found; none where they do not lie beside the bundle.
    pub paths: Option<BTreeSet<String>>,
}

/// Paths that a stored file names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedPaths {
    /// Directories in which compilers were run.
    pub compile_directories: BTreeSet<String>,
    /// Other paths of the machines that built or linked it.
    pub build_paths: BTreeSet<String>,
    /// Command lines of compilers and linkers.
    pub command_lines: BTreeSet<String>,
    /// What else it tells of the build.
    pub traces: BuildTraces,
}

/// Why it cannot be said what a bundle discloses.
#[derive(Debug, thiserror::Error)]
pub enum DisclosureError {
    /// A file of the bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The sources.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// A symbol table that cannot be read.
    #[error("{path}: {problem}")]
    Table {
        /// Its title.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

/// Reads every symbol table, debug file and executable of a bundle. `named_paths` reads what a debug file or binary names (the
/// object formats are another room's).
pub fn disclosure(bundle: &Bundle, named_paths: &dyn Fn(&[u8]) -> NamedPaths) -> Result<Disclosure, DisclosureError> {
    let index = bundle.index();
    let mut inputs = BTreeSet::new();
    let mut files = StoredFiles::default();
    let (mut names, mut paths, mut directories) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut build_paths, mut command_lines) = (BTreeSet::new(), BTreeSet::new());
    let mut traces = BuildTraces::default();
    let mut functions = 0_u64;
    for (_, _, module) in index.modules() {
        inputs.extend(module.inputs.iter().map(|input| input.name.clone()));
        files.modules += 1;
        files.executables += u64::from(module.file(FileRole::Executable).is_some());
        if module.files.iter().any(|file| matches!(file.role, FileRole::Debuginfo | FileRole::SplitDwarf)) {
            files.full_debug_info += u64::from(module.debug_info == DebugInfo::Full);
            files.line_tables += u64::from(module.debug_info == DebugInfo::LineTables);
        }
        // An unstripped binary is one file in two roles.
        let (mut read, mut counted_files): (BTreeSet<Digest>, BTreeSet<Digest>) = Default::default();
        for file in &module.files {
            match file.role {
                FileRole::Executable => files.executable_bytes = files.executable_bytes.saturating_add(file.size),
                // One that has several titles is one file.
                FileRole::Debuginfo | FileRole::SplitDwarf if counted_files.insert(file.sha256) => {
                    files.debug_bytes = files.debug_bytes.saturating_add(file.size);
                }
                FileRole::SymbolTable => {
                    let bytes = bundle.read(file)?;
                    let problem = |problem: String| DisclosureError::Table { path: file.path.clone(), problem };
                    let table = Table::open(&bytes).map_err(|error| problem(error.to_string()))?;
                    table.verify().map_err(|error| problem(error.to_string()))?;
                    functions = functions.saturating_add(table.counts().functions);
                    read_table(&table, &mut names, &mut paths);
                }
                _ => {}
            }
            if matches!(file.role, FileRole::Executable | FileRole::Debuginfo | FileRole::SplitDwarf)
                && read.insert(file.sha256)
            {
                let named = named_paths(&bundle.read(file)?);
                directories.extend(named.compile_directories);
                build_paths.extend(named.build_paths);
                command_lines.extend(named.command_lines);
                traces.absorb(named.traces);
            }
        }
    }
    let sources = match index.sources {
        None => None,
        Some(digest) => {
            let is_here = bundle.layout().is_some_and(|layout| layout.has(&digest));
            let opened = if is_here { Some(Sources::of(bundle)?) } else { None };
            let statistics = opened.as_ref().map(|all| sources::SourcesStatistics::of(all.iter().map(Sources::table)));
            let tables = opened.as_ref().map(|all| all.iter().map(Sources::table));
            let paths = tables.map(|all| all.flat_map(|table| &table.files).map(|file| file.path.clone()).collect());
            Some(AttachedSources { digest, statistics, paths })
        }
    };
    Ok(Disclosure {
        bundle: bundle.digest(),
        release: (index.name.clone(), index.version.clone()),
        inputs,
        functions,
        source_directories: counted(paths.iter().map(|path| prefix(path))),
        homes: homes([&paths, &directories, &build_paths, &traces.debug_paths, &traces.run_paths], &traces),
        function_names: names.len() as u64,
        source_paths: paths.len() as u64,
        names,
        paths,
        compile_directories: directories,
        build_paths,
        command_lines,
        traces,
        files,
        sources,
    })
}

/// Names and paths of a table: those of its functions, and of every frame of its rows.
fn read_table(table: &Table<'_>, names: &mut BTreeSet<String>, paths: &mut BTreeSet<String>) {
    // Names by where they lie in the table: each is put together once.
    let (mut own_names, mut own_paths) = (BTreeMap::new(), BTreeSet::new());
    let mut see = |name: Name<'_>| {
        own_names.entry(name.place()).or_insert_with(|| name.text().into_owned());
    };
    for function in table.functions() {
        [function.name, function.symbol].into_iter().chain(function.aliases()).for_each(&mut see);
        own_paths.insert(function.file);
    }
    for row in table.rows() {
        for frame in row.frames() {
            [frame.function, frame.symbol].into_iter().for_each(&mut see);
            own_paths.insert(frame.file);
        }
    }
    names.extend(own_names.into_values().filter(|text| !text.is_empty()));
    paths.extend(own_paths.into_iter().filter(|text: &&str| !text.is_empty()).map(str::to_owned));
}

/// The directory that a path begins with.
fn prefix(path: &str) -> String {
    let parts: Vec<&str> = sources::path::parts(path).collect();
    let directories = parts.len().saturating_sub(1).min(PREFIX_PARTS);
    rooted(path, parts.get(..directories).unwrap_or_default())
}

/// The home directory that an absolute path lies in, by the customs of the platforms: `/home/NAME`, `/Users/NAME`,
/// `C:\Users\NAME`, `/root`, and those below another directory, such as `/var/home/NAME` and `/export/home/NAME`.
pub fn home(path: &str) -> Option<String> {
    if !sources::path::is_absolute(path) {
        return None;
    }
    let parts: Vec<&str> = sources::path::parts(path).collect();
    let is = |at: usize, names: &[&str]| {
        parts.get(at).is_some_and(|part| names.iter().any(|name| part.eq_ignore_ascii_case(name)))
    };
    let end = if sources::path::is_windows(path) {
        (is(1, &["Users", "Documents and Settings"]) && !is(2, &["Public", "All Users", "Default"])).then_some(3)
    } else if is(0, &["root"]) {
        Some(1)
    } else if is(0, &["home"]) || is(0, &["Users"]) && !is(1, &["Shared"]) {
        Some(2)
    } else {
        (is(0, &["var", "export", "usr", "mnt", "data"]) && is(1, &["home"])).then_some(3)
    };
    Some(rooted(path, parts.get(..end?)?))
}

/// Home directories with how many paths of these lists, and of the embedded sources, lie in each. A path of several lists is one.
fn homes(lists: [&BTreeSet<String>; 5], traces: &BuildTraces) -> Vec<DirectoryCount> {
    let all = lists.into_iter().flatten().chain(traces.embedded_sources.keys());
    let inside: BTreeMap<&String, String> = all.filter_map(|path| Some((path, home(path)?))).collect();
    counted(inside.into_values())
}

/// Parts in the form of the path that they come from.
fn rooted(path: &str, parts: &[&str]) -> String {
    let windows = sources::path::is_windows(path);
    let start = match (sources::path::is_absolute(path), windows) {
        (true, true) if path.starts_with("\\\\") => "\\\\",
        (true, true) if path.starts_with('\\') => "\\",
        (true, false) => "/",
        (false, _) if parts.is_empty() => ".",
        _ => "",
    };
    format!("{start}{}", parts.join(if windows { "\\" } else { "/" }))
}

fn counted(directories: impl Iterator<Item = String>) -> Vec<DirectoryCount> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for directory in directories {
        *counts.entry(directory).or_default() += 1;
    }
    let mut counts: Vec<DirectoryCount> =
        counts.into_iter().map(|(directory, paths)| DirectoryCount { directory, paths }).collect();
    // Stable: directories with one count stay in their order.
    counts.sort_by_key(|count| std::cmp::Reverse(count.paths));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_directories_of_every_platform_are_known() {
        for (path, expected) in [
            ("/home/ann/src/a.c", Some("/home/ann")),
            ("/Users/ann/a.m", Some("/Users/ann")),
            ("C:\\Users\\Ann\\src\\a.cpp", Some("C:\\Users\\Ann")),
            ("d:/users/ann/a.c", Some("d:\\users\\ann")),
            ("/root/build/a.c", Some("/root")),
            ("/var/home/ann/x", Some("/var/home/ann")),
            ("/Users/Shared/a.c", None),
            ("C:\\Users\\Public\\a.c", None),
            ("/usr/src/home/a.c", None),
            ("home/ann/a.c", None),
            ("/home", None),
            ("/build/ann/a.c", None),
        ] {
            assert_eq!(home(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn paths_are_counted_by_the_directories_that_they_begin_with() {
        for (path, expected) in [
            ("/usr/include/x86_64-linux-gnu/bits/a.h", "/usr/include/x86_64-linux-gnu"),
            ("/a.c", "/"),
            ("src/a.c", "src"),
            ("a.c", "."),
            ("C:\\src\\a\\b\\c.c", "C:\\src\\a"),
            ("\\\\server\\share\\a.c", "\\\\server\\share"),
        ] {
            assert_eq!(prefix(path), expected, "{path}");
        }
        let counts = counted(["b", "a", "b", "c"].into_iter().map(str::to_owned));
        let counts: Vec<(&str, u64)> = counts.iter().map(|count| (count.directory.as_str(), count.paths)).collect();
        assert_eq!(counts, [("b", 2), ("a", 1), ("c", 1)]);
    }
}
