//! From the paths that were given to the files that they hold.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::Exclude;
use super::file::base_name;
use crate::error::{BuildError, io_error, place_of};

/// A file to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    /// Named by the user, not found in a directory: then anything unsuitable is an error.
    pub(crate) named: bool,
    /// Bytes, as far as the directory says.
    pub(crate) size: u64,
    /// It is a directory that holds an OCI image layout.
    pub(crate) is_layout: bool,
}

/// What the walk found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// By path, each path once.
    pub(crate) candidates: Vec<Candidate>,
    /// Symbolic links in directories.
    pub(crate) links: u64,
    /// Their names, by the paths of the candidates that they lead to.
    pub(crate) link_names: Vec<(PathBuf, String)>,
    /// Devices, pipes and sockets in directories.
    pub(crate) special: u64,
    /// The pattern by which each file or directory was left out.
    pub(crate) excluded: Vec<String>,
}

/// Every file at or below `paths`, except below `output`, where this build writes, and what `exclude` leaves out.
///
/// Links in directories are not followed: what they lead to inside is found anyway, under its own name, and what they lead to outside was not
/// given to us. So there are no loops. One that leads to a file inside is a further name of that file.
pub(crate) fn walk(paths: &[PathBuf], output: Option<&Path>, exclude: &Exclude) -> Result<Walked, BuildError> {
    // As it is on disk, so that two ways to write it are one.
    let output = output.and_then(|output| fs::canonicalize(output).ok());
    let mut walked = Walked::default();
    let mut directories = Vec::new();
    let mut links = Vec::new();
    for path in paths {
        if let Some(glob) = exclude.matching(&place_of(path)) {
            walked.excluded.push(glob.to_owned());
            continue;
        }
        let metadata = fs::metadata(path).map_err(io_error("open", path))?;
        if metadata.is_dir()
            && let Some(glob) = exclude.matching_directory(&place_of(path))
        {
            walked.excluded.push(glob.to_owned());
            continue;
        }
        if metadata.is_dir() {
            directories.push(path.clone());
        } else if metadata.is_file() {
            walked.candidates.push(Candidate {
                path: path.clone(),
                named: true,
                size: metadata.len(),
                is_layout: false,
            });
        } else {
            let found = "a device, pipe or socket".to_owned();
            return Err(BuildError::Unsuitable { place: place_of(path), expected: "a file or a directory", found });
        }
    }
    while !directories.is_empty() {
        let listed: Vec<Listed> =
            directories.par_iter().map(|directory| list(directory, output.as_deref())).collect::<Result<_, _>>()?;
        directories.clear();
        for mut one in listed {
            let mut is_wanted = |glob: Option<&str>| {
                walked.excluded.extend(glob.map(str::to_owned));
                glob.is_none()
            };
            one.directories.retain(|directory| is_wanted(exclude.matching_directory(&place_of(directory))));
            one.files.retain(|file| {
                let place = place_of(&file.path);
                is_wanted(match file.is_layout {
                    true => exclude.matching_directory(&place),
                    false => exclude.matching(&place),
                })
            });
            one.links.retain(|link| is_wanted(exclude.matching(&place_of(link))));
            directories.extend(one.directories);
            walked.candidates.extend(one.files);
            walked.links += one.links.len() as u64;
            links.extend(one.links);
            walked.special += one.special;
        }
    }
    // One file may have been named and found: then it was named.
    walked.candidates.sort_by(|a, b| (&a.path, b.named).cmp(&(&b.path, a.named)));
    walked.candidates.dedup_by(|a, b| a.path == b.path);
    walked.link_names = link_names(&links, paths, &walked.candidates);
    Ok(walked)
}

/// The names of those links that lead to candidates. Between a root and a candidate lies no link, so that where a candidate really lies is
/// known without asking for each.
fn link_names(links: &[PathBuf], roots: &[PathBuf], candidates: &[Candidate]) -> Vec<(PathBuf, String)> {
    let roots: Vec<(PathBuf, &PathBuf)> = if links.is_empty() {
        Vec::new()
    } else {
        roots.iter().filter_map(|root| Some((fs::canonicalize(root).ok()?, root))).collect()
    };
    let candidate = |path: &Path| {
        let at = candidates.binary_search_by(|candidate| candidate.path.as_path().cmp(path)).ok()?;
        candidates.get(at).map(|candidate| candidate.path.clone())
    };
    let named = |link: &PathBuf| {
        // One that leads to nothing, or in a circle, is a name of nothing.
        let target = fs::canonicalize(link).ok()?;
        let mut found = roots.iter().filter_map(|(real, root)| {
            let rest = target.strip_prefix(real).ok()?;
            candidate(&if rest.as_os_str().is_empty() { (*root).clone() } else { root.join(rest) })
        });
        Some((found.next()?, base_name(link)))
    };
    links.iter().filter_map(named).collect()
}

/// What an OCI layout is made of, and where ours has what is on its way into one.
const LAYOUT: [&str; 4] = ["oci-layout", "index.json", "blobs", "ingest"];

/// The content of one directory.
#[derive(Default)]
struct Listed {
    directories: Vec<PathBuf>,
    files: Vec<Candidate>,
    links: Vec<PathBuf>,
    special: u64,
}

fn list(directory: &Path, output: Option<&Path>) -> Result<Listed, BuildError> {
    let mut listed = Listed::default();
    if output.is_some() && fs::canonicalize(directory).ok().as_deref() == output {
        return Ok(listed);
    }
    for entry in fs::read_dir(directory).map_err(io_error("list", directory))? {
        let entry = entry.map_err(io_error("list", directory))?;
        let path = entry.path();
        // Of the entry itself, not of what a link leads to.
        let kind = entry.file_type().map_err(io_error("look at", &path))?;
        if kind.is_dir() {
            listed.directories.push(path);
        } else if kind.is_file() {
            let size = entry.metadata().map_err(io_error("look at", &path))?.len();
            listed.files.push(Candidate { path, named: false, size, is_layout: false });
        } else if kind.is_symlink() {
            listed.links.push(path);
        } else {
            listed.special += 1;
        }
    }
    let has = |name: &str| listed.files.iter().any(|file| file.path.file_name().is_some_and(|found| found == name));
    if has("oci-layout") && has("index.json") {
        // Its blobs are the image's layers, and mean something in their order alone. What else lies there is no part of it.
        let is_of_layout = |path: &Path| path.file_name().is_some_and(|name| LAYOUT.iter().any(|own| name == *own));
        listed.files.retain(|file| !is_of_layout(&file.path));
        listed.directories.retain(|directory| !is_of_layout(directory));
        listed.files.push(Candidate { path: directory.to_owned(), named: false, size: 0, is_layout: true });
    }
    Ok(listed)
}
