//! Where answers come from beside the bundles that were pushed here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use symseal_resolver::without_secrets;

use crate::ServerError;
use crate::sources::SourceRoot;
use crate::trees::Trees;
use crate::upstream::Upstreams;
use crate::withheld::Withheld;

/// What a server may answer with beside the bundles of its repositories. The default is: nothing.
#[derive(Debug, Clone)]
pub struct Origins {
    /// Base URLs of debuginfod servers, asked for a build-id that no bundle here has.
    pub upstreams: Vec<String>,
    /// Base URLs of symbol servers (Microsoft's symsrv), asked for a file that no bundle here has.
    pub symbol_upstreams: Vec<String>,
    /// Directories whose files may be read as sources.
    pub source_roots: Vec<PathBuf>,
    /// Directories of debug files, archives and packages that are served where they lie.
    pub trees: Vec<PathBuf>,
    /// How long after a look at them the next one begins.
    pub tree_interval: Duration,
    /// Bytes that the cache of upstreams' files, compressed forms and generated files may fill.
    pub cache_bytes: u64,
    /// How long upstreams are waited for.
    pub patience: Patience,
    /// Files, and folders with all that lies in them, that no directory of sources and no tree gives, beside the data directory: keys, configuration.
    pub withheld: Vec<PathBuf>,
}

/// How long an upstream is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it is connected.
    pub connect: Duration,
    /// Until the head of its answer. A debuginfod server may take an archive apart first.
    pub head: Duration,
    /// Until one that is silent is asked beside the request whether it lives. One that does not say so within the same time is dead.
    pub silence: Duration,
    /// Between two pieces of a body.
    pub stall: Duration,
    /// How long one that was found dead is left alone; doubled with each probe that fails, up to sixteen times.
    pub pause: Duration,
    /// How long "there is no such file" is believed.
    pub absence: Duration,
}

/// The default of [`Origins::cache_bytes`]: 4 GiB.
pub const CACHE_BYTES: u64 = 4 << 30;

/// The default of [`Patience::silence`].
pub const SILENCE: Duration = Duration::from_secs(3);

/// The default of [`Origins::tree_interval`]: five minutes, as debuginfod's.
pub const TREE_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// What every machine has there is no source: accounts and configuration, what people and services keep, and what the system says of processes.
const NO_SOURCES: [&str; 7] = ["/etc", "/home", "/root", "/var/lib", "/run", "/proc", "/sys"];

impl Origins {
    /// What a start would warn of: directories of sources with far more in them. Blocks.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warning = |root: &PathBuf| {
            let real = root.canonicalize().ok()?;
            let is_held = |place: &&str| Path::new(place).canonicalize().is_ok_and(|place| place.starts_with(&real));
            let held: Vec<&str> = NO_SOURCES.into_iter().filter(|place| is_held(place)).collect();
            let (shown, held) = (root.display(), (!held.is_empty()).then(|| held.join(", "))?);
            Some(format!(
                "origins.source_roots: {shown} has {held} in it, and whoever may read one debug file reads all files there that the server can: name the directories that have sources alone"
            ))
        };
        self.source_roots.iter().filter_map(warning).collect()
    }

    /// Opens the directories of sources.
    pub(crate) fn open_source_roots(&self, withheld: &Arc<Withheld>) -> Result<Vec<SourceRoot>, ServerError> {
        let open = |path: &PathBuf| {
            SourceRoot::open(path, Arc::clone(withheld))
                .map_err(|error| no_directory((path.clone(), error), "a directory of sources (origins.source_roots)"))
        };
        self.source_roots.iter().map(open).collect()
    }

    /// What no directory gives of a server with this data directory.
    pub(crate) fn withheld(&self, data: &Path) -> Arc<Withheld> {
        Arc::new(Withheld::new(self.withheld.iter().cloned().chain([data.to_owned()])))
    }

    /// Whether the directories that are served where they lie can be opened.
    pub(crate) fn check_trees(&self) -> Result<(), ServerError> {
        Trees::check(&self.trees).map_err(no_tree)
    }

    /// Whether the URLs of other servers are such. None of them is asked.
    pub(crate) fn check_upstreams(&self) -> Result<(), ServerError> {
        [&self.upstreams, &self.symbol_upstreams]
            .into_iter()
            .try_for_each(|urls| Upstreams::check(urls, self.patience).map_err(|problem| no_upstream(urls, problem)))
    }
}

/// What is told of a directory that cannot be served where it lies.
pub(crate) fn no_tree(failed: (PathBuf, io::Error)) -> ServerError {
    no_directory(failed, "a directory of debug files or packages (origins.index)")
}

/// What is told of servers of which one cannot be asked.
pub(crate) fn no_upstream(urls: &[String], problem: String) -> ServerError {
    let shown: Vec<String> = urls.iter().map(|url| without_secrets(url)).collect();
    let origin = shown.join(", ");
    // Of one alone the problem names it too.
    let problem = problem.strip_prefix(&format!("{origin}: ")).unwrap_or(&problem).to_owned();
    ServerError::Origin { origin, problem: format!("{problem} (origins.upstreams, origins.symbol_upstreams)") }
}

fn no_directory((path, error): (PathBuf, io::Error), expected: &str) -> ServerError {
    ServerError::Origin { origin: path.display().to_string(), problem: format!("{error}: expected {expected}") }
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            symbol_upstreams: Vec::new(),
            source_roots: Vec::new(),
            trees: Vec::new(),
            tree_interval: TREE_INTERVAL,
            cache_bytes: CACHE_BYTES,
            patience: Patience::default(),
            withheld: Vec::new(),
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            head: Duration::from_secs(45),
            silence: SILENCE,
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(15),
            absence: Duration::from_secs(60),
        }
    }
}
