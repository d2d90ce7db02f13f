//! What the demo works on, and where it keeps things.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The release that the demo pretends to make.
pub(crate) const NAME: &str = "symseal-demo";
/// Its version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folders of one demo run: kept where the user said so, else gone with the run.
pub(crate) struct Scene {
    dir: PathBuf,
    temporary: Option<TempDir>,
}

impl Scene {
    /// A fresh scene in `keep`, which must not exist or be empty, or in a temporary directory.
    pub(crate) fn new(keep: Option<&Path>) -> Result<Self> {
        let Some(dir) = keep else {
            let temporary =
                tempfile::Builder::new().prefix("symseal-demo-").tempdir().context("no temporary directory")?;
            return Ok(Self { dir: temporary.path().to_owned(), temporary: Some(temporary) });
        };
        std::fs::create_dir_all(dir).with_context(|| format!("--keep {}: cannot be made", dir.display()))?;
        if std::fs::read_dir(dir).with_context(|| format!("--keep {}", dir.display()))?.next().is_some() {
            bail!("--keep {}: expected a new or empty directory; remove it or name another", dir.display());
        }
        Ok(Self { dir: dir.canonicalize().with_context(|| format!("--keep {}", dir.display()))?, temporary: None })
    }

    /// Whether the folders stay when the demo ends.
    pub(crate) fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// The sealed OCI layout.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.dir.join("bundle")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.dir.join("keys")
    }

    pub(crate) fn trust(&self) -> PathBuf {
        self.dir.join("trust")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.dir.join("trace.jsonl")
    }

    /// The frames of the trace with their names, as an event.
    pub(crate) fn resolved(&self) -> PathBuf {
        self.dir.join("resolved.jsonl")
    }

    pub(crate) fn evidence(&self) -> PathBuf {
        self.dir.join("evidence.json")
    }

    /// Folders that are of use during the run alone.
    pub(crate) fn scratch(&self) -> Result<TempDir> {
        tempfile::Builder::new().prefix("symseal-demo-scratch-").tempdir().context("no temporary directory")
    }
}

/// One file that goes into the demo's bundle.
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    /// What it is, for the reader of the story.
    pub(crate) label: &'static str,
}

/// The running executable, and the C library and loader that it runs with.
pub(crate) fn inputs() -> Result<Vec<Input>> {
    let executable = std::env::current_exe().context("the running executable cannot be found")?;
    let mut inputs = vec![Input { path: executable, label: "the running symseal" }];
    let maps = std::fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
    let mapped =
        maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).filter(|path| path.starts_with('/'));
    for path in mapped.map(PathBuf::from) {
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let label = match file_name {
            name if name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("libc.musl") => {
                "the C library"
            }
            name if name.starts_with("ld-") || name.starts_with("ld.so") => "the loader",
            _ => continue,
        };
        if inputs.iter().all(|input| input.path != path) {
            inputs.push(Input { path, label });
        }
    }
    Ok(inputs)
}
